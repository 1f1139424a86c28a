"""Small data, all answers of a model at once, and models that have lived."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clbruno import CLBrunoClassifier

Answers = dict[str, NDArray[Any]]

SMALL = {"hidden": 8, "batch_size": 16, "replay": 16, "max_epochs": 2}
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "couplings": {"couplings": 2, **SMALL},
    "paper": {"recipe": "paper", "couplings": 2, "context_dim": 4, **SMALL},
}


def make_blobs(
    classes: int, n: int, dim: int, seed: int = 0, gap: float = 4.0
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """`n` rows of each class around means that are far apart in random directions."""
    means = gap * np.random.default_rng(1234).normal(size=(classes, dim))
    rng = np.random.default_rng(seed)
    x = np.vstack([rng.normal(mean, 1, (n, dim)) for mean in means])
    return x, np.repeat([f"class {at}" for at in range(classes)], n)


def linked(model: CLBrunoClassifier, **changes: float) -> CLBrunoClassifier:
    """A copy of the model that answers with another link."""
    other = copy.copy(model)
    calibration = model.model_.calibration
    link = replace(calibration.link, **changes)
    other.model_ = replace(model.model_, calibration=replace(calibration, link=link))
    return other


@pytest.fixture
def unbent() -> Callable[[CLBrunoClassifier], CLBrunoClassifier]:
    """The model without the bend of its confidence in p(y | x)."""
    return lambda model: linked(model, slope=1.0, offset=0.0)


@pytest.fixture
def by_bayes() -> Callable[[CLBrunoClassifier], CLBrunoClassifier]:
    """The model that answers by Bayes' rule alone, whatever held-back rows taught it."""
    return lambda model: linked(model, slope=1.0, offset=0.0, temperature=1.0, tail=np.inf)


def make_answers(model: CLBrunoClassifier, x: Any) -> Answers:
    """Everything that a model says about some rows and about itself."""
    task = model.tasks_[-1]
    rows, labels = model.sample(7, random_state=3)
    return {
        "predict": model.predict(x),
        "predict_proba": model.predict_proba(x),
        "predict_log_proba": model.predict_log_proba(x),
        "predict_proba in a task": model.predict_proba(x, task=task),
        "predict_task": model.predict_task(x),
        "predict_task_proba": model.predict_task_proba(x),
        "score_samples": model.score_samples(x),
        "score_samples in a task": model.score_samples(x, task=task),
        "typicality": model.typicality(x),
        "typicality in a task": model.typicality(x, task=task),
        "sample": rows,
        "labels of sample": labels,
        "classes_": model.classes_,
        "tasks_": model.tasks_,
        "class_count_": model.class_count_,
        "n_updates_": np.array(model.n_updates_),
    }


def assert_equal(found: Answers, expected: Answers) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].shape == value.shape, name
        assert found[name].tobytes() == value.tobytes(), name


@pytest.fixture(scope="session")
def blobs() -> Callable[..., tuple[NDArray[np.float64], NDArray[np.str_]]]:
    """The maker of easy data."""
    return make_blobs


@pytest.fixture(scope="session")
def answers() -> Callable[[CLBrunoClassifier, Any], Answers]:
    """The asker of everything."""
    return make_answers


@pytest.fixture(scope="session")
def same() -> Callable[[Answers, Answers], None]:
    """The judge of two sets of answers."""
    return assert_equal


@pytest.fixture(scope="session")
def settings() -> dict[str, dict[str, Any]]:
    """Settings of three small models: closed form, label-free couplings, the paper's."""
    return RECIPES


@pytest.fixture(scope="session", params=list(RECIPES))
def grown(request: pytest.FixtureRequest) -> CLBrunoClassifier:
    """Ten classes in two tasks, learned as a new task, a new class and more samples."""
    x, y = make_blobs(10, 24, 6)
    model = CLBrunoClassifier(random_state=0, **RECIPES[request.param])
    model.partial_fit(x[:120], y[:120], task="A")  # classes 0 to 4
    model.partial_fit(x[96:192], y[96:192], task="B")  # classes 4 to 7: 4 is in both tasks
    model.partial_fit(x[192:], y[192:], task="B")  # classes 8 and 9: new in a known task
    more, labels = make_blobs(10, 10, 6, seed=5)
    return model.partial_fit(more[:60], labels[:60], task=["A"] * 50 + ["B"] * 10)
