"""A stream of labelled pieces with one test set per piece, and the splits that make it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[Any]


@dataclass(frozen=True)
class Step:
    """Rows ``x`` (n, D) with labels ``y`` (n,), all from one task."""

    x: FloatArray
    y: Array
    task: str

    def rows(self, index: NDArray[np.intp]) -> Step:
        """The same step with the rows of ``index`` only."""
        return replace(self, x=self.x[index], y=self.y[index])


@dataclass(frozen=True)
class Stream:
    """Training steps in order; ``tests[i]`` holds test rows of the classes that step i brings."""

    name: str
    steps: tuple[Step, ...]
    tests: tuple[Step, ...]
    stand_in: str = ""
    notes: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.tests):
            raise ValueError(f"{len(self.steps)} steps but {len(self.tests)} test sets")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks in order of first appearance."""
        return tuple(dict.fromkeys(step.task for step in self.steps))

    @property
    def labels(self) -> Array:
        """All labels of the stream, sorted."""
        return np.unique(np.concatenate([step.y for step in self.steps]))


def split_stratified(
    strata: Array, seed: int, test_share: float = 0.2
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices (train, test): of each stratum of size n, round(share * n) rows test, at random."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    for stratum in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == stratum))
        cut = round(test_share * len(rows))
        test.append(rows[:cut])
        train.append(rows[cut:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def validation_stream(stream: Stream, seed: int, share: float = 0.1) -> Stream:
    """Split every training batch in two; the held-out part becomes the test set of its step.

    Most rows of each class train; the real test sets do not appear in the result.
    """
    steps, tests = [], []
    for number, step in enumerate(stream.steps):
        train, held = split_stratified(step.y, seed * 1000 + number, share)
        steps.append(step.rows(train))
        tests.append(step.rows(held))
    return replace(stream, steps=tuple(steps), tests=tuple(tests))


def thin(step: Step, per_class: int, seed: int = 0) -> Step:
    """At most ``per_class`` rows of each class, for the quick forms."""
    rng = np.random.default_rng(seed)
    keep = [rng.permutation(np.flatnonzero(step.y == k))[:per_class] for k in np.unique(step.y)]
    return step.rows(np.sort(np.concatenate(keep)))
