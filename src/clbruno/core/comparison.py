"""Does an unlabelled batch look like a known task, and if not, in what does it differ?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clbruno.core.calibration import DENSITY, ENOUGH
from clbruno.core.cells import ClassLatent
from clbruno.core.model import Model, chunks_of
from clbruno.core.posterior import Posterior
from clbruno.registry import Name

NORMAL_95 = 1.96


@dataclass(frozen=True)
class Difference:
    """A feature whose mean over the batch is not what a task's classes predict.

    Attributes:
        feature: its name, or its position where features have no names.
        shift: batch minus expected, in standard deviations of a row.
        p_value: two-sided, for this feature alone.
    """

    feature: str
    shift: float
    p_value: float


@dataclass(frozen=True)
class Match:
    """How a batch compares with one task.

    Attributes:
        task: its name.
        share: mean of p(t | x) over the rows.
        interval: of the share, 95 %.
        p_location: exchangeability by the mean of every feature, given the most probable labels.
        p_density: exchangeability by the densities of the rows, given the same; None where too
            few rows were held back when the task was learned.
        p_value: of both together.
        differences: the features that differ most.
    """

    task: Name
    share: float
    interval: tuple[float, float]
    p_location: float
    p_density: float | None
    p_value: float
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Comparison:
    """How a batch compares with the tasks that were asked for.

    Attributes:
        rows: how many.
        matches: one per task.
        nearest: the task of the largest share.
    """

    rows: int
    matches: tuple[Match, ...]
    nearest: Name

    @property
    def p_value(self) -> float:
        """That the batch is exchangeable with the rows of the task that fits it best."""
        return max(match.p_value for match in self.matches)


def compare(
    model: Model, x: Tensor, tasks: Sequence[int], names: Sequence[str], shown: int = 10
) -> Comparison:
    """Compare the rows of `x` with each task, a chunk at a time."""
    log_likelihood = torch.cat([model.log_likelihood(x[part]) for part in chunks_of(len(x))])
    posterior = model.posterior_from(log_likelihood)
    share = posterior.log_task().exp()
    mean = share.mean(0)
    width = NORMAL_95 * share.std(0, correction=0) / math.sqrt(len(x))
    matches = []
    for task in tasks:
        cell = _cells(model, posterior, task)
        p_each, shift = location(model, x, cell)
        by_location = min(1.0, float(p_each.min()) * len(p_each))
        by_density = _density(model, posterior, task, cell)
        both = [by_location] if by_density is None else [by_location, by_density]
        order = p_each.argsort()[:shown].tolist()
        matches.append(
            Match(
                task=model.registry.tasks[task],
                share=float(mean[task]),
                interval=(
                    max(0.0, float(mean[task] - width[task])),
                    min(1.0, float(mean[task] + width[task])),
                ),
                p_location=by_location,
                p_density=by_density,
                p_value=min(1.0, len(both) * min(both)),
                differences=tuple(
                    Difference(names[at], float(shift[at]), float(p_each[at])) for at in order
                ),
            )
        )
    return Comparison(len(x), tuple(matches), model.registry.tasks[int(mean.argmax())])


def location(model: Model, x: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The p-value of every latent dimension's mean, and its shift in deviations of a row.

    With r_i = z_i - mean of the predictive of the cell of row i, w_k the share of cell k among
    the n rows, and n_k the samples learned of it:

        t = mean(r) / sqrt( s^2 (1 / n + sum_k w_k^2 / n_k) )

    s^2 is the larger of the variance of the r_i and of that which was learned: what the model's
    covariance is wrong by does not matter, nor does a feature that hardly varies in the batch.
    """
    rest = torch.cat([_residual(model, x[part], cell[part]) for part in chunks_of(len(x))])
    counts = torch.tensor(model.registry.counts, dtype=torch.float64)
    weight = torch.bincount(cell, minlength=len(counts)).double() / len(cell)
    variance = torch.maximum(rest.var(0, correction=0), _learned_variance(model, weight))
    spread = variance.sqrt().clamp(min=1e-300)
    shift = rest.mean(0) / spread
    t = shift.abs() / math.sqrt(1 / len(rest) + float((weight.square() / counts).sum()))
    return torch.erfc(t / math.sqrt(2)), shift


def _learned_variance(model: Model, weight: Tensor) -> Tensor:
    """The variance within the cells that was learned, in the shares of the batch."""
    latent = model.latent
    total = torch.zeros(model.dim, dtype=torch.float64)
    for cell in weight.nonzero()[:, 0].tolist():
        if isinstance(latent, ClassLatent):
            seen = latent.seen(cell)
            each = seen.scatter.diagonal() / max(seen.count, 1.0)
        else:
            law = latent.predictive[model.registry.task_of_cell[cell]]
            each = law.delta
        total += weight[cell] * each
    return total


def kolmogorov(ranks: Tensor, size: float) -> float:
    """The p-value that shares in [0, 1] are not smaller than draws from the uniform law.

        d = max ( F_n(u) - u ),   p = exp(-2 d^2 size)

    One-sided (Kolmogorov and Smirnov): a batch that is more usual than what was held back is no
    drift, and comes of densities that have moved since.

    Args:
        ranks: the shares.
        size: how many independent draws they are worth.
    """
    u = ranks.sort().values
    steps = torch.arange(1, len(u) + 1, dtype=torch.float64) / len(u)
    d = max(0.0, float((steps - u).max()))
    return math.exp(-2 * d * d * size)


def _cells(model: Model, posterior: Posterior, task: int) -> Tensor:
    """The most probable cell of each row within a task."""
    cells = torch.tensor(model.registry.cells_of_task(task))
    best: Tensor = cells[posterior.log_label_given_task()[:, cells].argmax(1)]
    return best


def _residual(model: Model, x: Tensor, cell: Tensor) -> Tensor:
    """z of each row less the mean of its cell's predictive."""
    latent = model.latent
    if isinstance(latent, ClassLatent):
        centre = torch.stack([law.mean for law in latent.laws])
    else:
        centre = torch.stack([latent.predictive[t].mean for t in model.registry.task_of_cell])
    rest: Tensor = model.latent_of(x, cell) - centre[cell]
    return rest


def _density(model: Model, posterior: Posterior, task: int, cell: Tensor) -> float | None:
    """Exchangeability by the rank of each row's density among held-back rows of its cell."""
    level = model.levels[task]
    score = (posterior.log_evidence()[:, task] - level.mean()) / level.std()
    everyone = model.calibration.of(model.registry.cells_of_task(task), DENSITY)
    if len(everyone) < ENOUGH:
        return None
    ranks = torch.empty(len(score), dtype=torch.float64)
    total = 0
    for at in cell.unique().tolist():
        own = model.calibration.of([at], DENSITY)
        kept = own if len(own) >= ENOUGH else everyone
        here = cell == at
        below = torch.searchsorted(kept, score[here].contiguous())
        ranks[here] = (below.double() + 0.5) / (len(kept) + 1)
        total += len(kept)
    return kolmogorov(ranks, len(ranks) * total / (len(ranks) + total))
