"""Every symbol that the documents promise exists."""

import functools
import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "paper-to-code.md"
SYMBOL = re.compile(r"`((?:clbruno|benchmarks)[\w.]*):([\w.]+)`")


def symbols() -> list[tuple[str, str]]:
    return sorted(set(SYMBOL.findall(PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("module", "path"), symbols())
def test__paper_to_code__symbol__exists(
    module: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))

    found = functools.reduce(getattr, path.split("."), importlib.import_module(module))

    assert found.__doc__, f"{module}:{path} has no docstring"


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12])
def test__paper_to_code__every_equation__has_a_row(number: int) -> None:
    page = PAGE.read_text(encoding="utf-8")

    rows = [line for line in page.splitlines() if re.search(rf"\| eq\.[ \d,]*\b{number}\b", line)]

    assert rows


def test__paper_to_code__every_table_row__names_a_symbol() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    heads = ("| Paper |", "| What it is |")

    without = [line for line in lines if not line.startswith(heads) and not SYMBOL.search(line)]

    assert len(lines) > 40
    assert not without


def test__guarantees__tests_named__exist() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")

    named = set(re.findall(r"`(tests/[\w/.]*)`", page))

    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test__opening_picture__its_words__say_what_its_figures_say(page: str) -> None:
    runs = json.loads((ROOT / "docs/pictures/ten-seconds.json").read_text(encoding="utf-8"))["runs"]
    text = (ROOT / page).read_text(encoding="utf-8")

    for name, words in (
        ("clbruno, after every step", r"stays at (\d+) % right"),
        ("SGDClassifier, after every step", r"partial_fit falls to (\d+) %"),
    ):
        last = [value for run in runs for value in run[name][-1]]
        (said,) = re.findall(words, text)
        assert int(said) == round(100 * sum(last) / len(last))
