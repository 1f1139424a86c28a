"""Bayes' rule: from log p(x | t, y) of every cell to label, task and typicality (section 3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clbruno.core.calibration import PLAIN, Link
from clbruno.errors import InputError

LOG_FLOOR = -708.0
"""exp of it is still a normal float64: a posterior is never shown as an exact zero's log."""


@dataclass(frozen=True)
class Posterior:
    """The answers for some rows, given the log-likelihood of each row in each cell.

    Attributes:
        log_likelihood: log p(x | t, y) per row and cell, shape `(n, cells)`.
        log_label_prior: log p(y | t) of each cell, normalised within its task.
        log_task_prior: log p(t), shape `(tasks,)`.
        log_share: log of each cell's share of the samples learned of its task.
        task_of_cell: task of each cell.
        label_of_cell: label of each cell.
        link: how the log-likelihood counts before Bayes' rule; the default is the rule itself.
    """

    log_likelihood: Tensor
    log_label_prior: Tensor
    log_task_prior: Tensor
    log_share: Tensor
    task_of_cell: Tensor
    label_of_cell: Tensor
    link: Link = PLAIN

    def log_evidence(self) -> Tensor:
        """log p(x | t) = log sum_y p(x | t, y) p(y | t), shape `(n, tasks)` (supplement A.3)."""
        return self._by_task(self.log_likelihood + self.log_label_prior)

    def log_density(self) -> Tensor:
        """log p(x) = log sum_t p(x | t) p(t), shape `(n,)`."""
        return (self.log_evidence() + self.log_task_prior).logsumexp(-1)

    def log_label_given_task(self) -> Tensor:
        """log p(y | t, x), one column per cell, each task's columns normalised (eq. 10).

        p(y | t, x) proportional to exp(g(x; t, y)) p(y | t) / share(t, y),  g the link of
        log p(x | t, y) + log share(t, y):  the link is about the data as they were learned, and
        a prior that differs from them is Bayes' rule itself
        """
        joint = self._linked()
        for _ in range(2):  # once more, for what rounding leaves at log-likelihoods of a million
            joint = joint - self._by_task(joint)[:, self.task_of_cell]
        return joint

    def log_task(self) -> Tensor:
        """log p(t | x), proportional to p(t) sum_y exp(g(x; t, y)) p(y | t) / share(t, y) (eq. 11).

        As in eq. 10, with the sum over the labels y of t.
        """
        return torch.log_softmax(self._by_task(self._linked()) + self.log_task_prior, dim=-1)

    def log_label(self) -> Tensor:
        """log p(y | x) = log sum_t p(y | t, x) p(t | x), one column per label (eq. 12), bent."""
        return self.link.bent(self.log_label_unbent())

    def log_label_unbent(self) -> Tensor:
        """The same before the link bends its confidence."""
        cells = self.log_label_given_task() + self.log_task()[:, self.task_of_cell]
        return _logsumexp_by(cells, self.label_of_cell, int(self.label_of_cell.max()) + 1)

    def log_label_in(self, task: Tensor, labels: int) -> Tensor:
        """log p(y | t, x) with each row's task known, one column per label; -inf outside it."""
        cells = self.log_label_given_task()
        outside = self.task_of_cell[None, :] != task[:, None]
        return _logsumexp_by(cells.masked_fill(outside, -torch.inf), self.label_of_cell, labels)

    def _linked(self) -> Tensor:
        learned = self.link(self.log_likelihood + self.log_share)
        return learned + self.log_label_prior - self.log_share

    def _by_task(self, cells: Tensor) -> Tensor:
        return _logsumexp_by(cells, self.task_of_cell, self.log_task_prior.shape[0])


def log_label_prior(
    counts: Sequence[int], task_of_cell: Sequence[int], kind: str | Sequence[float] = "counts"
) -> Tensor:
    """log p(y | t), normalised within each task.

    From the counts (`"counts"`), uniform over the task's labels (`"uniform"`), or given: one
    positive weight per cell.
    """
    if kind == "counts":
        weight = torch.tensor(counts, dtype=torch.float64)
    elif kind == "uniform":
        weight = torch.ones(len(counts), dtype=torch.float64)
    else:
        weight = _given("label_prior", kind, len(counts))
    tasks = torch.tensor(task_of_cell)
    total = torch.zeros(int(tasks.max()) + 1, dtype=torch.float64).index_add_(0, tasks, weight)
    return (weight / total[tasks]).log()


def log_task_prior(
    counts: Sequence[int], task_of_cell: Sequence[int], kind: str | Sequence[float] = "uniform"
) -> Tensor:
    """log p(t): uniform (`"uniform"`), from the counts (`"counts"`), or given as weights."""
    tasks = torch.tensor(task_of_cell)
    number = int(tasks.max()) + 1
    if kind == "uniform":
        weight = torch.ones(number, dtype=torch.float64)
    elif kind == "counts":
        weight = torch.zeros(number, dtype=torch.float64)
        weight.index_add_(0, tasks, torch.tensor(counts, dtype=torch.float64))
    else:
        weight = _given("task_prior", kind, number)
    return (weight / weight.sum()).log()


def _given(name: str, weights: str | Sequence[float], size: int) -> Tensor:
    if isinstance(weights, str):
        raise InputError(f"{name} must be 'counts', 'uniform' or weights, got {weights!r}")
    weight = torch.as_tensor(weights, dtype=torch.float64)
    if weight.shape != (size,) or not bool((weight.isfinite() & (weight > 0)).all()):
        raise InputError(f"{name} needs {size} positive numbers, got {list(weights)[:5]}")
    return weight


def level_set_p_value(log_evidence: Tensor, generated: Tensor) -> Tensor:
    """How typical each row is of a task, by the level sets of supplement A.3.

    p = (1 + #{ j : p(x_j) <= p(x) }) / (1 + m)  over the m generated samples x_j

    Args:
        log_evidence: log p(x | t) of the rows, shape `(n,)`.
        generated: log p(x_j | t) of samples drawn from the task's predictive, sorted.
    """
    below = torch.searchsorted(generated, log_evidence.contiguous(), right=True)
    return (1 + below).double() / (1 + generated.shape[0])


def _logsumexp_by(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """log sum exp over the columns of each group; a group with no finite column gives -inf."""
    shape = (values.shape[0], groups)
    index = group.expand(values.shape)
    peak = torch.full(shape, -torch.inf, dtype=values.dtype, device=values.device)
    peak = peak.scatter_reduce(1, index, values, "amax")
    shift = peak.nan_to_num(neginf=0.0)
    total = torch.zeros(shape, dtype=values.dtype, device=values.device)
    total = total.scatter_add(1, index, (values - shift.gather(1, index)).exp())
    return total.log() + shift
