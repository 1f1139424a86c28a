"""The conjugate latent with a full covariance: normal-inverse-Wishart (DESIGN.md, section 4)."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clbruno.core.moments import Moments
from clbruno.errors import InputError


@dataclass(frozen=True)
class NormalInverseWishart:
    """An exchangeable sequence around a mean and with a covariance that are both unknown.

        z_i ~ N(mu, Sigma),  mu ~ N(mean, Sigma / kappa),  Sigma ~ InverseWishart(scale, dof)

    E[Sigma] = scale / (dof - D - 1). The paper's latent is its diagonal special case with one
    sequence per task; streaming LDA is dof to infinity, QDA is dof to D + 1.

    Attributes:
        mean: prior mean of mu, shape `(D,)`.
        kappa: how many samples the prior mean is worth, > 0.
        dof: degrees of freedom v of the inverse Wishart, > D - 1.
        scale: Psi, symmetric positive definite, shape `(D, D)`.
    """

    mean: Tensor
    kappa: float
    dof: float
    scale: Tensor

    def __post_init__(self) -> None:
        dim = self.mean.shape[0]
        if not self.kappa > 0:
            raise InputError(f"kappa must be positive, got {self.kappa}")
        if not self.dof > dim - 1:
            raise InputError(
                f"the degrees of freedom must exceed D - 1 = {dim - 1}, got {self.dof}"
            )
        if self.scale.shape != (dim, dim):
            raise InputError(f"scale must be {dim} x {dim}, got {tuple(self.scale.shape)}")

    def moments(self, z: Tensor) -> Moments:
        """Count, mean and scatter matrix of the rows of `z`."""
        return Moments.of(z, full=True)

    def given(self, seen: Moments) -> "NormalInverseWishart":
        """The law of the rest of the sequence: the same family, by Bayes' rule.

        kappa' = kappa + n,  v' = v + n,  mean' = (kappa mean + n zbar) / kappa'
        Psi' = Psi + scatter + (kappa n / kappa') (zbar - mean)(zbar - mean)'
        """
        n = seen.count
        kappa = self.kappa + n
        gap = seen.mean - self.mean
        return NormalInverseWishart(
            (self.kappa * self.mean + n * seen.mean) / kappa,
            kappa,
            self.dof + n,
            self.scale + seen.scatter + (self.kappa * n / kappa) * torch.outer(gap, gap),
        )

    def nll(self, new: Moments) -> Tensor:
        """-log p(z_1, .., z_n), a matrix-t:

        n D / 2 log pi + D / 2 log(kappa' / kappa) + v' / 2 log|Psi'| - v / 2 log|Psi|
        + log Gamma_D(v / 2) - log Gamma_D(v' / 2)
        """
        n, dim = new.count, self.mean.shape[0]
        after = self.given(new)
        return (
            n * dim / 2 * math.log(math.pi)
            + dim / 2 * math.log(after.kappa / self.kappa)
            + after.dof / 2 * after.log_det
            - self.dof / 2 * self.log_det
            + _log_multigamma(self.dof / 2, dim)
            - _log_multigamma(after.dof / 2, dim)
        )

    def nll_of(self, z: Tensor) -> Tensor:
        """-log p(z_1, .., z_n) from the rows themselves: for n < D an n x n determinant.

        With E = (z - mean) Psi^(-1/2) and G = I + 1 1' / kappa + E E',
        log|Psi'| = log|Psi| + log(kappa / kappa') + log|G|
        """
        n, dim = z.shape
        if n >= dim:
            return self.nll(self.moments(z))
        after_kappa, after_dof = self.kappa + n, self.dof + n
        rows = (z - self.mean) @ self.unroot.mT
        gram = rows @ rows.mT + 1 / self.kappa
        gram = gram + torch.eye(n, dtype=z.dtype, device=z.device)
        log_det_gain = math.log(self.kappa / after_kappa) + _log_det(torch.linalg.cholesky(gram))
        return (
            n * dim / 2 * math.log(math.pi)
            + dim / 2 * math.log(after_kappa / self.kappa)
            + after_dof / 2 * log_det_gain
            + n / 2 * self.log_det
            + _log_multigamma(self.dof / 2, dim)
            - _log_multigamma(after_dof / 2, dim)
        )

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) of each row as the next sample: a multivariate t.

        df = v - D + 1,  covariance shape  Psi (kappa + 1) / (kappa df)
        """
        dim = self.mean.shape[0]
        rows = (z - self.mean) @ self.unroot.mT
        distance = rows.square().sum(-1) / self.widen
        return t_log_prob(distance, self.log_det + dim * math.log(self.widen), self.df, dim)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Rows of that multivariate t: mean + sqrt(df / chi2) L e, L L' its shape."""
        there, dtype = generator.device, self.mean.dtype
        noise = torch.randn((n, len(self.mean)), generator=generator, dtype=dtype, device=there)
        half = torch.full((n, 1), self.df / 2, dtype=dtype, device=there)
        chi2 = 2 * torch._standard_gamma(half, generator=generator)
        noise = noise * (self.df / chi2).sqrt()
        return self.mean + math.sqrt(self.widen) * noise.to(self.mean.device) @ self._cholesky.mT

    @property
    def df(self) -> float:
        """Degrees of freedom of the next sample's t, v - D + 1."""
        return self.dof - self.mean.shape[0] + 1

    @property
    def widen(self) -> float:
        """What Psi is multiplied with in the shape of that t, (kappa + 1) / (kappa df)."""
        return (self.kappa + 1) / (self.kappa * self.df)

    def marginal(self, at: Tensor) -> "NormalInverseWishart":
        """The law of some coordinates alone, which is of the same kind.

        mean_o, Psi_oo, v - (D - |o|)
        """
        lost = self.mean.shape[0] - len(at)
        return NormalInverseWishart(
            self.mean[at], self.kappa, self.dof - lost, self.scale[at][:, at]
        )

    def mapped(self, matrix: Tensor, offset: Tensor) -> "NormalInverseWishart":
        """The law of z M + b, M invertible:  mean M + b,  M' Psi M."""
        return NormalInverseWishart(
            self.mean @ matrix + offset, self.kappa, self.dof, matrix.mT @ self.scale @ matrix
        )

    @cached_property
    def log_det(self) -> Tensor:
        """log|Psi|."""
        return _log_det(self._cholesky)

    @cached_property
    def unroot(self) -> Tensor:
        """R with R'R = Psi^-1: the inverse of the Cholesky root."""
        return _inverse(self._cholesky)

    @cached_property
    def _cholesky(self) -> Tensor:
        return _cholesky(self.scale)


def t_log_prob(distance: Tensor, log_det: Tensor, df: float, dim: int) -> Tensor:
    """log of the multivariate t of `dim` dimensions, given (x - m)' V^-1 (x - m) and log|V|.

    log Gamma((df + D) / 2) - log Gamma(df / 2) - 1/2 [ D log(df pi) + log|V| ]
    - (df + D) / 2  log(1 + distance / df)
    """
    return (
        math.lgamma((df + dim) / 2)
        - math.lgamma(df / 2)
        - 0.5 * (dim * math.log(df * math.pi) + log_det)
        - (df + dim) / 2 * torch.log1p(distance / df)
    )


def inverse_root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """R with R'R = A^-1, and log|A|, of a positive definite A."""
    root = _cholesky(matrix)
    return _inverse(root), _log_det(root)


def _cholesky(scale: Tensor) -> Tensor:
    root: Tensor
    root, info = torch.linalg.cholesky_ex(scale)
    if int(info):
        raise InputError(
            "the scale matrix is not positive definite: features are linearly dependent; "
            "raise the ridge"
        )
    return root


def _inverse(cholesky: Tensor) -> Tensor:
    """The inverse of a lower root: a product is faster than a triangular solve."""
    eye = torch.eye(len(cholesky), dtype=cholesky.dtype, device=cholesky.device)
    unroot: Tensor = torch.linalg.solve_triangular(cholesky, eye, upper=False)
    return unroot


def _log_det(cholesky: Tensor) -> Tensor:
    return 2 * cholesky.diagonal().log().sum()


def _log_multigamma(a: float, dim: int) -> float:
    """log Gamma_D(a) less the D (D - 1) / 4 log pi that cancels in every ratio."""
    half_steps = torch.arange(dim, dtype=torch.float64) / 2
    return float(torch.lgamma(a - half_steps).sum())
