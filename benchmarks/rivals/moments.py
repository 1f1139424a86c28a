"""Counts, means and scatter of classes that arrive in pieces, updated by addition."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.rivals.base import Codes
from benchmarks.stream import FloatArray


class Moments:
    """n_k, m_k and scatter S_k = sum (x - m_k)(x - m_k)^T; pooled into one sum unless ``each``."""

    def __init__(self, each: bool = False) -> None:
        self.each = each
        self.n = np.zeros(0)
        self.mean = np.zeros((0, 0))
        self.scatter = np.zeros((0, 0, 0))

    def update(self, x: FloatArray, code: Codes) -> None:
        """S <- S + S_b + n n_b / (n + n_b) d d^T with d = m_b - m."""
        self._grow(int(code.max()) + 1, x.shape[1])
        for k in np.unique(code):
            rows = x[code == k]
            old, new = self.n[k], len(rows)
            gap = rows.mean(axis=0) - self.mean[k]
            centred = rows - rows.mean(axis=0)
            place = k if self.each else 0
            self.scatter[place] += centred.T @ centred
            self.scatter[place] += old * new / (old + new) * np.outer(gap, gap)
            self.mean[k] += new / (old + new) * gap
            self.n[k] = old + new

    def pooled(self, ridge: float) -> FloatArray:
        """P = sum_k S_k / (N - K), then (1 - ridge) P + ridge (tr P / D) I."""
        spare = max(self.n.sum() - len(self.n), 1.0)
        pooled = self.scatter.sum(axis=0) / spare
        dim = len(pooled)
        level = np.trace(pooled) / dim or 1.0
        return (1 - ridge) * pooled + ridge * level * np.eye(dim)

    @property
    def floats(self) -> int:
        """Numbers kept; a symmetric matrix counts D (D + 1) / 2."""
        dim = self.mean.shape[1]
        return self.n.size + self.mean.size + len(self.scatter) * dim * (dim + 1) // 2

    def _grow(self, classes: int, dim: int) -> None:
        more = classes - len(self.n)
        if not len(self.n):
            self.mean = np.zeros((0, dim))
            self.scatter = np.zeros((0 if self.each else 1, dim, dim))
        if more > 0:
            self.n = np.concatenate([self.n, np.zeros(more)])
            self.mean = np.concatenate([self.mean, np.zeros((more, dim))])
            if self.each:
                self.scatter = np.concatenate([self.scatter, np.zeros((more, dim, dim))])


def inverse_root(cov: FloatArray) -> FloatArray:
    """W = L^-1 for cov = L L^T, so that |W x|^2 = x^T cov^-1 x and log|W| = -log|cov| / 2."""
    root, eye = torch.from_numpy(np.linalg.cholesky(cov)), torch.eye(len(cov), dtype=torch.float64)
    return np.asarray(torch.linalg.solve_triangular(root, eye, upper=False))
