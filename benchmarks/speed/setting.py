"""The paper's CIFAR setting, as one update sees it, for the rows about training steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import data
from clbruno.config import Recipe, recipe
from clbruno.core.model import Model
from clbruno.learn.batch import Batch
from clbruno.learn.engine import Lesson, enrol, learn
from clbruno.learn.problem import Increment
from clbruno.learn.replay import Teacher
from clbruno.learn.student import Student

Arrays = dict[str, np.ndarray[Any, Any]]
CLASSES = 10


def features(folder: Path | None) -> Arrays:
    """CIFAR-100 features, or made ones of the same shape without a folder."""
    if folder is not None:
        found = data.read("cifar100_resnet18", folder)
        return {
            name: value.astype(np.float32 if value.ndim > 1 else int)
            for name, value in found.items()
        }
    rng = np.random.default_rng(0)
    made: Arrays = {}
    means = rng.normal(size=(100, 512))
    for part, each in (("train", 500), ("test", 100)):
        y = np.repeat(np.arange(100), each)
        made[f"y_{part}"] = y
        made[f"x_{part}"] = np.abs(means[y] + rng.normal(size=(len(y), 512))).astype(np.float32)
    return made


def batch_of(arrays: Arrays, number: int, part: str = "train") -> tuple[Any, Any]:
    """The rows and labels of ten classes."""
    y = arrays[f"y_{part}"]
    here = (y >= CLASSES * number) & (y < CLASSES * (number + 1))
    return arrays[f"x_{part}"][here], y[here]


def lesson(x: Any, y: Any, numbers: Recipe, device: str) -> Lesson:
    """One batch of the one task."""
    return Lesson(x, ["cifar"] * len(y), y.tolist(), numbers, 0, torch.device(device))


@dataclass(frozen=True)
class Setting:
    """A model of the first ten classes and the next ten to learn.

    Attributes:
        old: the model.
        x: new rows.
        y: their labels.
        recipe: the numbers to learn with.
        device: where.
    """

    old: Model
    x: Any
    y: Any
    recipe: Recipe
    device: str

    @classmethod
    def of(cls, arrays: Arrays, device: str, **numbers: Any) -> Setting:
        """The second batch of CIFAR-100 under the paper's recipe, after a short first one."""
        paper = recipe("paper", **numbers)
        short = paper.with_overrides(max_epochs=2)
        old = learn(None, lesson(*batch_of(arrays, 0), short, device), lambda epoch: None)
        return cls(old, *batch_of(arrays, 1), paper, device)

    def increment(self, *, replay: bool = True) -> Increment:
        """The update as a problem, afresh and the same every time."""
        there = torch.device(self.device)
        registry, cell = enrol(self.old.registry, ["cifar"] * len(self.y), self.y.tolist())
        batch = Batch(self.x, cell, np.arange(len(cell)), self.old.scaler)
        rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
        new, held = batch.split(0.1, rng)
        student = Student.of(self.old, registry, generator).to(there)
        teacher = Teacher(
            self.old.placed(there, torch.float32), self.recipe.replay, self.recipe.replay_per_task
        )
        return Increment(
            self.recipe,
            registry,
            student,
            self.old.latent,
            new,
            held,
            teacher if replay else None,
            rng,
            generator,
        )
