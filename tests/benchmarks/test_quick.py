"""``python -m benchmarks --quick``: every method on every experiment it applies to, made small."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import NAMES, main
from benchmarks.experiments import EXPERIMENTS
from benchmarks.methods import METHODS
from benchmarks.outliers import FOUND_IN
from clbruno.errors import SmallClassWarning

Records = dict[tuple[str, str], dict[str, Any]]
SEVERAL = {"synthetic", "mnist", "ici"}
CLOSED = ("ncm", "lda", "shrunk", "fecam", "fetril", "joint-logistic", "clbruno", "clbruno-oracle")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    folder = tmp_path_factory.mktemp("quick")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)
        assert main(["--quick", "--results", str(folder)]) == 0
    found = [json.loads(path.read_text()) for path in folder.glob("*/*.json")]
    return {(record["experiment"], record["method"]): record for record in found}


def test__quick__every_method_and_experiment__has_its_record(records: Records) -> None:
    wanted = {(name, m) for name in EXPERIMENTS for m in METHODS if METHODS[m].applies(name)}
    dense = [method for method in METHODS if METHODS[method].density]
    wanted |= {("cost", m) for m in METHODS if METHODS[m].applies("cost")}
    wanted |= {(n, m) for n, data in FOUND_IN.items() for m in dense if METHODS[m].applies(data)}
    assert set(records) == wanted
    assert {name for name, _ in wanted} == set(NAMES)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test__quick__records__are_complete(records: Records, name: str) -> None:
    for (experiment, method), record in records.items():
        if experiment != name:
            continue
        figures = record["figures"]
        assert 0 <= figures["accuracy"] <= 1
        assert np.isfinite([figures["nll"], figures["ece"]]).all()
        assert figures["floats_stored"] > 0
        assert record["versions"]["numpy"] == np.__version__
        assert record["quick"]
        assert ("error_task_identity" in figures) == (name in SEVERAL)
        assert set(METHODS[method].searched(name)) <= set(record["settings"])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test__quick__closed_forms__are_far_better_than_chance(records: Records, name: str) -> None:
    figure = "accuracy_task_known" if name in SEVERAL else "accuracy"
    for method in CLOSED:
        if (name, method) in records:
            assert records[name, method]["figures"][figure] > 0.4, method


@pytest.mark.parametrize("name", FOUND_IN)
def test__quick__outliers__are_told_by_a_density(records: Records, name: str) -> None:
    for method in ("shrunk", "clbruno"):
        assert records[name, method]["figures"]["auroc"] > 0.7
    assert len(records[name, "shrunk"]["each"]) == 2


def test__quick__cost__has_a_row_for_every_size_of_replay(records: Records) -> None:
    for method in ("clbruno-paper", "clbruno-paper-64", "clbruno-paper-32"):
        figures = records["cost", method]["figures"]
        assert min(figures["seconds_a_draw"], figures["seconds_a_step"]) > 0
        assert figures["floats_stored"] > 0


@pytest.mark.parametrize("method", ["clbruno", "clbruno-paper"])
def test__quick__tasks__heat_map_rows_sum_to_one(records: Records, method: str) -> None:
    heat = np.array(records["ici", method]["task_heat"])
    np.testing.assert_allclose(heat.sum(axis=1), 1, atol=1e-6)
