"""Softmax regression, alone: on all data at once (ceiling), or on translated means (FeTrIL)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.rivals.base import Codes, PairRival
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray


def softmax_regression(
    x: FloatArray,
    code: Codes,
    classes: int,
    penalty: float,
    iterations: int = 100,
    device: str = "cpu",
) -> tuple[FloatArray, FloatArray]:
    """W, b minimising the mean cross-entropy of x W + b plus penalty |W|^2 / 2, by L-BFGS."""
    rows = torch.as_tensor(x, device=device)
    target = torch.as_tensor(code, dtype=torch.long, device=device)
    weight = rows.new_zeros(x.shape[1], classes, requires_grad=True)
    bias = rows.new_zeros(classes, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = cross_entropy(rows @ weight + bias, target) + 0.5 * penalty * (weight**2).sum()
        loss.backward()
        return loss

    solver.step(closure)
    return weight.detach().cpu().numpy(), bias.detach().cpu().numpy()


class JointLogistic(PairRival):
    """A ceiling: keeps every row and fits softmax regression on all of them at once."""

    joint: ClassVar[bool] = True

    def __init__(
        self,
        penalty: float = 1e-4,
        iterations: int = 100,
        scale: Scale = "standard",
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        super().__init__(scale, seed)
        self.penalty = penalty
        self.iterations = iterations
        self.device = device
        self.kept: list[tuple[FloatArray, Codes]] = []
        self._solution: tuple[FloatArray, FloatArray] | None = None

    def _learn(self, x: FloatArray, code: Codes) -> None:
        self.kept.append((x.astype(np.float32), code))
        self._solution = None

    def _scores(self, x: FloatArray) -> FloatArray:
        if self._solution is None:
            rows = np.concatenate([part for part, _ in self.kept])
            code = np.concatenate([part for _, part in self.kept])
            self._solution = softmax_regression(
                rows, code, len(self.pairs), self.penalty, self.iterations, self.device
            )
        weight, bias = self._solution
        return x @ weight + bias

    @property
    def floats_stored(self) -> int:
        """Every row."""
        return sum(rows.size for rows, _ in self.kept)


class FeTrIL(PairRival):
    """Old classes are replayed as new rows moved by m_old - m_new of the nearest new class.

    Nearest is by the cosine of the class means; the classifier is fitted anew at every step.
    """

    def __init__(
        self,
        penalty: float = 1e-4,
        iterations: int = 50,
        scale: Scale = "standard",
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        super().__init__(scale, seed)
        self.penalty = penalty
        self.iterations = iterations
        self.device = device
        self.mean = np.zeros((0, 0))
        self.n = np.zeros(0)
        self._solution: tuple[FloatArray, FloatArray] | None = None

    def translated(self, x: FloatArray, code: Codes, old: int) -> FloatArray:
        """Rows of the new class nearest to ``old``, moved so that their mean is the old one."""
        new = np.unique(code)
        centres = np.stack([x[code == k].mean(axis=0) for k in new])
        length = np.linalg.norm(centres, axis=1) * np.linalg.norm(self.mean[old])
        near = int(np.argmax(centres @ self.mean[old] / np.maximum(length, 1e-12)))
        rows = x[code == new[near]]
        return rows + self.mean[old] - centres[near]

    def _learn(self, x: FloatArray, code: Codes) -> None:
        absent = np.setdiff1d(np.arange(len(self.n)), code)
        replayed = [self.translated(x, code, int(old)) for old in absent]
        codes = [np.full(len(r), old) for r, old in zip(replayed, absent, strict=True)]
        self._update_means(x, code)
        rows = np.concatenate([x, *replayed]).astype(np.float32)
        self._solution = softmax_regression(
            rows,
            np.concatenate([code, *codes]),
            len(self.pairs),
            self.penalty,
            self.iterations,
            self.device,
        )

    def _update_means(self, x: FloatArray, code: Codes) -> None:
        more = len(self.pairs) - len(self.n)
        self.n = np.concatenate([self.n, np.zeros(more)])
        self.mean = np.concatenate(
            [self.mean.reshape(-1, x.shape[1]), np.zeros((more, x.shape[1]))]
        )
        for k in np.unique(code):
            rows = x[code == k]
            self.n[k] += len(rows)
            self.mean[k] += (rows - self.mean[k]).sum(axis=0) / self.n[k]

    def _scores(self, x: FloatArray) -> FloatArray:
        assert self._solution is not None
        weight, bias = self._solution
        return x @ weight + bias

    @property
    def floats_stored(self) -> int:
        """Class means and counts, and the linear classifier."""
        return 2 * self.mean.size + 2 * len(self.n)
