"""What every rival shares: the protocol and the growing list of (task, label) pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.rivals.scaling import Scale, Scaler
from benchmarks.stream import Array, FloatArray

Codes = NDArray[np.intp]


class Rival(Protocol):
    """The seam that the runner knows: one call to learn, two to answer."""

    joint: ClassVar[bool]

    @property
    def classes_(self) -> Array:
        """Labels seen so far; the columns of ``predict_proba``."""
        ...

    @property
    def tasks_(self) -> list[str]:
        """Tasks seen so far; the columns of ``predict_task_proba``."""
        ...

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """Learn one piece of data; it is not seen again."""
        ...

    def predict(self, x: FloatArray, task: str | None = None) -> Array:
        """The most probable label, within ``task`` where it is known."""
        ...

    def predict_proba(self, x: FloatArray, task: str | None = None) -> FloatArray:
        """p(y | x) or p(y | x, t), columns as in ``classes_``."""
        ...

    def predict_task_proba(self, x: FloatArray) -> FloatArray:
        """p(t | x), columns as in ``tasks_``."""
        ...

    @property
    def floats_stored(self) -> int:
        """Numbers kept between two calls of ``partial_fit``."""
        ...


class PairRival(ABC):
    """A rival that gives one score per (task, label) pair: log p(x, t, y) up to a constant in x.

    ``after_fit`` names the settings that act when answering only, so tuning them needs no new fit.
    """

    after_fit: ClassVar[tuple[str, ...]] = ()
    joint: ClassVar[bool] = False

    def __init__(self, scale: Scale = "none", seed: int = 0) -> None:
        self.scaler = Scaler(scale)
        self.seed = seed
        self.pairs: list[tuple[str, object]] = []
        self.tasks_: list[str] = []
        self.classes_: Array = np.empty(0)

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """Register the pairs of the piece, then learn it."""
        labels, inverse = np.unique(y, return_inverse=True)
        columns = np.array([self._column(task, label) for label in labels.tolist()])
        self.classes_ = np.unique([label for _, label in self.pairs])
        self._learn(self.scaler(x), columns[inverse])
        return self

    def predict_proba(self, x: FloatArray, task: str | None = None) -> FloatArray:
        """p(y | x, task) summed over the tasks where the task is unknown."""
        pair = self.pair_proba(x, task)
        place = np.searchsorted(self.classes_, np.array([label for _, label in self.pairs]))
        return _sum_columns(pair, place, len(self.classes_))

    def predict(self, x: FloatArray, task: str | None = None) -> Array:
        """argmax_y p(y | x, task)."""
        return self.classes_[self.predict_proba(x, task).argmax(axis=1)]

    def predict_task_proba(self, x: FloatArray) -> FloatArray:
        """p(t | x) = sum_y p(t, y | x)."""
        place = np.array([self.tasks_.index(task) for task, _ in self.pairs])
        return _sum_columns(self.pair_proba(x), place, len(self.tasks_))

    def pair_proba(self, x: FloatArray, task: str | None = None) -> FloatArray:
        """p(t, y | x), with all other tasks at zero where ``task`` is known."""
        score = self._scores(self.scaler(x))
        if task is not None:
            score = np.where(self._of_task(task), score, -np.inf)
        return np.exp(score - logsumexp(score)[:, None])

    def change(self, **settings: float) -> None:
        """Set some of ``after_fit``."""
        for name, value in settings.items():
            setattr(self, name, value)

    @property
    @abstractmethod
    def floats_stored(self) -> int:
        """Numbers kept between two calls of ``partial_fit``."""

    @abstractmethod
    def _learn(self, x: FloatArray, code: Codes) -> None:
        """Learn scaled rows whose pair is column ``code``."""

    @abstractmethod
    def _scores(self, x: FloatArray) -> FloatArray:
        """One column per pair."""

    def _column(self, task: str, label: object) -> int:
        if task not in self.tasks_:
            self.tasks_.append(task)
        if (task, label) not in self.pairs:
            self.pairs.append((task, label))
        return self.pairs.index((task, label))

    def _of_task(self, task: str) -> NDArray[np.bool_]:
        return np.array([name == task for name, _ in self.pairs])


def logsumexp(scores: FloatArray) -> FloatArray:
    """log sum_k exp(s_k) of each row; columns may be -inf."""
    return np.asarray(torch.logsumexp(torch.as_tensor(scores), dim=1))


def _sum_columns(values: FloatArray, place: NDArray[np.intp], width: int) -> FloatArray:
    """Add column k of ``values`` into column place[k] of the answer."""
    total = np.zeros((len(values), width))
    for column, target in enumerate(place):
        total[:, target] += values[:, column]
    return total
