"""Supplement A.3: is a class that was never learned told from those that were?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import metrics
from benchmarks.rivals.base import Rival
from benchmarks.stream import Array, FloatArray, Step, Stream, validation_stream

ALPHA = 0.05
FOUND_IN = {"outliers-mnist": "mnist", "outliers-pancan": "pancan", "outliers-ici": "ici"}


def held_out(stream: Stream) -> list[tuple[str, Stream, FloatArray]]:
    """(name, stream without it, its test rows) for each task, or each class where one task is."""
    if len(stream.tasks) > 1 and stream.name == "ici":
        return [(task, *_without(stream, "task", task)) for task in stream.tasks]
    return [(str(label), *_without(stream, "label", label)) for label in stream.labels.tolist()]


def _without(stream: Stream, what: str, name: Any) -> tuple[Stream, FloatArray]:
    """Steps and tests without a task or label, and the test rows of it."""

    def out(step: Step) -> Array:
        return np.full(len(step.y), step.task == name) if what == "task" else step.y == name

    left, tests = [], []
    for step, test in zip(stream.steps, stream.tests, strict=True):
        kept = step.rows(np.flatnonzero(~out(step)))
        if len(kept.y):
            left.append(kept)
            tests.append(test.rows(np.flatnonzero(~out(test))))
    strange = np.concatenate([test.x[out(test)] for test in stream.tests])
    return replace(stream, steps=tuple(left), tests=tuple(tests), notes={}), strange


def level(model: Rival, stream: Stream) -> float:
    """The alpha quantile of log p(x) over rows of the validation stream that were not learned."""
    return float(np.quantile(_scores(model, stream.tests), ALPHA))


def alarms(model: Any, x: FloatArray, threshold: float | None) -> FloatArray:
    """Outside the level set: typicality under alpha, or log p(x) under the threshold."""
    if threshold is None:
        return np.asarray(model.typicality(x)) < ALPHA
    return np.asarray(model.score_samples(x)) < threshold


def one(make: Any, stream: Stream, strange: FloatArray, seed: int) -> dict[str, float]:
    """AUROC of log p(x), and alarm rates at alpha among known and unknown test rows.

    A model that states typicality itself is asked for it. For the others the threshold comes
    from a model fitted without a tenth of the training rows, at the quantile of those rows.
    """
    model, threshold = make(), None
    for step in stream.steps:
        model.partial_fit(step.x, step.y, step.task)
    if not hasattr(model, "typicality"):
        held, lean = validation_stream(stream, seed), make()
        for step in held.steps:
            lean.partial_fit(step.x, step.y, step.task)
        threshold = level(lean, held)
    known = np.concatenate([test.x for test in stream.tests])
    return {
        "auroc": metrics.auroc(model.score_samples(known), model.score_samples(strange)),
        "false_alarms": float(alarms(model, known, threshold).mean()),
        "outliers_found": float(alarms(model, strange, threshold).mean()),
    }


def measure(make: Any, stream: Stream, seed: int, quick: bool) -> tuple[dict[str, Any], Any]:
    """Figures averaged over everything held out in turn, and each of them."""
    cases = [case for case in held_out(stream) if len(case[2])]
    each = {
        name: one(make, rest, strange, seed)
        for name, rest, strange in cases[: 2 if quick else None]
    }
    names = ("auroc", "false_alarms", "outliers_found")
    figures = {name: float(np.mean([found[name] for found in each.values()])) for name in names}
    return figures, each


def _scores(model: Any, tests: tuple[Step, ...]) -> FloatArray:
    return np.concatenate([model.score_samples(test.x) for test in tests if len(test.y)])
