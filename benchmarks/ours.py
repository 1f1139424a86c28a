"""CL-BRUNO behind the protocol of the rivals."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np
import torch

from benchmarks.stream import Array, FloatArray

QUICK = {"max_epochs": 2}


class Ours:
    """``clbruno.CLBrunoClassifier`` with columns over all labels and all tasks."""

    joint: ClassVar[bool] = False

    def __init__(self, recipe: str, seed: int = 0, device: str = "cpu", **settings: Any) -> None:
        from clbruno import CLBrunoClassifier  # late: the rivals need no clbruno

        self.model = CLBrunoClassifier(
            recipe=recipe, device=device, random_state=seed, verbose=0, **settings
        )

    @property
    def classes_(self) -> Array:
        """Labels seen so far, in order."""
        return np.asarray(self.model.classes_)

    @property
    def tasks_(self) -> list[str]:
        """Tasks seen so far, in order."""
        return list(self.model.tasks_)

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """One update of the model."""
        self.model.partial_fit(x, y, task=task)
        return self

    def predict(self, x: FloatArray, task: str | None = None) -> Array:
        """The most probable label."""
        return np.asarray(self.model.predict(x, task=task))

    def predict_proba(self, x: FloatArray, task: str | None = None) -> FloatArray:
        """p(y | x) or p(y | x, t), columns as in ``classes_``."""
        return np.asarray(self.model.predict_proba(x, task=task))

    def predict_task_proba(self, x: FloatArray) -> FloatArray:
        """p(t | x), columns as in ``tasks_``."""
        return np.asarray(self.model.predict_task_proba(x))

    def score_samples(self, x: FloatArray) -> FloatArray:
        """log p(x)."""
        return np.asarray(self.model.score_samples(x))

    def typicality(self, x: FloatArray) -> FloatArray:
        """Level-set p-value."""
        return np.asarray(self.model.typicality(x))

    @property
    def floats_stored(self) -> int:
        """Numbers in the arrays of the learned state."""
        return count_numbers(self.model.model_)


class Oracle(Ours):
    """All data at once, afresh at every step: what forgetting is measured against."""

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """Keep the rows and fit everything kept."""
        self.kept = [*getattr(self, "kept", []), (x, y, np.full(len(y), task))]
        rows, labels, tasks = (np.concatenate(parts) for parts in zip(*self.kept, strict=True))
        self.model.fit(rows, labels, task=tasks)
        return self

    @property
    def floats_stored(self) -> int:
        """The learned state and every row."""
        return super().floats_stored + sum(rows.size for rows, _, _ in self.kept)


def count_numbers(value: object) -> int:
    """Numbers in all tensors and arrays of a dataclass, module, mapping or sequence."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, torch.nn.Module):
        return sum(map(count_numbers, value.state_dict().values()))
    if dataclasses.is_dataclass(value):
        return sum(count_numbers(getattr(value, f.name)) for f in dataclasses.fields(value))
    if isinstance(value, dict):
        return sum(map(count_numbers, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(count_numbers, value))
    return 0


def default(**settings: Any) -> Ours:
    """The default recipe."""
    return Ours("default", **settings)


def paper(**settings: Any) -> Ours:
    """The recipe of the paper."""
    return Ours("paper", **settings)


def oracle(**settings: Any) -> Oracle:
    """The default recipe with all data at hand."""
    return Oracle("default", **settings)
