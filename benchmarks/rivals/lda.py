"""Streaming linear discriminant analysis (Hayes and Kanan, 2020)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from benchmarks.rivals.base import Codes, PairRival
from benchmarks.rivals.moments import Moments
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray


class StreamingLDA(PairRival):
    """log p(x, k) = m_k^T P^-1 x - m_k^T P^-1 m_k / 2 + log n_k with one pooled covariance P."""

    after_fit: ClassVar[tuple[str, ...]] = ("ridge",)

    def __init__(self, ridge: float = 1e-4, scale: Scale = "none", seed: int = 0) -> None:
        super().__init__(scale, seed)
        self.ridge = ridge
        self.moments = Moments()

    def _learn(self, x: FloatArray, code: Codes) -> None:
        self.moments.update(x, code)

    def _scores(self, x: FloatArray) -> FloatArray:
        mean = self.moments.mean
        weight = np.linalg.solve(self.moments.pooled(self.ridge), mean.T)
        bias = np.log(self.moments.n) - 0.5 * (mean.T * weight).sum(axis=0)
        return x @ weight + bias

    @property
    def floats_stored(self) -> int:
        """Counts, means and one symmetric matrix."""
        return self.moments.floats


class NearestMean(PairRival):
    """log p(x, k) = -|x - m_k|^2 / (2 s^2) with s^2 the mean pooled variance."""

    def __init__(self, scale: Scale = "standard", seed: int = 0) -> None:
        super().__init__(scale, seed)
        self.n = np.zeros(0)
        self.mean = np.zeros((0, 0))
        self.square = 0.0

    def _learn(self, x: FloatArray, code: Codes) -> None:
        more = int(code.max()) + 1 - len(self.n)
        if more > 0:
            self.n = np.concatenate([self.n, np.zeros(more)])
            old = self.mean.reshape(-1, x.shape[1])
            self.mean = np.concatenate([old, np.zeros((more, x.shape[1]))])
        for k in np.unique(code):
            rows = x[code == k]
            old, new = self.n[k], len(rows)
            gap = rows.mean(axis=0) - self.mean[k]
            self.square += ((rows - rows.mean(axis=0)) ** 2).sum()
            self.square += old * new / (old + new) * (gap**2).sum()
            self.mean[k] += new / (old + new) * gap
            self.n[k] = old + new

    def _scores(self, x: FloatArray) -> FloatArray:
        spare = max(self.n.sum() - len(self.n), 1.0) * x.shape[1]
        variance = self.square / spare or 1.0
        linear = x @ self.mean.T - 0.5 * (self.mean**2).sum(axis=1)
        return linear / variance

    @property
    def floats_stored(self) -> int:
        """Counts, means and one variance."""
        return self.n.size + self.mean.size + 1
