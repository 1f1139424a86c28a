"""The laws of all exchangeable groups, as the loss asks for them: rows in, one number out."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clbruno.core.latent import ExchangeableGaussian
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
class PooledLaws:
    """Every group a Gaussian around its own mean, with one covariance M for all:

    log p(z | group k) = - 1/2 |R (z - m_k)|^2 + log|R| - D/2 log 2 pi,   R' R = M^-1

    What the laws of the cells are for v0 to infinity, given all that was seen: rows no longer
    depend on one another, and a step costs one product. Covariances of single cells would fit the
    flow to the noise in them.

    Attributes:
        mean: m_k, shape `(groups, D)`.
        root: R, lower triangular, shape `(D, D)`.
    """

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, like: Tensor) -> "PooledLaws":
        """From the means and M, in the precision and on the device of a tensor."""
        root = torch.linalg.cholesky(covariance)
        eye = torch.eye(len(root), dtype=root.dtype, device=root.device)
        inverse = torch.linalg.solve_triangular(root, eye, upper=False)
        return cls(mean.to(like), inverse.to(like))

    def nll(self, z: Tensor, group: Tensor) -> Tensor:
        """Each row on its own: the groups' means are given."""
        return -self.log_prob(z, group)

    def log_prob(self, z: Tensor, group: Tensor) -> Tensor:
        """Each row under the law of its group."""
        white = (z - self.mean[group]) @ self.root.mT
        constant = self.root.diagonal().log().sum() - 0.5 * z.shape[1] * math.log(2 * math.pi)
        return len(z) * constant - 0.5 * white.square().sum()


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
