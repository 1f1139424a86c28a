"""Small forms of the experiments: calibration, the synthetic protocol, five digits tasks."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from clbruno import CLBrunoClassifier

ROWS = 20_000


def ece(proba: NDArray[np.float64], truth: NDArray[np.int64], bins: int = 15) -> float:
    """Expected calibration error: sum over bins of share |accuracy - confidence|."""
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == truth
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [
        abs(float((right[bin_of == at] - confidence[bin_of == at]).sum())) for at in range(bins)
    ]
    return sum(gaps) / len(truth)


def overlapping(classes: int, n: int, dim: int) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    means = 0.9 * rng.normal(size=(classes, dim))
    x = np.vstack([rng.normal(mean, 1, (n, dim)) for mean in means])
    return x, np.repeat(np.arange(classes), n)


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__calibration__data_drawn_from_the_model__ece_under_two_hundredths(
    settings: Any, recipe: str, by_bayes: Any
) -> None:
    x, y = overlapping(6, 400, 5)
    model = CLBrunoClassifier(random_state=0, **settings[recipe])
    model.partial_fit(x[:1200], y[:1200], task="A").partial_fit(x[1200:], y[1200:], task="B")

    rows, labels = model.sample(ROWS, random_state=0)
    proba = by_bayes(model).predict_proba(rows)

    assert 0.2 < np.mean(proba.argmax(axis=1) == labels) < 0.95
    assert ece(proba, labels) < 0.02


def test__calibration__task_identity_of_drawn_data__ece_under_two_hundredths(by_bayes: Any) -> None:
    x, y = overlapping(6, 400, 5)
    model = CLBrunoClassifier(random_state=0)
    model.partial_fit(x[:1200], y[:1200], task="A").partial_fit(x[1200:], y[1200:], task="B")
    rows = {task: model.sample(ROWS // 2, task=task, random_state=0)[0] for task in ("A", "B")}

    proba = by_bayes(model).predict_task_proba(np.vstack(list(rows.values())))

    assert ece(proba, np.repeat([0, 1], ROWS // 2)) < 0.02


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__typicality__rows_drawn_from_a_task__false_alarms_are_alpha(
    settings: Any, recipe: str, alpha: float
) -> None:
    x, y = overlapping(6, 100, 5)
    model = CLBrunoClassifier(random_state=0, **settings[recipe])
    model.partial_fit(x[:300], y[:300], task="A").partial_fit(x[300:], y[300:], task="B")

    for task in ("A", "B"):
        rows, _ = model.sample(ROWS, task=task, random_state=7)
        alarms = float(np.mean(model.typicality(rows, task, against="generated") <= alpha))
        # The level itself is estimated from 1,000 generated rows.
        error = np.sqrt(alpha * (1 - alpha) * (1 / ROWS + 1 / 1000))
        assert abs(alarms - alpha) < 2 * error + 1e-3


def synthetic(dim: int, seed: int) -> dict[int, tuple[Any, Any, Any, Any]]:
    """The paper's protocol: task t has t + 1 classes on a circle of radius sqrt(t)."""
    rng = np.random.default_rng(seed)
    tasks = {}
    for task in (1, 2, 3, 4):
        parts = []
        for n in (500, 1000):
            y = rng.integers(1, task + 2, n)
            angle = 2 * np.pi * y / (task + 1)
            odd = np.arange(1, dim + 1) % 2 == 1
            mean = np.sqrt(task) * np.where(odd, np.sin(angle)[:, None], np.cos(angle)[:, None])
            parts += [mean + np.sqrt(0.5) * rng.normal(size=(n, dim)), y]
        tasks[task] = tuple(parts)
    return tasks


def errors_of_five_increments(recipe: str, dim: int, seed: int) -> tuple[list[float], list[float]]:
    """Label and task-identity errors on each task after tasks 1 to 3 and task 4 in two parts."""
    data = synthetic(dim, seed)
    model = CLBrunoClassifier(recipe, random_state=seed)
    for task in (1, 2, 3):
        model.partial_fit(data[task][0], data[task][1], task=task)
    x, y = data[4][:2]
    for part in (y <= 3, y > 3):
        model.partial_fit(x[part], y[part], task=4)
    assert model.n_updates_ == 5

    label = [np.mean(model.predict(x, task=task) != y) for task, (_, _, x, y) in data.items()]
    task_ = [np.mean(model.predict_task(x) != task) for task, (_, _, x, _) in data.items()]
    print(f"{recipe}, seed {seed}: label errors {label}, task errors {task_}")
    return list(map(float, label)), list(map(float, task_))


def test__synthetic__five_increments__label_and_task_errors_within_the_bounds() -> None:
    label, task = errors_of_five_increments("default", dim=500, seed=0)

    assert max(label) <= 0.005
    assert max(task) <= 0.01


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test__synthetic__a_thousand_dimensions__errors_within_the_bounds(seed: int) -> None:
    label, task = errors_of_five_increments("default", dim=1000, seed=seed)

    assert max(label) <= 0.005
    assert max(task) <= 0.01


@pytest.mark.nightly
def test__synthetic__recipe_of_the_paper__mean_of_five_seeds_within_its_own_bounds() -> None:
    found = [errors_of_five_increments("paper", dim=1000, seed=seed) for seed in range(5)]

    label, task = np.mean(found, axis=0)
    assert max(label) < 0.01
    assert max(task) < 0.05


def digits_accuracy(seed: int) -> float:
    x, y = load_digits(return_X_y=True)
    x, test, y, truth = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    model = CLBrunoClassifier(random_state=seed)
    for task in range(5):
        part = y // 2 == task
        model.partial_fit(x[part], y[part], task=f"{2 * task} and {2 * task + 1}")
    return float(np.mean(model.predict(test) == truth))


def test__digits__five_tasks_task_unknown__mean_of_five_seeds_at_least_0_985() -> None:
    found = [digits_accuracy(seed) for seed in range(5)]

    print("digits, five tasks, task unknown:", [round(value, 4) for value in found])
    assert np.mean(found) >= 0.985
