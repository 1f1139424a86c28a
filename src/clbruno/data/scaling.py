"""The scale of the inputs, fixed at the first batch: later data do not exist yet."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROWS = 8192
"""Rows that are read at a time."""

BEND = 0.01
"""Where the soft root turns from a line into a root, in units of the typical spread."""

ROUNDING = 1e-9
"""Spread over mean under which a feature is constant but for rounding."""

STEPS = 16
"""The centre stands in the middle of a step of this share of the scale."""

MOSTLY_POSITIVE = 0.05
"""Share of negative entries under which features count as counts or rectified."""

DOMINANT = 0.75
"""Share of the variance in a tenth of the features above which they differ in units."""


@dataclass(frozen=True)
class Scaler:
    """x -> (g(x / unit) - center) / scale, per feature.

    g is the identity, or the soft signed root  g(u) = sign(u) (sqrt(|u| + b) - sqrt(b)), which
    pulls in the long right tail of counts and of rectified features and, unlike the plain root,
    has a finite slope at zero.

    Attributes:
        unit: one typical spread of the raw features, the same for all of them.
        root: whether g is the soft root.
        center: mean of g in the first batch to a sixteenth of the scale, shape `(D,)`: of a batch
            of one row, or of equal rows, the mean itself would be that row.
        scale: what it is divided by, shape `(D,)`.
    """

    unit: float
    root: bool
    center: Tensor
    scale: Tensor

    @classmethod
    def choose(cls, x: NDArray[np.floating]) -> "Scaler":
        """The scale that suits a first batch, by two rules that were measured on training data.

        The soft root where it at least halves the features' skewness and under one entry in twenty
        is negative; one common scale unless a tenth of the features carries most of the variance,
        which says that the features are in units of their own.
        """
        part = torch.from_numpy(np.array(x[:ROWS], dtype=np.float64))
        rooted = cls(_typical(part.std(0, correction=0)), True, torch.zeros(1), torch.ones(1))
        root = bool((part < 0).double().mean() < MOSTLY_POSITIVE) and 2 * _skewness(
            rooted.forward(part)
        ) <= _skewness(part)
        variance = part.var(0, correction=0).sort(descending=True).values
        top = variance[: max(1, len(variance) // 10)].sum()
        return cls.fit(x, common=bool(top <= DOMINANT * variance.sum()), root=root)

    @classmethod
    def fit(cls, x: NDArray[np.floating], *, common: bool, root: bool = False) -> "Scaler":
        """The scale of a first batch, in three streaming passes.

        Args:
            x: raw rows.
            common: one scale for all features, which keeps the ratios of their spreads (images,
                expression matrices); otherwise each feature's own spread (mixed units). A
                feature that hardly varied gets a floor: what was always zero may vary later.
            root: take the soft root first.
        """
        dim = x.shape[1]
        plain = cls(1.0, False, torch.zeros(dim).double(), torch.ones(dim).double())
        unit = _typical(_spread(plain, x)[1])
        raw = cls(unit, root, plain.center, plain.scale)
        center, spread = _spread(raw, x)
        typical = _typical(spread)
        scale = torch.full_like(spread, typical) if common else spread.clamp(min=0.01 * typical)
        step = scale / STEPS
        return cls(unit, root, ((center / step).floor() + 0.5) * step, scale)

    def taken(self, at: Tensor) -> "Scaler":
        """The scale of some features alone."""
        return Scaler(self.unit, self.root, self.center[at], self.scale[at])

    def forward(self, x: Tensor) -> Tensor:
        """Scale the rows of `x`."""
        u = x / self.unit
        if self.root:
            u = u.sign() * ((u.abs() + BEND).sqrt() - math.sqrt(BEND))
        return (u - self.center) / self.scale

    def inverse(self, z: Tensor) -> Tensor:
        """Undo the scaling."""
        u = z * self.scale + self.center
        if self.root:
            u = u.sign() * ((u.abs() + math.sqrt(BEND)).square() - BEND)
        return u * self.unit

    def ladj(self, x: Tensor) -> Tensor:
        """log|det| of the scaling at each row of `x`.

        sum_d [ log g'(x_d / unit) - log unit - log scale_d ],  g'(u) = 1 / (2 sqrt(|u| + b))
        """
        constant = -self.scale.log().sum() - x.shape[1] * math.log(self.unit)
        if not self.root:
            return constant.expand(len(x))
        slope = -0.5 * ((x / self.unit).abs() + BEND).log() - math.log(2)
        return constant + slope.sum(-1)


def _spread(scaler: Scaler, x: NDArray[np.floating]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the scaled columns."""
    center = torch.stack([part.sum(0) for part in _chunks(scaler, x)]).sum(0) / len(x)
    square = torch.stack([(part - center).square().sum(0) for part in _chunks(scaler, x)]).sum(0)
    spread = (square / len(x)).sqrt()
    return center, spread.where(spread > ROUNDING * center.abs(), 0.0)


def _chunks(scaler: Scaler, x: NDArray[np.floating]) -> Iterator[Tensor]:
    for start in range(0, len(x), ROWS):
        rows = np.array(x[start : start + ROWS], dtype=np.float64)
        yield scaler.forward(torch.from_numpy(rows))


def _skewness(x: Tensor) -> float:
    """Median of the absolute skewness of the columns that vary; 0 if none does."""
    rest = x - x.mean(0)
    variance = rest.square().mean(0)
    varies = variance > 0
    if not bool(varies.any()):
        return 0.0
    third = rest[:, varies].pow(3).mean(0)
    return float((third / variance[varies].pow(1.5)).abs().median())


def _typical(spread: Tensor) -> float:
    """Root mean square of the spreads; 1 where nothing varies."""
    return float(spread.square().mean().sqrt()) or 1.0
