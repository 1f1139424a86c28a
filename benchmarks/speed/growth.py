"""How time grows: with rows, classes and tasks, and from the second task to the fiftieth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.speed.clock import Options, Row
from clbruno.config import recipe
from clbruno.core.model import Model, chunks_of
from clbruno.learn.engine import Lesson, learn

DIM = 64
EACH = 200
TASKS = 50


def rows(options: Options) -> list[Row]:
    """Exponents of five sizes each, and the ratio of two updates."""
    found = [
        exponent("training time in n, 10 classes", training_in_n, (1, 2, 4, 8, 16), options),
        exponent("training time in classes", training_in_classes, (10, 20, 40, 80, 160), options),
        exponent("training time in tasks", training_in_tasks, (4, 8, 16, 32, 64), options),
        exponent("prediction time in n", prediction_in_n(), (1, 2, 4, 8, 16), options),
    ]
    return [*found, later_update(options), later_step(options)]


def exponent(
    what: str, work: Callable[[int], float], sizes: tuple[int, ...], options: Options
) -> Row:
    """Slope of log seconds over log size, by least squares over the medians."""
    repeats = max(3, options.repeats - 2)
    work(sizes[0])
    seconds = [float(np.median([work(size) for _ in range(repeats)])) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return Row(
        f"exponent of {what}, default recipe, D = {DIM}",
        "linear",
        slope,
        1.05,
        unit="",
        details={"sizes": list(sizes), "processor seconds": seconds},
    )


def training_in_n(size: int) -> float:
    """One first update of 5,000 rows and multiples."""
    return _timed_learn(None, *blobs(10, 500 * size))[0]


def training_in_classes(size: int) -> float:
    """One first update, the same number of rows for each class."""
    return _timed_learn(None, *blobs(size, EACH))[0]


def training_in_tasks(size: int) -> float:
    """All updates from the first task to the last, two classes each."""
    model, total = None, 0.0
    for task in range(size):
        seconds, model = _timed_learn(model, *blobs(2, EACH, seed=task), task=task)
        total += seconds
    return total


def prediction_in_n() -> Callable[[int], float]:
    """Log-posteriors of 5,000 rows and multiples, over ten classes."""
    x, y = blobs(10, 500)
    _, model = _timed_learn(None, x, y)

    def work(size: int) -> float:
        many = torch.from_numpy(np.tile(x, (size, 1)))
        began = time.process_time()
        for part in chunks_of(len(many)):
            model.posterior(many[part]).log_label()
        return time.process_time() - began

    return work


def later_update(options: Options) -> Row:
    """A whole update in closed form at fifty tasks and at two."""
    at = {2: _tasks_known(2), TASKS: _tasks_known(TASKS)}
    x, y = blobs(2, EACH, seed=999)
    seconds = {
        tasks: float(
            np.median([_timed_learn(model, x, y, task=999)[0] for _ in range(options.repeats)])
        )
        for tasks, model in at.items()
    }
    return Row(
        f"update of a new task in closed form at {TASKS} tasks, default recipe, D = {DIM}",
        "at 2 tasks",
        seconds[TASKS] / seconds[2],
        1.15,
        details={"processor seconds": seconds},
    )


def later_step(options: Options) -> Row:
    """One epoch of a trained flow's update at fifty tasks and at two."""
    x, y = blobs(2, 10 * EACH, seed=999)
    seconds = {}
    for tasks in (2, TASKS):
        model = _tasks_known(tasks, couplings=6, max_epochs=0)
        with_one, with_three = (
            float(
                np.median(
                    [
                        _timed_learn(model, x, y, task=999, couplings=6, max_epochs=epochs)[0]
                        for _ in range(options.repeats)
                    ]
                )
            )
            for epochs in (1, 3)
        )
        seconds[tasks] = (with_three - with_one) / 2
    return Row(
        f"epoch of an update with six couplings at {TASKS} tasks, D = {DIM}",
        "at 2 tasks",
        seconds[TASKS] / seconds[2],
        1.15,
        details={"processor seconds": seconds},
    )


def blobs(classes: int, each: int, seed: int = 0) -> tuple[Any, Any]:
    """Gaussian classes that overlap."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    x = rng.normal(size=(classes, DIM))[y] + rng.normal(size=(len(y), DIM))
    return x.astype(np.float32), y


def _tasks_known(tasks: int, **numbers: Any) -> Model:
    parts = [blobs(2, EACH, seed=task) for task in range(tasks)]
    x = np.concatenate([part for part, _ in parts])
    y = np.concatenate([part for _, part in parts])
    names = [task for task, (_, part) in enumerate(parts) for _ in part]
    lesson = Lesson(x, names, y.tolist(), recipe("default", **numbers), 0, torch.device("cpu"))
    return learn(None, lesson, lambda epoch: None)


def _timed_learn(
    model: Model | None, x: Any, y: Any, task: int = 0, **numbers: Any
) -> tuple[float, Model]:
    lesson = Lesson(
        x, [task] * len(y), y.tolist(), recipe("default", **numbers), 0, torch.device("cpu")
    )
    began = time.process_time()
    new = learn(model, lesson, lambda epoch: None)
    return time.process_time() - began, new
