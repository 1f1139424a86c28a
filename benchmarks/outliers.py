"""Supplement A.3: is a class that was never learned told from those that were?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import metrics
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


def alarms(model: Any, x: FloatArray, threshold: float | None) -> FloatArray:
    """Outside the level set: typicality under alpha, or log p(x) under the threshold."""
    if threshold is None:
        return np.asarray(model.typicality(x)) < ALPHA
    return np.asarray(model.score_samples(x)) < threshold


@dataclass(frozen=True)
class Learned:
    """A model, and for one that states no typicality another to take its threshold from.

    ``lean`` is fitted without a tenth of the training rows; ``held`` are those rows.
    """

    model: Any
    lean: Any
    held: tuple[Step, ...]

    @classmethod
    def of(cls, make: Any, stream: Stream, seed: int) -> Learned:
        """Learn the stream; and once more without the rows held back, where that is needed."""
        model, lean, held = make(), None, validation_stream(stream, seed)
        for step in stream.steps:
            model.partial_fit(step.x, step.y, step.task)
        if not hasattr(model, "typicality"):
            lean = make()
            for step in held.steps:
                lean.partial_fit(step.x, step.y, step.task)
        return cls(model, lean, held.tests)

    def without(self, label: Any) -> Learned:
        """As if the label had never come; for models that keep each class by itself."""
        rows = [test.rows(np.flatnonzero(test.y != label)) for test in self.held]
        return Learned(self.model.without(label), self.lean.without(label), tuple(rows))

    def threshold(self) -> float | None:
        """The alpha quantile of log p(x) over the rows held back; None with typicality."""
        if self.lean is None:
            return None
        return float(np.quantile(_scores(self.lean, self.held), ALPHA))


def one(learned: Learned, stream: Stream, strange: FloatArray) -> dict[str, float]:
    """AUROC of log p(x), and alarm rates at alpha among known and unknown test rows."""
    model, threshold = learned.model, learned.threshold()
    known = np.concatenate([test.x for test in stream.tests])
    return {
        "auroc": metrics.auroc(model.score_samples(known), model.score_samples(strange)),
        "false_alarms": float(alarms(model, known, threshold).mean()),
        "outliers_found": float(alarms(model, strange, threshold).mean()),
    }


def measure(make: Any, stream: Stream, seed: int, quick: bool) -> tuple[dict[str, Any], Any]:
    """Figures averaged over everything held out in turn, and each of them."""
    cases = [case for case in held_out(stream) if len(case[2])][: 2 if quick else None]
    whole = Learned.of(make, stream, seed) if hasattr(make(), "without") else None
    each = {}
    for name, rest, strange in cases:
        if whole is None:
            learned = Learned.of(make, rest, seed)
        else:
            learned = whole.without(next(k for k in stream.labels.tolist() if str(k) == name))
        each[name] = one(learned, rest, strange)
    names = ("auroc", "false_alarms", "outliers_found")
    figures = {name: float(np.mean([found[name] for found in each.values()])) for name in names}
    return figures, each


def _scores(model: Any, tests: tuple[Step, ...]) -> FloatArray:
    return np.concatenate([model.score_samples(test.x) for test in tests if len(test.y)])
