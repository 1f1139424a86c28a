"""One update as an optimisation problem: which laws score which rows, and the held-back score."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from clbruno.config import Recipe
from clbruno.core.cells import CellLatent, ClassLatent, TaskLatent
from clbruno.core.moments import Moments
from clbruno.learn.batch import ROWS, Batch
from clbruno.learn.objective import Laws, functional, likelihood, retention, temperature_of
from clbruno.learn.replay import Replay, Teacher
from clbruno.learn.student import Student
from clbruno.registry import Registry

Law = TypeVar("Law")

SCORE_ROWS = 512
"""Replayed rows behind a held-back score."""


def moments_of(student: Student, batch: Batch, *, full: bool) -> dict[int, Moments]:
    """The statistics of each cell's rows under the student's flow, in one streaming pass."""
    return {
        cell: Moments.stream(
            (
                student.z_of(x, torch.full((len(x),), cell, dtype=torch.long))
                for x in batch.of_cell(cell)
            ),
            dim=batch.x.shape[1],
            full=full,
        )
        for cell in batch.cells
    }


@dataclass
class Increment:
    """New data, the teacher if there is one, and the student between them.

    Attributes:
        recipe: the numbers.
        registry: names, the new ones included.
        student: what is trained.
        base: the latent before the new data; empty at the first update.
        new: rows to learn from.
        held: rows to score on.
        teacher: the old model; None at the first update.
        rng: order of the rows.
        generator: of the pseudo-data.
    """

    recipe: Recipe
    registry: Registry
    student: Student
    base: TaskLatent | ClassLatent
    new: Batch
    held: Batch
    teacher: Teacher | None
    rng: np.random.Generator
    generator: torch.Generator

    def __post_init__(self) -> None:
        cells = self.registry.task_of_cell if self.recipe.latent == "task" else range(10**9)
        groups = [cells[cell] for cell in range(len(self.registry.cells))]
        self._group = torch.tensor(groups)

    @cached_property
    def _like(self) -> Tensor:
        return next(iter(self.student.parameters()))

    @cached_property
    def _old_laws(self) -> Laws:
        return self._cast(self._laws_before())

    @cached_property
    def _exam(self) -> Replay | None:
        return self.teacher.draw(self.generator) if self.teacher else None

    def losses(self) -> Iterator[Tensor]:
        """(L + alpha_1 L' + alpha_2 R) per number of the new rows, eq. 5 and 8, step by step."""
        fixed = None if self.recipe.latent == "task" else self._laws_of_cells()
        for x, cell in self.new.shuffled(self.recipe.batch_size, self.rng):
            laws = self._laws_of_tasks() if fixed is None else fixed
            x, cell = x.to(self._like), cell.to(self._like.device)
            context = self.student.context(cell)
            loss = likelihood(self.student.flow, x, context, self._group_of(cell), laws)
            if self.teacher is not None:
                loss = loss + self._regularisers(
                    self._cast_replay(self.teacher.draw(self.generator))
                )
            yield loss / x.numel()

    def score(self) -> float:
        """How well the present student answers on the held-back rows; lower is better.

        Task latent: the loss itself, each held-back row given all training rows. Class latent:
        the log-loss of p(cell | x) at its best temperature, on held-back and on replayed rows.
        """
        latent = self.latent_with(self.moments(self.new))
        if isinstance(latent, TaskLatent):
            return self._held_likelihood(latent)
        loss = self._held_log_loss(latent, *self._held_rows())
        if self._exam is not None:
            loss += self.recipe.alpha_1 * self._held_log_loss(latent, self._exam.x, self._exam.cell)
        return loss

    def moments(self, batch: Batch) -> dict[int, Moments]:
        """The statistics of a batch under the present student."""
        return moments_of(self.student, batch, full=self.base.full)

    def latent_with(self, new: Mapping[int, Moments]) -> TaskLatent | ClassLatent:
        """The latent after learning these statistics, with the covariances of the student."""
        base = self.base
        if isinstance(base, TaskLatent):
            assert self.student.covariances is not None
            with torch.no_grad():
                nu, rho = self.student.covariances()
            base = base.with_covariances(nu.double().cpu(), rho.double().cpu())
        return base.learned(new, self.registry.task_of_cell)

    def _regularisers(self, replay: Replay) -> Tensor:
        context = self.student.context(replay.cell)
        group = self._group_of(replay.cell)
        flow, recipe = self.student.flow, self.recipe
        total = recipe.alpha_1 * retention(flow, replay, context, group, self._old_laws)
        return total + recipe.alpha_2 * functional(flow, replay, context)

    def _laws_before(self) -> Laws:
        """The predictive law of every group that the teacher knows."""
        if isinstance(self.base, TaskLatent):
            return dict(enumerate(self.base.predictive))
        return dict(enumerate(self.base.laws)) if self.base.moments else {}

    def _laws_of_tasks(self) -> Laws:
        """Known tasks given what was seen of them; new tasks by the covariances being trained."""
        assert isinstance(self.base, TaskLatent)
        assert self.student.covariances is not None
        nu, rho = self.student.covariances()
        known = len(self.base.moments)
        latent = self.base.with_covariances(nu, rho)
        new = {task: latent.prior(task) for task in range(known, len(self.registry.tasks))}
        return {**self._old_laws, **new}

    def _laws_of_cells(self) -> Laws:
        """Known cells given what was seen of them; new cells by the prior pooled over all.

        The pooled covariance is that of the present student: at its own maximum a pooled
        quantity may be held fixed without changing the gradient of the likelihood.
        """
        latent = self.latent_with(self.moments(self.new))
        assert isinstance(latent, ClassLatent)
        new = {
            cell: latent.blank(latent.task_of_cell[cell])
            for cell in self.new.cells
            if cell not in self._old_laws
        }
        return {**self._old_laws, **self._cast(new)}

    def _held_rows(self) -> tuple[Tensor, Tensor]:
        batch = self.held if len(self.held) else self.new
        return batch.take(np.arange(min(len(batch), 4 * ROWS)))

    def _held_likelihood(self, latent: TaskLatent) -> float:
        x, cell = self._held_rows()
        x, cell = x.to(self._like), cell.to(self._like.device)
        laws = self._cast(dict(enumerate(latent.predictive)))
        with torch.no_grad():
            context = self.student.context(cell)
            rows = Replay(x, x, cell)
            loss = (
                retention(self.student.flow, rows, context, self._group_of(cell), laws) / x.numel()
            )
            if self._exam is not None:
                loss = (
                    loss + self._regularisers(self._cast_replay(self._exam)) / self._exam.x.numel()
                )
        return float(loss)

    def _held_log_loss(self, latent: CellLatent, x: Tensor, cell: Tensor) -> float:
        z = self.student.z_of(x, cell)
        log_prob = latent.log_prob(z, range(len(self.registry.cells)))
        return temperature_of(log_prob, cell)[1]

    def _group_of(self, cell: Tensor) -> Tensor:
        return self._group.to(cell.device)[cell]

    def _cast_replay(self, replay: Replay) -> Replay:
        like = self._like
        return Replay(replay.z.to(like), replay.x.to(like), replay.cell.to(like.device))

    def _cast(self, laws: Mapping[int, Law]) -> dict[int, Law]:
        """The laws in the precision and on the device of the student."""
        return {group: _to(law, lambda t: t.to(self._like)) for group, law in laws.items()}


def _to(law: Law, move: Callable[[Tensor], Tensor]) -> Law:
    tensors = {
        field.name: move(getattr(law, field.name))
        for field in fields(law)  # type: ignore[arg-type]
        if isinstance(getattr(law, field.name), Tensor)
    }
    return replace(law, **tensors)  # type: ignore[type-var]
