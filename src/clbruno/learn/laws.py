"""The laws of all exchangeable groups, as the loss asks for them: rows in, one number out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clbruno.core.latent import ExchangeableGaussian, Latent


class Laws(Protocol):
    """One law per exchangeable group: a task for the paper's latent, a cell for ours."""

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """-sum over the groups of log p(z_1, .., z_n), each group's rows as one sequence."""
        ...

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Sum over the rows of log p(z), each row as the next sample of its group."""
        ...


@dataclass(frozen=True)
class LawsByGroup:
    """Any laws, one group after the other.

    Attributes:
        laws: the law of each group.
    """

    laws: Mapping[int, Latent]

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """Sum over the groups that occur."""
        parts = [self.laws[each].nll_of(z[group == each]) for each in group.unique().tolist()]
        return torch.stack(parts).sum()

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Sum over the groups that occur."""
        parts = [
            self.laws[each].log_prob(z[group == each]).sum() for each in group.unique().tolist()
        ]
        return torch.stack(parts).sum()


@dataclass(frozen=True)
class StackedLaws:
    """Exchangeable Gaussians, all groups at once: which rows belong where is never looked up on
    the host, so a GPU need not wait for it.

    Attributes:
        stack: the laws of the groups 0, 1, ...
    """

    stack: ExchangeableGaussian

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """From each group's count, mean and scatter; a group without rows adds nothing.

        With A one column per group, one where the row belongs to it:
        n = A' 1,  mean = A' z / n,  scatter = A' (z - A mean)^2
        """
        groups = torch.arange(len(self.stack.mean), device=group.device)
        member = (group.unsqueeze(1) == groups).to(z.dtype)
        n = member.sum(0).unsqueeze(1)
        mean = member.mT @ z / n.clamp(min=1)
        scatter = member.mT @ (z - member @ mean).square()
        return self.stack.nll_of_sums(n, mean, scatter)

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Each row under the law of its group."""
        return self.stack.at(group).log_prob(z).sum()
