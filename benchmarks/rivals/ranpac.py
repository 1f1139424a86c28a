"""RanPAC: ridge regression on a frozen random ReLU layer (McDonnell et al., 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from benchmarks.rivals.base import Codes, PairRival
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray

BLOCK = 4096


class RanPAC(PairRival):
    """Scores phi(x)^T W / s^2, W = (G + lam I)^-1 C, G = sum phi phi^T, C = sum phi e_y^T.

    phi = relu(x A). With s^2 the mean squared residual, the scores are the log-posterior of
    one-hot targets with Gaussian noise, so that they can be summed over tasks as probabilities.
    lam = ridge x tr G / M. Features and their block products are float32, the sums float64.
    """

    after_fit: ClassVar[tuple[str, ...]] = ("ridge",)

    def __init__(
        self, width: int = 5000, ridge: float = 1e-3, scale: Scale = "none", seed: int = 0
    ) -> None:
        super().__init__(scale, seed)
        self.width = width
        self.ridge = ridge
        self.layer = np.zeros((0, width), dtype=np.float32)
        self.gram = np.zeros((width, width))
        self.cross = np.zeros((width, 0))
        self.count = 0
        self._weight: FloatArray | None = None

    def change(self, **settings: float) -> None:
        """Set the ridge; the weights are solved for anew."""
        super().change(**settings)
        self._weight = None

    def features(self, x: FloatArray) -> FloatArray:
        """relu(x A) with A fixed before any data, columns of unit expected length."""
        return np.maximum(x.astype(np.float32) @ self.layer, 0)

    def _learn(self, x: FloatArray, code: Codes) -> None:
        if not len(self.layer):
            rng = np.random.default_rng(self.seed)
            layer = rng.standard_normal((x.shape[1], self.width)) / np.sqrt(x.shape[1])
            self.layer = layer.astype(np.float32)
        more = len(self.pairs) - self.cross.shape[1]
        self.cross = np.concatenate([self.cross, np.zeros((self.width, more))], axis=1)
        for start in range(0, len(x), BLOCK):
            phi = self.features(x[start : start + BLOCK])
            self.gram += phi.T @ phi
            onehot = np.eye(len(self.pairs), dtype=np.float32)[code[start : start + BLOCK]]
            self.cross += phi.T @ onehot
        self.count += len(x)
        self._weight = None

    def _scores(self, x: FloatArray) -> FloatArray:
        if self._weight is None:
            lam = self.ridge * np.trace(self.gram) / self.width
            gram = torch.from_numpy(self.gram + lam * np.eye(self.width))
            root = torch.linalg.cholesky(gram)
            weight = np.asarray(torch.cholesky_solve(torch.from_numpy(self.cross), root))
            self._weight = weight / self._residual(weight)
        blocks = range(0, len(x), BLOCK)
        return np.concatenate([self.features(x[b : b + BLOCK]) @ self._weight for b in blocks])

    def _residual(self, weight: FloatArray) -> float:
        """s^2 = sum |e_y - W^T phi|^2 / (N K), from the sums alone; N = sum |e_y|^2."""
        cross, quadratic = (weight * self.cross).sum(), (weight * (self.gram @ weight)).sum()
        rows = self.count * weight.shape[1]
        return float(max((self.count - 2 * cross + quadratic) / rows, 1e-6))

    @property
    def floats_stored(self) -> int:
        """The random layer, one symmetric matrix and one vector per class."""
        return self.layer.size + self.width * (self.width + 1) // 2 + self.cross.size
