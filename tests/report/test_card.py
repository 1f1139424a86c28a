"""The model card: complete, plain, and safe in Markdown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from clbruno import save
from clbruno.report.card import plain, render
from tests.report.conftest import CASES, Case


def card(case: Case, folder: Path) -> str:
    """The card of a case, from its file."""
    save(case.model, folder / "m.clb")
    exam = case.exam()
    labelled = exam is not None and bool(exam.labelled.any())
    return render(case.model, folder / "m.clb", exam if labelled else None)


@pytest.mark.parametrize("name", CASES)
def test__card__any_model__has_all_sections_and_straight_tables(
    name: str, cases: Callable[[str], Case], tmp_path: Path
) -> None:
    text = card(cases(name), tmp_path)

    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == [
        *("Identity", "Intended use", "Data seen", "Measured performance", "Limits"),
        *("Update history", "Approval"),
    ]
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table
        assert set(table.splitlines()[1]) <= set("|-:"), table
    assert "<script" not in text
    assert "None" not in text


def test__card__with_rows__measures_on_them(cases: Callable[[str], Case], tmp_path: Path) -> None:
    case = cases("five tasks")
    exam = case.exam()
    assert exam is not None

    text = card(case, tmp_path)

    assert f"accuracy **{exam.accuracy():.3f}**" in text
    assert "| site 5 | 36 |" in text
    assert "| class 30 | 6 |" in text
    assert "Largest fall" in text


def test__card__no_rows__says_so_and_repeats_the_log(
    cases: Callable[[str], Case], tmp_path: Path
) -> None:
    text = card(cases("no data"), tmp_path)

    assert "can only repeat the update log" in text
    assert "| accuracy |" in text


def test__plain__signs_of_markdown_and_html__mean_nothing() -> None:
    assert plain("<b>*a*</b>|[x](y)") == "&lt;b&gt;\\*a\\*&lt;/b&gt;\\|\\[x\\](y)"
