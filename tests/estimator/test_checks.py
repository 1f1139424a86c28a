"""scikit-learn's own checks, without exemption, on fresh models and on models that have lived."""

import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from clbruno import CLBrunoClassifier

ROWS = 40

EVERY_CHECK = textwrap.dedent(
    """
    import json, sys
    import numpy as np
    import torch
    from sklearn.utils.estimator_checks import check_estimator
    from clbruno import CLBrunoClassifier

    class InPieces(CLBrunoClassifier):
        # Its fit lives a life: some classes, all of them in more samples, all in a new task.
        def fit(self, X, y):
            super().fit(X, y)
            x, labels = np.asarray(X), np.asarray(y).ravel()
            names = np.unique(labels)
            first = labels <= names[len(names) // 2]
            super().fit(x[first], labels[first], task="a")
            super().partial_fit(X, labels, task="a")
            return super().partial_fit(x[::-1], labels[::-1], task="b")

    torch.set_num_threads(1)
    kind = {"fresh": CLBrunoClassifier, "in pieces": InPieces}[sys.argv[1]]
    model = kind(random_state=0, **json.loads(sys.argv[2]))
    results = check_estimator(model, on_fail=None, on_skip=None)
    print(json.dumps([(r["check_name"], r["status"], repr(r["exception"])) for r in results]))
    """
)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("fresh", {}), ("fresh", {"couplings": 2, "max_epochs": 2, "hidden": 16}), ("in pieces", {})],
)
def test__check_estimator__every_check__passes_without_exemption(
    kind: str, settings: dict[str, Any]
) -> None:
    # In a process of its own: scipy reads the switch of the array API when it is imported.
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", EVERY_CHECK, kind, json.dumps(settings)],
        env={**os.environ, "SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout)
    assert len(results) >= 55
    assert "check_array_api_input" in {name for name, _, _ in results}
    assert [result for result in results if result[1] != "passed"] == []


def test__grown__shapes_sums_and_choices__agree_with_each_other(
    grown: CLBrunoClassifier, rows: NDArray[np.float64]
) -> None:
    label, task = grown.predict_proba(rows), grown.predict_task_proba(rows)

    assert label.shape == (ROWS, 10)
    assert task.shape == (ROWS, 2)
    for proba in (label, task, grown.predict_proba(rows, "A"), grown.predict_proba(rows, "B")):
        assert proba.dtype == np.float64
        assert np.abs(proba.sum(axis=1) - 1).max() < 1e-12
        assert (proba >= 0).all()
    assert np.array_equal(grown.predict(rows), grown.classes_[label.argmax(axis=1)])
    assert np.array_equal(grown.predict_task(rows), grown.tasks_[task.argmax(axis=1)])
    log_label = grown.predict_log_proba(rows)
    assert log_label.min() >= -708
    assert np.allclose(np.exp(log_label), label, rtol=1e-12, atol=1e-300)


def test__grown__label_is_the_mixture_over_tasks__equation_12(
    grown: CLBrunoClassifier, rows: NDArray[np.float64], unbent: Any
) -> None:
    grown = unbent(grown)
    task = grown.predict_task_proba(rows)

    mixture = sum(
        task[:, [at]] * grown.predict_proba(rows, task=name) for at, name in enumerate(grown.tasks_)
    )

    assert np.abs(mixture - grown.predict_proba(rows)).max() < 1e-12


def test__grown__a_known_task__gives_nothing_to_labels_outside_it(
    grown: CLBrunoClassifier, rows: NDArray[np.float64]
) -> None:
    outside_a = [name not in {f"class {at}" for at in range(5)} for name in grown.classes_]

    assert (grown.predict_proba(rows, task="A")[:, outside_a] == 0).all()
    assert set(grown.predict(rows, task="A")) <= {f"class {at}" for at in range(5)}


def test__grown__density__is_the_mixture_over_tasks(
    grown: CLBrunoClassifier, rows: NDArray[np.float64]
) -> None:
    each = np.stack([grown.score_samples(rows, task=name) for name in grown.tasks_], axis=1)

    expected = np.logaddexp.reduce(each + np.log(0.5), axis=1)

    assert np.abs(grown.score_samples(rows) - expected).max() < 1e-9


@pytest.mark.parametrize("size", [1, 7])
def test__grown__rows_asked_in_pieces__answers_are_the_same(
    grown: CLBrunoClassifier, rows: NDArray[np.float64], answers: Callable[..., Any], size: int
) -> None:
    whole = answers(grown, rows)
    pieces = [answers(grown, rows[at : at + size]) for at in range(0, ROWS, size)]

    for name, value in whole.items():
        if value.shape[:1] == (ROWS,):
            parts = np.concatenate([piece[name] for piece in pieces])
            if value.dtype.kind == "f":
                assert np.abs(parts - value).max() < 1e-9, name
            else:
                assert np.array_equal(parts, value), name


def test__grown__order_of_the_rows__does_not_matter(
    grown: CLBrunoClassifier, rows: NDArray[np.float64]
) -> None:
    order = np.random.default_rng(0).permutation(ROWS)

    assert np.allclose(
        grown.predict_proba(rows)[order], grown.predict_proba(rows[order]), atol=1e-12
    )


def test__grown__task_per_row__is_each_row_in_its_task(
    grown: CLBrunoClassifier, rows: NDArray[np.float64]
) -> None:
    tasks = np.array(["A", "B"] * (ROWS // 2))

    for ask in (grown.predict_proba, grown.score_samples, grown.typicality):
        both = {name: ask(rows, task=name) for name in ("A", "B")}
        for at, name in enumerate(tasks):
            assert np.array_equal(ask(rows, task=tasks)[at], both[name][at])


@pytest.mark.parametrize("form", ["list", "frame", "memmap", "fortran", "float32", "big endian"])
def test__grown__other_containers__same_answers(
    grown: CLBrunoClassifier,
    rows: NDArray[np.float64],
    answers: Callable[..., Any],
    same: Callable[..., None],
    form: str,
    tmp_path: Any,
) -> None:
    rows = rows.astype(np.float32).astype(np.float64)
    given: Any = rows
    if form == "list":
        given = rows.tolist()
    elif form == "frame":
        given = pd.DataFrame(rows)
    elif form == "memmap":
        given = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=rows.shape)
        given[:] = rows
    elif form == "fortran":
        given = np.asfortranarray(rows)
    elif form == "float32":
        given = rows.astype(np.float32)
    else:
        given = rows.astype(">f8")

    same(answers(grown, given), answers(grown, rows))


def test__grown__answering__changes_nothing(
    grown: CLBrunoClassifier,
    rows: NDArray[np.float64],
    answers: Callable[..., Any],
    same: Callable[..., None],
) -> None:
    before = {name: id(value) for name, value in vars(grown).items()}
    kept = rows.copy()
    rows.flags.writeable = False

    first, second = answers(grown, rows), answers(grown, rows)

    same(first, second)
    assert {name: id(value) for name, value in vars(grown).items()} == before
    assert np.array_equal(rows, kept)


def test__grown__copied_or_pickled__answers_are_the_same(
    grown: CLBrunoClassifier,
    rows: NDArray[np.float64],
    answers: Callable[..., Any],
    same: Callable[..., None],
) -> None:
    expected = answers(grown, rows)

    same(answers(copy.deepcopy(grown), rows), expected)
    same(answers(pickle.loads(pickle.dumps(grown)), rows), expected)


def test__grown__cloned__is_blank_with_the_same_settings(grown: CLBrunoClassifier) -> None:
    blank = clone(grown)

    assert blank.get_params() == grown.get_params()
    assert not hasattr(blank, "model_")
    with pytest.raises(sklearn.exceptions.NotFittedError):
        blank.predict([[0.0] * 6])


def test__grown__fit__starts_afresh(grown: CLBrunoClassifier, blobs: Callable[..., Any]) -> None:
    x, y = blobs(2, 20, 3)
    model = copy.deepcopy(grown)

    model.fit(x, y)

    assert model.classes_.tolist() == ["class 0", "class 1"]
    assert model.tasks_.tolist() == ["default"]
    assert (model.n_updates_, model.n_features_in_) == (1, 3)
    assert model.score(x, y) == 1.0


def test__pipeline__cross_validation_with_a_task_per_row__is_routed(
    blobs: Callable[..., Any],
) -> None:
    x, y = blobs(4, 30, 5)
    task = np.where(np.isin(y, ["class 0", "class 1"]), "A", "B")
    with sklearn.config_context(enable_metadata_routing=True):
        model = CLBrunoClassifier(random_state=0)
        model.set_fit_request(task=True).set_predict_request(task=True)
        pipe = make_pipeline(StandardScaler(), model)

        found = cross_val_predict(pipe, x, y, cv=3, params={"task": task})

    assert np.mean(found == y) > 0.95


@pytest.fixture
def rows(blobs: Callable[..., Any]) -> NDArray[np.float64]:
    """Rows of all classes, and some of none."""
    x, _ = blobs(10, 3, 6, seed=9)
    return np.vstack([x, 30 * np.random.default_rng(2).normal(size=(10, 6))])
