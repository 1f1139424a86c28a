"""FeCAM: Mahalanobis distance to class means with normalised class covariances (Goswami, 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from benchmarks.rivals.base import Codes, PairRival
from benchmarks.rivals.moments import Moments, inverse_root
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray


class FeCAM(PairRival):
    """Score -(x - m_k)^T R_k^-1 (x - m_k) / 2, R_k the correlation matrix of the shrunk covariance.

    The square root of the inputs is the method's Tukey transform with exponent 1/2.
    """

    after_fit: ClassVar[tuple[str, ...]] = ("gamma",)

    def __init__(self, gamma: float = 1.0, scale: Scale = "sqrt", seed: int = 0) -> None:
        super().__init__(scale, seed)
        self.gamma = gamma
        self.moments = Moments(each=True)
        self._roots: list[FloatArray] = []

    def correlation(self, k: int) -> FloatArray:
        """S + g V1 I + g V2 (1 - I), V1, V2 the mean (off-)diagonal, scaled to diagonal 1."""
        cov = self.moments.scatter[k] / max(self.moments.n[k] - 1, 1)
        dim = len(cov)
        on = np.trace(cov) / dim or 1.0
        off = (cov.sum() - np.trace(cov)) / max(dim * (dim - 1), 1)
        cov = cov + self.gamma * on * np.eye(dim) + self.gamma * off * (1 - np.eye(dim))
        sd = np.sqrt(np.diag(cov))
        return cov / np.outer(sd, sd)

    def change(self, **settings: float) -> None:
        """Set gamma; the correlations are factored anew."""
        super().change(**settings)
        self._roots = []

    def _learn(self, x: FloatArray, code: Codes) -> None:
        self.moments.update(x, code)
        self._roots = []

    def _scores(self, x: FloatArray) -> FloatArray:
        if not self._roots:
            classes = range(len(self.moments.n))
            self._roots = [inverse_root(self.correlation(k)) for k in classes]
        score = np.empty((len(x), len(self._roots)))
        for k, (mean, root) in enumerate(zip(self.moments.mean, self._roots, strict=True)):
            white = (x - mean) @ root.T
            score[:, k] = -0.5 * np.einsum("nd,nd->n", white, white)
        return score

    @property
    def floats_stored(self) -> int:
        """Counts, means and one symmetric matrix per class."""
        return self.moments.floats
