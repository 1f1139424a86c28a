"""The laws of all exchangeable groups, as the loss asks for them: rows in, one number out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clbruno.core.latent import ExchangeableGaussian, Latent
from clbruno.core.moments import Moments
from clbruno.learn.distributed import ALONE, Group


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
        ranks: where the rows of a group lie; of several, each gets its share of a sum.
    """

    laws: Mapping[int, Latent]
    ranks: Group = ALONE

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """Sum over the groups that occur."""
        if not self.ranks.alone:
            return self._nll_over_ranks(z, group) / self.ranks.size
        parts = [self.laws[each].nll_of(z[group == each]) for each in group.unique().tolist()]
        return torch.stack(parts).sum()

    def _nll_over_ranks(self, z: Tensor, group: Tensor) -> Tensor:
        """The whole sum on every rank, by adding up each group's count, mean and scatter matrix.

        Where that moves fewer numbers, the rows are put together instead; there may be none here.
        """
        dim, ranks = z.shape[1], self.ranks
        counts = ranks.sum(torch.bincount(group, minlength=max(self.laws) + 1)).tolist()
        present = [each for each, n in enumerate(counts) if n]
        if sum(counts) < len(present) * dim:
            whole, whose = ranks.rows(z), ranks.rows(group)
            return torch.stack([self.laws[g].nll_of(whole[whose == g]) for g in present]).sum()
        rows = [z[group == each] for each in present]
        n = z.new_tensor([counts[each] for each in present])[:, None]
        # Around the means, which need no gradient for that: around zero digits would be lost.
        center = ranks.sum(torch.stack([part.detach().sum(0) for part in rows])) / n
        rest = [part - middle for part, middle in zip(rows, center, strict=True)]
        sums = [torch.cat((r.sum(0, keepdim=True), r.mT @ r)) for r in rest]
        whole = ranks.sum(torch.stack(sums))
        shift = whole[:, 0] / n
        parts = []
        for at, each in enumerate(present):
            scatter = whole[at, 1:] - counts[each] * torch.outer(shift[at], shift[at])
            seen = Moments(float(counts[each]), center[at] + shift[at], scatter)
            parts.append(self.laws[each].nll(seen))
        return torch.stack(parts).sum()

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Sum over the groups that occur."""
        if not len(z):
            return z.sum()
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
        ranks: where the rows of a group lie; of several, each gets its share of a sum.
    """

    stack: ExchangeableGaussian
    ranks: Group = ALONE

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """From each group's count, mean and scatter; a group without rows adds nothing.

        With A one column per group, one where the row belongs to it:
        n = A' 1,  mean = A' z / n,  scatter = A' (z - A mean)^2
        """
        groups = torch.arange(len(self.stack.mean), device=group.device)
        member = (group.unsqueeze(1) == groups).to(z.dtype)
        n = self.ranks.sum(member.sum(0).unsqueeze(1))
        if not self.ranks.alone:
            return self._nll_over_ranks(z, member, n) / self.ranks.size
        mean = member.mT @ z / n.clamp(min=1)
        scatter = member.mT @ (z - member @ mean).square()
        return self.stack.nll_of_sums(n, mean, scatter)

    def _nll_over_ranks(self, z: Tensor, member: Tensor, n: Tensor) -> Tensor:
        """The same of the rows of all ranks: their (n, S, Q) are added up, around the means.

        With r = z - center:  mean = center + A' r / n,  scatter = A' r^2 - (A' r)^2 / n
        """
        n = n.clamp(min=1e-30)  # of no row all sums are zero
        center = self.ranks.sum((member.mT @ z).detach()) / n
        rest = z - member @ center
        sums = torch.cat((member.mT @ rest, member.mT @ rest.square()), dim=1)
        s, q = self.ranks.sum(sums).chunk(2, dim=1)
        return self.stack.nll_of_sums(n, center + s / n, q - s.square() / n)

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Each row under the law of its group."""
        return self.stack.at(group).log_prob(z).sum()
