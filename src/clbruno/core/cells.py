"""The latent of a whole model: one exchangeable sequence per task (paper) or per cell (ours)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from clbruno.core.conjugate import NormalInverseWishart
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments
from clbruno.core.stacked import StackedT


class CellLatent(Protocol):
    """Predictive laws of z for every (task, label) cell, updated by adding moments."""

    full: bool
    """Whether cells keep full scatter matrices."""

    def log_prob(self, z: Tensor, cells: Sequence[int]) -> Tensor:
        """log p(z | cell, all that was learned), shape `(n, len(cells))`."""
        ...

    def sample(self, cells: Tensor, generator: torch.Generator) -> Tensor:
        """One draw of z for each entry of `cells`."""
        ...

    def learned(self, new: Mapping[int, Moments], task_of_cell: Sequence[int]) -> Self:
        """The latent with new samples of some cells added; unknown cells are appended."""
        ...

    def without(self, cells: Sequence[int], task_of_cell: Sequence[int]) -> Self:
        """The latent with some cells' statistics dropped."""
        ...


@dataclass(frozen=True)
class TaskLatent:
    """The paper's latent: per task and dimension an exchangeable Gaussian, shared by its labels.

    Attributes:
        nu: variance of a sample, shape `(tasks, D)`.
        rho: covariance of two samples of the task, shape `(tasks, D)`.
        moments: what was seen of each task.
        task_of_cell: task of each cell.
        dof: degrees of freedom of the Student-t option; inf for the Gaussian.
    """

    nu: Tensor
    rho: Tensor
    moments: tuple[Moments, ...]
    task_of_cell: tuple[int, ...]
    dof: float = math.inf

    full = False

    def prior(self, task: int) -> ExchangeableGaussian:
        """The law of a task before any sample."""
        return ExchangeableGaussian.prior(self.nu[task], self.rho[task], self.dof)

    @cached_property
    def predictive(self) -> tuple[ExchangeableGaussian, ...]:
        """The law of each task given what was seen of it."""
        return tuple(self.prior(task).given(seen) for task, seen in enumerate(self.moments))

    def log_prob(self, z: Tensor, cells: Sequence[int]) -> Tensor:
        """The predictive of each cell's task."""
        by_task = {task: self.predictive[task].log_prob(z) for task in self._tasks(cells)}
        return torch.stack([by_task[self.task_of_cell[cell]] for cell in cells], dim=-1)

    def sample(self, cells: Tensor, generator: torch.Generator) -> Tensor:
        """Draws from the predictive of each cell's task."""
        tasks = torch.tensor(self.task_of_cell)[cells]
        laws = ExchangeableGaussian.stack(self.predictive).to(generator.device)
        return laws.at(tasks.to(generator.device)).sample(len(cells), generator)

    def learned(self, new: Mapping[int, Moments], task_of_cell: Sequence[int]) -> "TaskLatent":
        """Add the moments of the new samples to those of their tasks."""
        nothing = Moments.empty(self.nu.shape[1], full=False)
        moments = [*self.moments, *[nothing] * (len(self.nu) - len(self.moments))]
        for cell, seen in new.items():
            moments[task_of_cell[cell]] = moments[task_of_cell[cell]].merge(seen)
        return replace(self, moments=tuple(moments), task_of_cell=tuple(task_of_cell))

    def with_covariances(self, nu: Tensor, rho: Tensor) -> "TaskLatent":
        """The latent with other covariance parameters, one row per task known or about to be."""
        return replace(self, nu=nu, rho=rho)

    def without(self, cells: Sequence[int], task_of_cell: Sequence[int]) -> "TaskLatent":
        """Drop the tasks that lose all of their cells; a task's statistics are one sum."""
        kept = [cell for cell in range(len(self.task_of_cell)) if cell not in set(cells)]
        tasks = list(dict.fromkeys(self.task_of_cell[cell] for cell in kept))
        return replace(
            self,
            nu=self.nu[tasks],
            rho=self.rho[tasks],
            moments=tuple(self.moments[task] for task in tasks),
            task_of_cell=tuple(task_of_cell),
        )

    def _tasks(self, cells: Sequence[int]) -> list[int]:
        return sorted({self.task_of_cell[cell] for cell in cells})


@dataclass(frozen=True)
class Thin:
    """A cell's statistics in few numbers: what its scatter has beyond the pooled covariance P.

        scatter = n P + factor factor'

    Attributes:
        count: n.
        mean: shape `(D,)`.
        factor: shape `(D, rank)`.
    """

    count: float
    mean: Tensor
    factor: Tensor


@dataclass(frozen=True)
class ClassLatent:
    """Ours: each cell an exchangeable sequence of its own, with covariances pooled over the cells.

    The law of cell k is normal-inverse-Wishart around the pooled within-cell covariance P and the
    mean m0 of its task, with strengths v0 and kappa; its predictive is a multivariate t of mean
    mean_k and covariance (1 + 1 / (kappa + n_k)) Sigma_k, with

        mean_k  = (kappa m0 + n_k zbar_k) / (kappa + n_k)
        W_k     = S_k + kappa n_k / (kappa + n_k) gap gap'
        Sigma_k = (1 - s) (P + F (W_k - n_k P) F / (v0 + n_k)) + s I
        F       = P (P + tau I)^(-1),   tau = blur s

    s, the ridge, is the covariance that the latent would have had with noise of that share added.
    F is the Wiener filter of a signal with covariance P under noise of variance tau: where the
    cells hardly vary, a cell's own covariance is mostly error, and the pooled one is kept. v0 to
    infinity is linear discriminant analysis; v0 to 0 with tau = 0 the quadratic one.

    Attributes:
        moments: what was seen of each cell, in full or, past the memory limit, thin.
        within: sum of the cells' scatters, exact whatever the cells keep, shape `(D, D)`.
        task_of_cell: task of each cell.
        strength: v0, how many samples the pooled covariance is worth to each cell.
        kappa: how many samples the task's mean is worth to each cell.
        ridge: s, in (0, 1).
        blur: tau as a multiple of s; 0 for no filter.
        memory: most numbers that the cells may keep together.
        unit: how many samples the unit covariance is worth to the pooled one.
    """

    moments: tuple[Moments | Thin, ...]
    within: Tensor
    task_of_cell: tuple[int, ...]
    strength: float
    kappa: float
    ridge: float
    blur: float = 0.0
    memory: int = 2_000_000
    unit: float = 1.0

    full = True

    @property
    def whole(self) -> bool:
        """Whether every cell keeps its full scatter."""
        return all(isinstance(seen, Moments) for seen in self.moments)

    @cached_property
    def pooled(self) -> Tensor:
        """P = (sum_k S_k + unit I) / (sum_k (n_k - 1) + unit), shape `(D, D)`."""
        return self.pooled_with(torch.zeros_like(self.within), self.degrees)

    def pooled_with(self, scatter: Tensor, degrees: float) -> Tensor:
        """P with more scatter within cells, of so many degrees of freedom together."""
        eye = torch.eye(len(self.within), dtype=torch.float64)
        return (self.within + scatter + self.unit * eye) / (degrees + self.unit)

    def metric(self, pooled: Tensor) -> Tensor:
        """M = (1 - s) P + s I."""
        eye = torch.eye(len(pooled), dtype=torch.float64)
        return (1 - self.ridge) * pooled + self.ridge * eye

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the pooled scatter, sum_k (n_k - 1)."""
        return sum(max(seen.count - 1, 0.0) for seen in self.moments)

    @cached_property
    def task_mean(self) -> Tensor:
        """m0 of each task: the mean of its samples, shape `(tasks, D)`."""
        tasks = torch.tensor(self.task_of_cell)
        count = torch.tensor([seen.count for seen in self.moments], dtype=torch.float64)
        mean = torch.stack([seen.mean for seen in self.moments])
        shape = (int(tasks.max()) + 1, mean.shape[1])
        total = torch.zeros(shape, dtype=torch.float64).index_add_(0, tasks, count[:, None] * mean)
        samples = torch.zeros(shape[0], dtype=torch.float64).index_add_(0, tasks, count)
        return total / samples[:, None]

    def seen(self, cell: int) -> Moments:
        """The statistics of a cell in full."""
        moments = self.moments[cell]
        if isinstance(moments, Moments):
            return moments
        scatter = moments.count * self.pooled + moments.factor @ moments.factor.mT
        return Moments(moments.count, moments.mean, scatter)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor, Tensor]:
        """The eigenvalues of M = (1 - s) P + s I and of F, and the eigenvectors of both."""
        values, vectors = torch.linalg.eigh(self.pooled)
        tau = self.blur * self.ridge
        return (1 - self.ridge) * values + self.ridge, values / (values + tau), vectors

    @cached_property
    def filter(self) -> Tensor:
        """F = P (P + tau I)^(-1), shape `(D, D)`."""
        _, gain, vectors = self._spectrum
        return (vectors * gain) @ vectors.mT

    def beyond(self, cell: int) -> Tensor:
        """F (S_k - n_k P) F: what a cell varies beyond the pooled covariance, filtered."""
        seen = self.moments[cell]
        if isinstance(seen, Thin):
            factor = self.filter @ seen.factor
            return factor @ factor.mT
        return self._through(seen.scatter - seen.count * self.pooled)

    def _through(self, scatter: Tensor) -> Tensor:
        """F scatter F."""
        return self.filter @ scatter @ self.filter

    def law(self, cell: int) -> NormalInverseWishart:
        """The law of a cell given what was seen of it."""
        return self._filtered(self._prior(self.task_of_cell[cell]).given(self.seen(cell)))

    def blank(self, task: int) -> NormalInverseWishart:
        """The law of a cell of a task before any sample of that cell."""
        return self._filtered(self._prior(task))

    def _prior(self, task: int) -> NormalInverseWishart:
        dim = len(self.within)
        return NormalInverseWishart(
            self.task_mean[task], self.kappa, self.strength + dim + 1, self.strength * self.pooled
        )

    def _filtered(self, law: NormalInverseWishart) -> NormalInverseWishart:
        """The law with the scale (1 - s) (v P + F (scale - v P) F) + s v I,  v = v0 + n_k."""
        dim = len(self.within)
        own = law.dof - dim - 1
        common = own * self.pooled
        scale = common + self._through(law.scale - common)
        unit = own * torch.eye(dim, dtype=torch.float64)
        return replace(law, scale=(1 - self.ridge) * scale + self.ridge * unit)

    @cached_property
    def laws(self) -> tuple[NormalInverseWishart, ...]:
        """The law of every cell."""
        return tuple(self.law(cell) for cell in range(len(self.moments)))

    def log_prob(self, z: Tensor, cells: Sequence[int]) -> Tensor:
        """The predictive of each cell, a multivariate t."""
        value = z.new_empty((len(z), len(cells)))
        for place, stack in self._stacks:
            columns = [column for column, cell in enumerate(cells) if cell in place]
            if columns:
                mine = stack.of([place[cells[column]] for column in columns])
                value[:, columns] = mine.log_prob(z)
        return value

    @cached_property
    def _stacks(self) -> list[tuple[dict[int, int], StackedT]]:
        """The cells in full and the thin ones: the place of each in a stack, and the stack."""
        thin = [cell for cell, seen in enumerate(self.moments) if isinstance(seen, Thin)]
        full = [cell for cell, seen in enumerate(self.moments) if isinstance(seen, Moments)]
        stacks = []
        if full:
            stacks.append((full, StackedT.full([self.law(cell) for cell in full])))
        if thin:
            stacks.append((thin, self._thin_stack(thin)))
        return [({cell: at for at, cell in enumerate(cells)}, stack) for cells, stack in stacks]

    def _thin_stack(self, cells: Sequence[int]) -> StackedT:
        """The predictives of thin cells, from what each has beyond the common matrix M.

        Psi_k = (v0 + n_k) M + U U',   M = (1 - s) P + s I
        U U' = (1 - s) F (factor factor' + kappa n_k / (kappa + n_k) gap gap') F
        """
        thin = [seen for seen in self.moments if isinstance(seen, Thin)]
        dim, rank = len(self.within), max(seen.factor.shape[1] for seen in thin)
        prior = self.task_mean[[self.task_of_cell[cell] for cell in cells]]
        seen_mean = torch.stack([seen.mean for seen in thin])
        n = torch.tensor([[seen.count] for seen in thin], dtype=torch.float64)
        kappa, own = self.kappa + n, self.strength + n
        factors = torch.zeros((len(thin), dim, rank + 1), dtype=torch.float64)
        for at, seen in enumerate(thin):
            factors[at, :, : seen.factor.shape[1]] = seen.factor
        factors[:, :, rank] = (self.kappa * n / kappa).sqrt() * (seen_mean - prior)
        return StackedT.low_rank(
            means=(self.kappa * prior + n * seen_mean) / kappa,
            kappa=kappa[:, 0],
            df=own[:, 0] + 2,
            metric=self.metric(self.pooled),
            own=own[:, 0],
            factors=math.sqrt(1 - self.ridge) * (self.filter @ factors),
        )

    def sample(self, cells: Tensor, generator: torch.Generator) -> Tensor:
        """Draws from the predictive of each cell."""
        z = self.within.new_empty((len(cells), len(self.within)))
        for cell in cells.unique().tolist():
            here = cells == cell
            z[here] = self.laws[cell].sample(int(here.sum()), generator)
        return z

    def learned(self, new: Mapping[int, Moments], task_of_cell: Sequence[int]) -> "ClassLatent":
        """Add the moments of the new samples to those of their cells, within the memory limit."""
        moments, within = list(self.moments), self.within
        for cell, more in sorted(new.items()):
            if cell < len(moments):
                before = self.seen(cell)
                merged = before.merge(more)
                within = within + (merged.scatter - before.scatter)
                moments[cell] = merged
            else:
                within = within + more.scatter
                moments.append(more)
        grown = replace(
            self, moments=tuple(moments), within=within, task_of_cell=tuple(task_of_cell)
        )
        return grown.thinned()

    def moved(self, shift: Tensor, slope: Tensor, rest: Tensor) -> "ClassLatent":
        """The statistics of samples z of cell k that have become  z + c_k + B (z - m_k) + e.

        m_k <- m_k + c_k,  S_k <- (I + B) S_k (I + B)' + n_k R;  of a thin cell B moves the factor,
        and P the rest.

        Args:
            shift: c_k, shape `(cells, D)`.
            slope: B, shape `(D, D)`.
            rest: R, the covariance of e, shape `(D, D)`.
        """
        turn = torch.eye(len(slope), dtype=torch.float64) + slope
        moments: list[Moments | Thin] = []
        for seen, step in zip(self.moments, shift, strict=True):
            mean = seen.mean + step
            if isinstance(seen, Thin):
                moments.append(replace(seen, mean=mean, factor=turn @ seen.factor))
            else:
                scatter = turn @ seen.scatter @ turn.mT + seen.count * rest
                moments.append(replace(seen, mean=mean, scatter=scatter))
        within = turn @ self.within @ turn.mT + self.degrees * rest
        return replace(self, moments=tuple(moments), within=within)

    def thinned(self) -> "ClassLatent":
        """The same within the memory limit: where full scatters do not fit, thin ones.

        A factor keeps the directions in which the cell varies most beyond P, as the predictive
        sees it:  the largest eigenvalues of  M^(-1/2) F (S_k - n_k P) F M^(-1/2)
        """
        cells, dim = len(self.moments), len(self.within)
        if cells * dim * dim <= self.memory:
            return self
        rank = max(1, min(dim, self.memory // (cells * dim)))
        metric, gain, vectors = self._spectrum
        seen = gain * metric.rsqrt()
        unroot, root = (vectors * seen) @ vectors.mT, (vectors / seen) @ vectors.mT
        thin = []
        for moments in self.moments:
            if isinstance(moments, Thin):
                thin.append(replace(moments, factor=moments.factor[:, :rank]))
                continue
            beyond = unroot @ (moments.scatter - moments.count * self.pooled) @ unroot
            size, direction = torch.linalg.eigh(beyond)
            size, direction = size.flip(0)[:rank].clamp(min=0), direction.flip(1)[:, :rank]
            thin.append(Thin(moments.count, moments.mean, root @ (direction * size.sqrt())))
        return replace(self, moments=tuple(thin))

    def without(self, cells: Sequence[int], task_of_cell: Sequence[int]) -> "ClassLatent":
        """Drop the statistics of some cells.

        What a thin cell gave to the pooled scatter is known to its rank only; what the rest of it
        leaves behind stays, and what was taken too much is cut off at zero.
        """
        gone = set(cells)
        within = self.within
        for cell in gone:
            within = within - self.seen(cell).scatter
        if any(isinstance(self.moments[cell], Thin) for cell in gone):
            values, vectors = torch.linalg.eigh(within)
            within = (vectors * values.clamp(min=0)) @ vectors.mT
        kept = tuple(seen for cell, seen in enumerate(self.moments) if cell not in gone)
        return replace(self, moments=kept, within=within, task_of_cell=tuple(task_of_cell))
