"""One update as an optimisation problem: which laws score which rows, and the held-back score."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from clbruno.config import Recipe
from clbruno.core.cells import ClassLatent, TaskLatent
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments
from clbruno.errors import TrainingError
from clbruno.learn.batch import Batch
from clbruno.learn.distributed import Group
from clbruno.learn.exact import exact_moments
from clbruno.learn.laws import Laws, PooledLaws, StackedLaws
from clbruno.learn.objective import functional, likelihood, retention
from clbruno.learn.replay import Replay, Teacher
from clbruno.learn.rows import Jitter, Rows
from clbruno.learn.student import Student
from clbruno.registry import Registry

HELD_ROWS = 16_384
"""Rows behind a held-back score."""


def moments_of(student: Student, batch: Batch, *, full: bool) -> dict[int, Moments]:
    """The statistics of each cell's rows under the student's flow, in one streaming pass.

    In a process group those of all ranks' rows, free of rounding where no weight is trained.
    """
    dim, group = batch.x.shape[1], batch.group
    chunks = {cell: partial(_latents, student, batch, cell) for cell in batch.cells}
    if full and not group.alone and next(student.parameters(), None) is None:
        counts = np.bincount(batch.cell[batch.rows]).tolist()
        return {at: exact_moments(rows, counts[at], dim, group) for at, rows in chunks.items()}
    seen = {at: Moments.stream(rows(), dim=dim, full=full) for at, rows in chunks.items()}
    return group.merged(seen)


def _latents(student: Student, batch: Batch, cell: int) -> Iterator[Tensor]:
    for x in filter(len, batch.of_cell(cell)):
        yield student.z_of(x, torch.full((len(x),), cell, dtype=torch.long))


def refuse_overflow(*statistics: Tensor) -> None:
    """An error where statistics of a batch are no numbers any more."""
    if not all(bool(each.isfinite().all()) for each in statistics):
        raise TrainingError(
            "the statistics of this batch overflow; the model is unchanged. Its values are too far "
            "from those of the first batch: check their unit, or start a new model with fit"
        )


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

    @property
    def recordable(self) -> bool:
        """The class latent's laws follow the student from epoch to epoch; ranks must meet."""
        return self.recipe.latent == "task" and self._ranks.alone

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        """New rows and their cells, and pseudo-data where there is a teacher, step by step."""
        if isinstance(self.base, ClassLatent):
            self._laws_of_epoch = self._laws_of_cells()
        for new in self._new.shuffled(self.recipe.batch_size, self.rng, self._jitter):
            yield new if self._pseudo_data is None else (*new, *next(self._pseudo_data))

    def loss(self, *inputs: Tensor) -> Tensor:
        """(L + alpha_1 L' + alpha_2 R) per number of the new rows, eq. 5 and 8."""
        x, cell, *pseudo = inputs
        laws = self._laws_of_tasks() if isinstance(self.base, TaskLatent) else self._laws_of_epoch
        flow = self.student.flow
        if not pseudo:
            z, ladj = flow(x, self.student.context(cell))
            total = likelihood(z, ladj, self._group.index_select(0, cell), laws)
            return total / self._ranks.total(x.numel())
        replay = Replay(*pseudo)
        both = torch.cat((cell, replay.cell))
        z, ladj = flow(torch.cat((x, replay.x)), self.student.context(both))
        sizes, group = (len(x), len(replay.x)), self._group.index_select(0, both)
        (z, z_old), (ladj, ladj_old), (group, group_old) = (
            part.split(sizes) for part in (z, ladj, group)
        )
        total = likelihood(z, ladj, group, laws)
        total = total + self._regularisers(z_old, ladj_old, group_old, replay)
        return total / self._ranks.total(x.numel())

    def score(self) -> float:
        """The loss itself on held-back rows, each given all training rows, and on pseudo-data."""
        x, cell = self._held
        with torch.no_grad():
            laws = self._laws_of_held()
            z, ladj = self.student.flow(x, self.student.context(cell))
            loss = self._mean(retention(z, ladj, self._group[cell], laws), x)
            if self._exam is not None:
                exam = self._exam
                z, ladj = self.student.flow(exam.x, self.student.context(exam.cell))
                terms = self._regularisers(z, ladj, self._group[exam.cell], exam)
                loss += self._mean(terms, exam.x)
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

    def _regularisers(self, z: Tensor, ladj: Tensor, group: Tensor, replay: Replay) -> Tensor:
        """alpha_1 L' + alpha_2 R, given the pseudo-data's present latents."""
        total = self.recipe.alpha_1 * retention(z, ladj, group, self._old_laws)
        if not self.recipe.alpha_2:
            return total
        context = self.student.context(replay.cell)
        return total + self.recipe.alpha_2 * functional(self.student.flow, replay, context)

    @property
    def _ranks(self) -> Group:
        return self.new.group

    @cached_property
    def _like(self) -> Tensor:
        """Tells the precision and the device of what is trained."""
        return next(iter(self.student.parameters()))

    @cached_property
    def _group(self) -> Tensor:
        """The exchangeable group of each cell."""
        cells = range(len(self.registry.cells))
        tasks = self.registry.task_of_cell if self.recipe.latent == "task" else cells
        return torch.tensor(tasks, device=self._like.device)

    @cached_property
    def _new(self) -> Rows:
        return Rows(self.new, self._like)

    @cached_property
    def _held(self) -> tuple[Tensor, Tensor]:
        batch = self.held if len(self.held) else self.new
        return Rows(batch, self._like).first(HELD_ROWS, self._jitter)

    @cached_property
    def _jitter(self) -> Jitter | None:
        if not self.recipe.jitter:
            return None
        seed = int(self.rng.integers(2**62))
        return Jitter(self.recipe.jitter, torch.Generator().manual_seed(seed))

    @cached_property
    def _pseudo_data(self) -> Iterator[Replay] | None:
        return self.teacher.draws(self.generator) if self.teacher else None

    @cached_property
    def _exam(self) -> Replay | None:
        return self.teacher.draw(self.generator) if self.teacher else None

    @cached_property
    def _old_laws(self) -> Laws:
        """The predictive law of every group that the teacher knows."""
        if isinstance(self.base, TaskLatent):
            assert self.base.moments
            return StackedLaws(ExchangeableGaussian.stack(self.base.predictive).to(self._like))
        base = self.base
        mean = torch.stack([seen.mean for seen in base.moments])
        return PooledLaws.of(mean, base.metric(base.pooled), self._like)

    @cached_property
    def _dof(self) -> Tensor:
        """The degrees of freedom of the new tasks' stack."""
        assert self.student.covariances is not None
        dof = torch.tensor(self.recipe.dof, dtype=self._like.dtype)
        shape = (len(self.student.covariances.raw_rho), 1)
        return dof if dof.isinf() else dof.to(self._like.device).expand(shape)

    def _laws_of_tasks(self) -> Laws:
        """Known tasks given what was seen of them; new tasks by the covariances being trained."""
        assert self.student.covariances is not None
        rho, delta = self.student.covariances.new()
        new = ExchangeableGaussian(torch.zeros_like(rho), rho, delta, self._dof)
        if not self.base.moments:
            return StackedLaws(new, self._ranks)
        assert isinstance(self._old_laws, StackedLaws)
        return StackedLaws(self._old_laws.stack.joined(new), self._ranks)

    def _laws_of_cells(self) -> Laws:
        """Every cell around its mean, with the covariance pooled over known and new rows.

        Means and covariance are those of the present student: at their own maximum they may be
        held fixed without changing the gradient of the likelihood.
        """
        assert isinstance(self.base, ClassLatent)
        count, mean, scatter = self._new.pooled(self.student, len(self.registry.cells))
        refuse_overflow(mean, scatter)
        for cell, seen in enumerate(self.base.moments):
            mean[cell] += seen.count / (seen.count + count[cell]) * (seen.mean - mean[cell])
        degrees = self.base.degrees + float((count - 1).clamp(min=0).sum())
        pooled = self.base.pooled_with(scatter, degrees)
        return PooledLaws.of(mean, self.base.metric(pooled), self._like)

    def _laws_of_held(self) -> Laws:
        """The laws of held-back rows, given all that was learned and all training rows."""
        if isinstance(self.base, ClassLatent):
            return self._laws_of_cells()
        latent = self.latent_with(self._new.moments(self.student))
        assert isinstance(latent, TaskLatent)
        return StackedLaws(ExchangeableGaussian.stack(latent.predictive).to(self._like))

    def _mean(self, total: Tensor, x: Tensor) -> float:
        """A sum over rows, per number of these rows, over all ranks."""
        return float(self._ranks.sum(total)) / self._ranks.total(x.numel())
