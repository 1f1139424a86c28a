"""CL-BRUNO behind the protocol of the rivals, without the scikit-learn skin."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from benchmarks.stream import Array, FloatArray
from clbruno.config import recipe as named
from clbruno.core.conformal import typicality
from clbruno.core.model import Model, chunks_of
from clbruno.core.posterior import Posterior
from clbruno.data.front import ImageFront
from clbruno.learn.engine import Lesson, learn

QUICK = {"max_epochs": 2}
QUICK_PAPER = {"max_epochs": 2, "couplings": 2, "hidden": 32}


class Ours:
    """What ``clbruno.CLBrunoClassifier`` computes, from the parts beneath it.

    Those need torch and numpy alone, and here the flow also answers on the device.
    """

    joint: ClassVar[bool] = False

    def __init__(self, recipe: str, seed: int = 0, device: str = "cpu", **settings: Any) -> None:
        self.recipe = named(recipe, **settings)
        self.seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.device = torch.device(device)
        self.model: Model | None = None

    @property
    def classes_(self) -> Array:
        """Labels seen so far, as they came."""
        return np.array(self._answering.registry.labels)

    @property
    def tasks_(self) -> list[str]:
        """Tasks seen so far, as they came."""
        return [str(task) for task in self._answering.registry.tasks]

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """One update of the model."""
        return self._learn(self.model, x, y, [task] * len(y))

    def predict(self, x: FloatArray, task: str | None = None) -> Array:
        """The most probable label."""
        return self.classes_[self.predict_proba(x, task).argmax(axis=1)]

    def predict_proba(self, x: FloatArray, task: str | None = None) -> FloatArray:
        """p(y | x) or p(y | x, t), columns as in ``classes_``."""
        names = self._answering.registry

        def answer(posterior: Posterior) -> Tensor:
            if task is None:
                return posterior.log_label().exp()
            known = torch.full((len(posterior.log_likelihood),), names.task_index(task))
            return posterior.log_label_in(known, len(names.labels)).exp()

        return self._ask(x, answer)

    def predict_task_proba(self, x: FloatArray) -> FloatArray:
        """p(t | x), columns as in ``tasks_``."""
        return self._ask(x, lambda posterior: posterior.log_task().exp())

    def score_samples(self, x: FloatArray) -> FloatArray:
        """log p(x)."""
        return self._ask(x, Posterior.log_density)

    def typicality(self, x: FloatArray) -> FloatArray:
        """p-value, against rows held back, of the task that each row is most typical of."""
        model = self._answering

        def answer(posterior: Posterior) -> Tensor:
            return typicality(model, posterior.log_evidence(), model.levels).amax(dim=1)

        return self._ask(x, answer)

    def sample(self, rows: int, task: str) -> tuple[FloatArray, Array]:
        """Rows and labels drawn from what was learned of a task."""
        model = self._answering
        generator = torch.Generator().manual_seed(self.seed)
        cells = model.draw(rows, task, None, generator)
        labels = self.classes_[[model.registry.label_of_cell[cell] for cell in cells.tolist()]]
        return model.sample(cells, generator).numpy(), labels

    @property
    def floats_stored(self) -> int:
        """Numbers in the arrays of the learned state."""
        return count_numbers(self.model)

    def _learn(self, old: Model | None, x: FloatArray, y: Array, tasks: list[str]) -> Self:
        lesson = Lesson(self._seen(x), tasks, y.tolist(), self.recipe, self.seed, self.device)
        self.model = learn(old, lesson, lambda epoch: None)
        self._answering = self.model.placed(self.device)
        return self

    def _seen(self, x: FloatArray) -> FloatArray:
        shape = self.recipe.image_shape
        return x if shape is None else ImageFront(shape)(x)

    def _ask(self, x: FloatArray, question: Callable[[Posterior], Tensor]) -> FloatArray:
        rows = torch.from_numpy(np.array(self._seen(x), dtype=np.float64))
        parts = [question(self._answering.posterior(rows[part])) for part in chunks_of(len(rows))]
        return torch.cat(parts).numpy()


class OnImages(Ours):
    """Behind the fixed front, for rows that are square images."""

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """One update of the model."""
        side = math.isqrt(x.shape[1])
        self.recipe = self.recipe.with_overrides(image_shape=(side, side))
        return super().partial_fit(x, y, task)


class Oracle(Ours):
    """All data at once, afresh at every step: what forgetting is measured against."""

    def partial_fit(self, x: FloatArray, y: Array, task: str) -> Self:
        """Keep the rows and fit everything kept."""
        self.kept = [*getattr(self, "kept", []), (x, y, [task] * len(y))]
        rows, labels = (np.concatenate([part[i] for part in self.kept]) for i in (0, 1))
        return self._learn(None, rows, labels, [task for part in self.kept for task in part[2]])

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


def on_images(**settings: Any) -> OnImages:
    """The default recipe behind the fixed front for images."""
    return OnImages("default", **settings)


def oracle(**settings: Any) -> Oracle:
    """The default recipe with all data at hand."""
    return Oracle("default", **settings)


def paper_oracle(**settings: Any) -> Oracle:
    """The recipe of the paper with all data at hand."""
    return Oracle("paper", **settings)
