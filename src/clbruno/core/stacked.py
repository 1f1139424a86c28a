"""Many multivariate t laws scored at once, by a few matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clbruno.core.conjugate import NormalInverseWishart, inverse_root, t_log_prob

NUMBERS = 2**22
"""Projections held at a time: 32 MB in float64."""


@dataclass(frozen=True)
class StackedT:
    """The predictives of K normal-inverse-Wishart laws.

        log p_k(z) = constant_k - (df_k + D) / 2  log(1 + scale_k q_k(z))

    Laws with a scale matrix of their own, Psi_k^-1 = R_k' R_k, have

        q_k(z) = |R_k (z - c) - o_k|^2

    and laws that differ in few directions, Psi_k = a_k M + U_k U_k', by Woodbury's identity

        w = M^(-1/2) (z - c)
        q_k(z) = |w - m_k|^2 - |R_k w - o_k|^2

    so one product with all R_k stacked scores all laws: D x K (rank + 1) numbers, not K D^2.

    Attributes:
        center: c, what is taken from every z so that no digit is lost to a common mean, `(D,)`.
        common: M^(-1/2), shape `(D, D)`; None for laws with matrices of their own.
        middle: m_k, shape `(K, D)`; unused without `common`.
        roots: R_k, shape `(K, rank, D)`.
        offsets: o_k = R_k times the mean of law k, shape `(K, rank)`.
        scale: shape `(K,)`.
        half: (df_k + D) / 2, shape `(K,)`.
        constant: the log-density at the mean, shape `(K,)`.
    """

    center: Tensor
    common: Tensor | None
    middle: Tensor
    roots: Tensor
    offsets: Tensor
    scale: Tensor
    half: Tensor
    constant: Tensor

    @classmethod
    def full(cls, laws: Sequence[NormalInverseWishart]) -> "StackedT":
        """Laws that share nothing."""
        means = torch.stack([law.mean for law in laws])
        center = means.mean(0)
        roots = torch.stack([law.unroot for law in laws])
        offsets = (roots @ (means - center)[:, :, None])[..., 0]
        kappa = means.new_tensor([law.kappa for law in laws])
        df = means.new_tensor([law.df for law in laws])
        log_det = torch.stack([law.log_det for law in laws])
        scale, half, constant = _heads(kappa, df, log_det, means.shape[1])
        return cls(center, None, means, roots, offsets, scale, half, constant)

    @classmethod
    def low_rank(
        cls, means: Tensor, kappa: Tensor, df: Tensor, metric: Tensor, own: Tensor, factors: Tensor
    ) -> "StackedT":
        """Laws of scale matrices  Psi_k = a_k M + U_k U_k'.

        With V = M^(-1/2) U and K K' = a I + V'V,
        Psi^-1 = M^(-1/2)' (I - R'R) M^(-1/2) / a,   R = K^-1 V'
        log|Psi| = (D - rank) log a + log|M| + 2 log|K|

        Args:
            means: shape `(K, D)`.
            kappa: shape `(K,)`.
            df: degrees of freedom of each t, shape `(K,)`.
            metric: M, shape `(D, D)`.
            own: a, shape `(K,)`.
            factors: U, shape `(K, D, rank)`.
        """
        center = means.mean(0)
        common, log_det_metric = inverse_root(metric)
        middle = (means - center) @ common.mT
        white = common @ factors
        _, dim, rank = factors.shape
        eye = torch.eye(rank, dtype=own.dtype)
        inner = torch.linalg.cholesky(white.mT @ white + own[:, None, None] * eye)
        roots = torch.linalg.solve_triangular(inner, white.mT, upper=False)
        offsets = (roots @ middle[:, :, None])[..., 0]
        log_det = (dim - rank) * own.log() + log_det_metric
        log_det = log_det + 2 * inner.diagonal(dim1=1, dim2=2).log().sum(1)
        scale, half, constant = _heads(kappa, df, log_det, dim)
        return cls(center, common, middle, roots, offsets, scale / own, half, constant)

    def of(self, at: Sequence[int]) -> "StackedT":
        """Some of the laws."""
        if list(at) == list(range(len(self.scale))):
            return self
        fields = ("middle", "roots", "offsets", "scale", "half", "constant")
        return replace(self, **{name: getattr(self, name)[list(at)] for name in fields})

    def log_prob(self, z: Tensor) -> Tensor:
        """log p of each row as the next sample of each law, shape `(n, K)`."""
        w = z - self.center
        if self.common is None:
            squared = self._lengths(w)
        else:
            w = w @ self.common.mT
            squared = _squared_distances(w, self.middle) - self._lengths(w)
        return self.constant - self.half * torch.log1p(self.scale * squared)

    def _lengths(self, w: Tensor) -> Tensor:
        """|R_k w - o_k|^2, shape `(n, K)`, by pieces of bounded size."""
        _, rank, dim = self.roots.shape
        piece = max(1, NUMBERS // max(len(w) * rank, 1))
        lengths = []
        for roots, offsets in zip(self.roots.split(piece), self.offsets.split(piece), strict=True):
            along = torch.addmm(offsets.flatten(), w, roots.reshape(-1, dim).mT, beta=-1)
            lengths.append(along.view(len(w), *offsets.shape).square().sum(-1))
        return torch.cat(lengths, dim=1)


def _squared_distances(w: Tensor, middle: Tensor) -> Tensor:
    """|w_i - m_k|^2 by differences: by products it would lose the digits of what is near."""
    return torch.cdist(w, middle, compute_mode="donot_use_mm_for_euclid_dist").square()


def _heads(kappa: Tensor, df: Tensor, log_det: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """scale, half and constant of each t: its shape is  Psi (kappa + 1) / (kappa df)."""
    shape = log_det + dim * ((kappa + 1) / (kappa * df)).log()
    zero = torch.zeros((), dtype=df.dtype)
    constant = [
        t_log_prob(zero, each, law_df, dim) for each, law_df in zip(shape, df.tolist(), strict=True)
    ]
    return kappa / (kappa + 1), (df + dim) / 2, torch.stack(constant)
