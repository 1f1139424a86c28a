"""`clbruno report` and `clbruno card` on the command line."""

from pathlib import Path
from typing import Any

import pytest


def test__report__two_files_of_two_sites__is_written(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    ended = clbruno(
        *("report", world.model, "--data", world.boston, "--data", world.oslo),
        *("--task", "Boston", "--task", "Oslo", "--label", "diagnosis"),
        *("--explain", "boston.csv, row 2"),
        cwd=tmp_path,
    )

    assert ended.code == 0, ended.err
    assert ended.out.strip().endswith(str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Oslo <small>never learned</small>" in page
    assert "Why boston.csv, row 2 was" in page
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test__report__model_alone_and_unlabelled_rows__are_written(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    alone = clbruno("report", world.model, "-o", tmp_path / "a.html")
    unlabelled = clbruno(
        "report", world.model, "--data", world.new, "--id", "patient", "-o", tmp_path / "u.html"
    )

    assert alone.code == unlabelled.code == 0, alone.err + unlabelled.err
    assert "With data, this report says more" in (tmp_path / "a.html").read_text(encoding="utf-8")
    page = (tmp_path / "u.html").read_text(encoding="utf-8")
    assert 'id="typicality"' in page
    assert 'id="confusion"' not in page
    assert ">p0<" in page or ">p1" in page


def test__card__with_and_without_rows__is_written(clbruno: Any, world: Any, tmp_path: Path) -> None:
    alone = clbruno("card", world.model, cwd=tmp_path)
    measured = clbruno(
        *("card", world.model, "--data", world.boston, "--label", "diagnosis", "-o", "b.md"),
        cwd=tmp_path,
    )

    assert alone.code == measured.code == 0, alone.err + measured.err
    assert "can only repeat the update log" in (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "On 80 rows given to this card" in (tmp_path / "b.md").read_text(encoding="utf-8")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no such model": (("report", "none.clb"), "no such file"),
    "label without data": (("report", "m.clb", "--label", "diagnosis"), "need --data"),
    "explain without data": (("report", "m.clb", "--explain", "p1"), "give it too"),
    "no such column": (("report", "m.clb", "--data", "new.csv", "--label", "x"), "no column 'x'"),
    "column that is no feature": (("report", "m.clb", "--data", "new.csv"), "'patient'"),
    "no such row": (
        ("report", "m.clb", "--data", "new.csv", "--id", "patient", "--explain", "nobody"),
        "no row called 'nobody'",
    ),
    "task twice": (
        ("report", "m.clb", "--data", "new.csv", "--task", "a", "--task-column", "b"),
        "not both",
    ),
    "tasks in another number": (
        ("report", "m.clb", "--data", "new.csv", "--task", "a", "--task", "b"),
        "once per --data",
    ),
    "over the model": (("report", "m.clb", "-o", "m.clb"), "is read here"),
    "over the data": (("card", "m.clb", "--data", "new.csv", "--label", "x", "-o", "new.csv"), ""),
    "card of unlabelled rows": (("card", "m.clb", "--data", "new.csv"), "--label"),
    "no such folder": (("card", "m.clb", "-o", "none/card.md"), "none"),
}


@pytest.mark.parametrize("name", WRONG)
def test__reporting__bad_input__is_one_line_and_exit_code_2(
    name: str, clbruno: Any, world: Any, tmp_path: Path
) -> None:
    command, says = WRONG[name]
    (tmp_path / "m.clb").write_bytes(world.model.read_bytes())
    (tmp_path / "new.csv").write_bytes(world.new.read_bytes())

    ended = clbruno(*command, cwd=tmp_path)

    assert ended.code == 2
    assert says in ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.clb", "new.csv"]
    assert (tmp_path / "m.clb").read_bytes() == world.model.read_bytes()
