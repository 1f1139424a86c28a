"""The exchangeable Gaussian latent of the paper, one sequence per task and dimension."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from clbruno.core.moments import Moments
from clbruno.errors import InputError


class Latent(Protocol):
    """The law of an exchangeable sequence, closed under conditioning on samples.

    `clbruno.checks.check_latent` holds the contract that every implementation passes.
    """

    def moments(self, z: Tensor) -> Moments:
        """The sufficient statistics of the rows of `z`."""
        ...

    def given(self, seen: Moments) -> Self:
        """The law of the rest of the sequence after `seen`."""
        ...

    def nll(self, new: Moments) -> Tensor:
        """-log p(z_1, .., z_n), from the statistics alone."""
        ...

    def nll_of(self, z: Tensor) -> Tensor:
        """The same from the rows themselves, differentiably."""
        ...

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) of each row on its own as the next sample, shape `(n,)`."""
        ...

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """`n` rows, each drawn on its own as the next sample."""
        ...


@dataclass(frozen=True)
class ExchangeableGaussian:
    """Independent dimensions, each with Var z_i = nu and Cov(z_i, z_j) = rho (paper, section 2.2).

    With delta = nu - rho this is  z_i = m + e_i,  m ~ N(mean, rho),  e_i ~ N(0, delta).
    With `dof` finite the sequence is a Student-t process with the same covariances (the option
    of Conditional-BRUNO for short sequences); `dof = inf` is the Gaussian.

    Attributes:
        mean: mean of m: zero before any sample, shape `(D,)`.
        rho: variance of m, shape `(D,)`.
        delta: variance of a sample around m, nu - rho, shape `(D,)`.
        dof: degrees of freedom of each dimension, over 2; shape `()`, in main memory.

    Several sequences can be held at once: mean, rho and delta of shape `(G, D)`, and `dof` of
    shape `(G, 1)`, or `()` for the Gaussian.
    """

    mean: Tensor
    rho: Tensor
    delta: Tensor
    dof: Tensor

    @classmethod
    def prior(cls, nu: Tensor, rho: Tensor, dof: float = math.inf) -> "ExchangeableGaussian":
        """The law before any sample, for `nu > rho > 0`."""
        if not bool(((rho > 0) & (nu > rho)).all()):
            raise InputError(
                "the latent needs nu > rho > 0 in every dimension, got "
                f"min rho {float(rho.min()):.3g}, min (nu - rho) {float((nu - rho).min()):.3g}"
            )
        if not dof > 2:
            raise InputError(
                f"the degrees of freedom of a Student-t latent must exceed 2, got {dof}"
            )
        return cls(torch.zeros_like(rho), rho, nu - rho, torch.tensor(dof, dtype=rho.dtype))

    @classmethod
    def stack(cls, laws: Sequence["ExchangeableGaussian"]) -> "ExchangeableGaussian":
        """Several sequences as one value."""
        mean, rho, delta = (
            torch.stack([getattr(law, name) for law in laws]) for name in ("mean", "rho", "delta")
        )
        if laws[0].gaussian:
            return cls(mean, rho, delta, laws[0].dof)
        return cls(
            mean, rho, delta, torch.stack([law.dof for law in laws])[:, None].to(mean.device)
        )

    def joined(self, other: "ExchangeableGaussian") -> "ExchangeableGaussian":
        """One stack behind another."""
        mean, rho, delta = (
            torch.cat((getattr(self, name), getattr(other, name)))
            for name in ("mean", "rho", "delta")
        )
        dof = self.dof if self.gaussian else torch.cat((self.dof, other.dof))
        return ExchangeableGaussian(mean, rho, delta, dof)

    def at(self, group: Tensor) -> "ExchangeableGaussian":
        """The sequence of each row, from a stack of them."""
        dof = self.dof if self.dof.ndim == 0 else self.dof[group]
        return ExchangeableGaussian(self.mean[group], self.rho[group], self.delta[group], dof)

    def to(self, like: Tensor | torch.device) -> "ExchangeableGaussian":
        """The same on a device, or in the precision and on the device of a tensor."""
        dof = self.dof if self.dof.ndim == 0 else self.dof.to(like)
        return ExchangeableGaussian(self.mean.to(like), self.rho.to(like), self.delta.to(like), dof)

    @property
    def gaussian(self) -> bool:
        """Whether this is the Gaussian and not its Student-t option."""
        return self.dof.ndim == 0 and math.isinf(self.dof)

    def moments(self, z: Tensor) -> Moments:
        """Count, mean and per-dimension scatter of the rows of `z`."""
        return Moments.of(z, full=False)

    def given(self, seen: Moments) -> "ExchangeableGaussian":
        """The law of the rest of the sequence: the same family, by Bayes' rule.

        mean' = (delta mean + n rho zbar) / (delta + n rho),   rho' = rho delta / (delta + n rho)
        Student-t:  dof' = dof + n,  and rho', delta' times (dof - 2 + beta) / (dof' - 2)
        """
        n = seen.count
        spread = self.delta + n * self.rho
        mean = (self.delta * self.mean + n * self.rho * seen.mean) / spread
        rho = self.rho * self.delta / spread
        if self.gaussian:
            return ExchangeableGaussian(mean, rho, self.delta, self.dof)
        factor = (self.dof - 2 + self._beta(n, seen.mean, seen.scatter)) / (self.dof + n - 2)
        return ExchangeableGaussian(mean, factor * rho, factor * self.delta, self.dof + n)

    def nll(self, new: Moments) -> Tensor:
        """-log p(z_1, .., z_n), the sum over the dimensions of

        Gaussian:   1/2 [ n log 2 pi + (n - 1) log delta + log(delta + n rho) + beta ]
        Student-t:  1/2 [ n log((dof - 2) pi) + (n - 1) log delta + log(delta + n rho) ]
                    + log Gamma(dof / 2) - log Gamma((dof + n) / 2)
                    + (dof + n) / 2  log(1 + beta / (dof - 2))
        """
        return self.nll_of_sums(new.count, new.mean, new.scatter)

    def nll_of_sums(self, n: float | Tensor, mean: Tensor, scatter: Tensor) -> Tensor:
        """The same from counts, means and scatters; of a stack, summed over its sequences."""
        log_det = (n - 1) * self.delta.log() + (self.delta + n * self.rho).log()
        beta = self._beta(n, mean, scatter)
        if self.gaussian:
            return 0.5 * (n * math.log(2 * math.pi) + log_det + beta).sum()
        dof = self.dof
        return (
            0.5 * (n * ((dof - 2) * math.pi).log() + log_det)
            + torch.lgamma(dof / 2)
            - torch.lgamma((dof + n) / 2)
            + (dof + n) / 2 * torch.log1p(beta / (dof - 2))
        ).sum()

    def nll_of(self, z: Tensor) -> Tensor:
        """-log p(z_1, .., z_n) from the rows: that of their moments."""
        return self.nll(self.moments(z))

    def marginal(self, at: Tensor) -> "ExchangeableGaussian":
        """The law of some dimensions alone: they are independent of the others."""
        dof = self.dof[at] if self.dof.ndim else self.dof
        return ExchangeableGaussian(self.mean[at], self.rho[at], self.delta[at], dof)

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) of each row as the next sample.

        Gaussian: N(z; mean, delta + rho);  Student-t: the t of that mean and variance.
        """
        variance = self.delta + self.rho
        beta = (z - self.mean).square() / variance
        if self.gaussian:
            return -0.5 * (math.log(2 * math.pi) + variance.log() + beta).sum(-1)
        dof = self.dof
        return (
            torch.lgamma((dof + 1) / 2)
            - torch.lgamma(dof / 2)
            - 0.5 * ((dof - 2) * math.pi * variance).log()
            - (dof + 1) / 2 * torch.log1p(beta / (dof - 2))
        ).sum(-1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """z = mean + sqrt(delta + rho) e,  e standard normal, or t scaled to variance one."""
        shape = (n, self.mean.shape[-1])
        there, dtype = generator.device, self.mean.dtype
        noise = torch.randn(shape, generator=generator, dtype=dtype, device=there)
        if not self.gaussian:
            dof = self.dof.to(there, dtype)
            chi2 = 2 * torch._standard_gamma((dof / 2).expand(shape), generator=generator)
            noise = noise * ((dof - 2) / chi2).sqrt()
        return self.mean + (self.delta + self.rho).sqrt() * noise.to(self.mean.device)

    def _beta(self, n: float | Tensor, mean: Tensor, scatter: Tensor) -> Tensor:
        """(z - mean)' K^-1 (z - mean) of each dimension.

        = scatter / delta + n (zbar - mean)^2 / (delta + n rho)
        """
        return scatter / self.delta + n * (mean - self.mean).square() / (self.delta + n * self.rho)
