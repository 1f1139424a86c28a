"""Quadratic discriminants whose class covariances are shrunk towards the pooled one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from benchmarks.rivals.base import Codes, PairRival, logsumexp
from benchmarks.rivals.moments import Moments, inverse_root
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray


class ShrunkCovariances(PairRival):
    """log p(x, k) = log N(x; m_k, C_k) + log n_k, C_k = (v0 P + S_k) / (v0 + n_k) + r (tr P / D) I.

    P is the pooled covariance, v0 = strength x D and r the ridge.
    """

    after_fit: ClassVar[tuple[str, ...]] = ("strength", "ridge")

    def __init__(
        self,
        strength: float = 10.0,
        ridge: float = 1e-4,
        scale: Scale = "none",
        seed: int = 0,
    ) -> None:
        super().__init__(scale, seed)
        self.strength = strength
        self.ridge = ridge
        self.moments = Moments(each=True)
        self._roots: list[FloatArray] = []

    def covariance(self, k: int, pooled: FloatArray) -> FloatArray:
        """C_k."""
        dim = len(pooled)
        v0 = self.strength * dim
        cov = (v0 * pooled + self.moments.scatter[k]) / (v0 + self.moments.n[k])
        return cov + self.ridge * np.trace(pooled) / dim * np.eye(dim)

    def change(self, **settings: float) -> None:
        """Set strength or ridge; the covariances are factored anew."""
        super().change(**settings)
        self._roots = []

    def _learn(self, x: FloatArray, code: Codes) -> None:
        self.moments.update(x, code)
        self._roots = []

    def _scores(self, x: FloatArray) -> FloatArray:
        if not self._roots:
            pooled = self.moments.pooled(0.0)
            classes = range(len(self.moments.n))
            self._roots = [inverse_root(self.covariance(k, pooled)) for k in classes]
        score = np.empty((len(x), len(self._roots)))
        for k, (mean, root) in enumerate(zip(self.moments.mean, self._roots, strict=True)):
            white = (x - mean) @ root.T
            score[:, k] = np.log(np.diag(root)).sum() - 0.5 * np.einsum("nd,nd->n", white, white)
        return score - 0.5 * x.shape[1] * np.log(2 * np.pi) + np.log(self.moments.n)

    def score_samples(self, x: FloatArray) -> FloatArray:
        """log p(x) = logsumexp_k log p(x, k), in the units of the scaled inputs."""
        return logsumexp(self._scores(self.scaler(x)) - np.log(self.moments.n.sum()))

    @property
    def floats_stored(self) -> int:
        """Counts, means and one symmetric matrix per class."""
        return self.moments.floats
