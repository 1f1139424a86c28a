"""The order of the batches: the page says what was measured, and what is exact is exact."""

import json
from pathlib import Path

from benchmarks.order import RESULT, SETTINGS, compared

PAGE = Path(__file__).resolve().parents[2] / "docs" / "design.md"


def test__page__figures__are_those_of_the_result() -> None:
    figures = json.loads(RESULT.read_text(encoding="utf-8"))["figures"]
    lines = PAGE.read_text(encoding="utf-8").splitlines()

    assert figures.keys() == SETTINGS.keys()
    for name, found in figures.items():
        shown = [str(value) for key, value in found.items() if key != "seconds"]
        assert f"| {' | '.join([name, *shown])} |" in lines


def test__compared__frozen_after_the_first_batch__nothing_but_rounding() -> None:
    found = compared({"frozen": True})

    assert found["largest difference"] < 1e-9
    assert found["labels that differ"] == 0
