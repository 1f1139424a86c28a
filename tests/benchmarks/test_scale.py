"""The cost model: its terms, its committed figures, and the page that quotes them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import scale
from benchmarks.runner import RESULTS
from benchmarks.scale import Size

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"


@pytest.fixture(scope="module")
def record() -> Any:
    return json.loads((RESULTS / scale.FILE).read_text(encoding="utf-8"))


def test__committed__three_sizes__predicted_within_a_fifth(record: Any) -> None:
    fitted = [Size(row["n"], row["d"], row["k"]) for row in record["cost"]["calibration"]]

    assert len(record["cost"]["check"]) == 3
    for row in record["cost"]["check"]:
        size = Size(row["n"], row["d"], row["k"])
        assert size not in fitted
        for what, unit in [("learn", "s"), ("answer", "s"), ("file", "bytes")]:
            found = row[f"{what}_predicted_{unit}"] / row[f"{what}_{unit}"]
            assert 0.8 <= found <= 1.2, (what, size)
        assert row["file_predicted_bytes"] == scale.file_bytes(size)
    for row in record["messages"]:
        assert row["predicted_bytes"] == pytest.approx(row["bytes"], rel=0.01)


def test__committed__stream__memory_is_flat_in_the_rows(record: Any) -> None:
    peaks = {row["rows"]: row["peak_mib"] for row in record["memory"]}

    assert list(peaks) == [10**5, 10**6, 10**7]
    assert max(peaks.values()) < 1.2 * min(peaks.values())


def test__page__figures__are_those_of_the_results(record: Any) -> None:
    page = PAGE.read_text(encoding="utf-8")

    for row in record["cost"]["check"]:
        assert f"| {row['learn_s']:.3f} | {row['learn_predicted_s']:.3f} |" in page
        assert f"{row['file_bytes']:,}" in page
    for row in record["messages"]:
        assert f"| {row['messages']} | {row['bytes']:,} |" in page
    for row in record["memory"]:
        assert f"| {row['rows']:,} | {row['peak_mib']} | {row['cpu_s']} |" in page
    for row in record["far"]:
        size = Size(row["n"], row["d"], row["k"])
        assert row == scale.far(size, record["cost"]["constants_s"])


def test__fitted__times_made_from_constants__are_found() -> None:
    rng = np.random.default_rng(0)
    truth = {"update": 0.01, "row": 1e-7, "number": 2e-8}
    terms = [
        {"update": 1.0, "row": float(n), "number": float(n * d)}
        for n, d in rng.integers(1000, 9000, (8, 2))
    ]

    found = scale.fitted(terms, [scale.predicted(each, truth) for each in terms])

    assert found == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("size", [Size(300, 5, 3), Size(1000, 12, 4)])
def test__messages__counted__are_those_of_the_formula(size: Size) -> None:
    (row,) = scale.messages([size])

    # The rest is JSON: names, settings, digests.
    assert 0 <= row["bytes"] - row["predicted_bytes"] < 6000
    assert row["messages"] > 50


def test__measure__thin_and_full_classes__file_bytes_of_the_formula() -> None:
    for size in (Size(200, 30, 4), Size(700, 150, 100)):
        row = scale.measure(size, 1)

        assert row["learn_s"] > 0
        assert 0 <= row["file_bytes"] - scale.file_bytes(size) < 12_000
