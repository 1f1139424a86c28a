"""Sufficient statistics of an exchangeable Gaussian sequence: count, mean, centred scatter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clbruno.errors import InputError


@dataclass(frozen=True)
class Moments:
    """All that is kept of a sequence z_1 .. z_n in R^D; merging two sequences is addition.

        mean = (1/n) sum_i z_i
        scatter = sum_i (z_i - mean)^2           per dimension, shape (D,), or
        scatter = sum_i (z_i - mean)(z_i - mean)'  in full, shape (D, D)

    The scatter is centred because the raw sum of squares loses all digits of a small variance
    around a large mean; with (S, Q) of the papers, S = n mean and Q = scatter + n mean^2.

    Attributes:
        count: n, a float: exact to 2^53, so to 1e9 and far beyond.
        mean: shape `(D,)`.
        scatter: shape `(D,)` or `(D, D)`.
    """

    count: float
    mean: Tensor
    scatter: Tensor

    @classmethod
    def empty(cls, dim: int, *, full: bool) -> "Moments":
        """The statistics of no samples, in float64."""
        shape = (dim, dim) if full else (dim,)
        zeros = torch.zeros(dim, dtype=torch.float64)
        return cls(0.0, zeros, torch.zeros(shape, dtype=torch.float64))

    @classmethod
    def of(cls, z: Tensor, *, full: bool) -> "Moments":
        """The statistics of the rows of `z`, differentiable, in the precision of `z`."""
        if z.ndim != 2 or z.shape[0] == 0:
            raise InputError(
                f"statistics need at least one row of features, got an array of shape "
                f"{tuple(z.shape)}"
            )
        mean = z.mean(0)
        rest = z - mean
        return cls(float(z.shape[0]), mean, rest.mT @ rest if full else rest.square().sum(0))

    @property
    def full(self) -> bool:
        """Whether the scatter is a matrix."""
        return self.scatter.ndim == 2

    def merge(self, other: "Moments") -> "Moments":
        """The statistics of both sequences together.

        n = n_a + n_b,  gap = mean_b - mean_a
        mean = mean_a + (n_b / n) gap
        scatter = scatter_a + scatter_b + (n_a n_b / n) gap gap'
        """
        if self.count == 0:
            return other
        if other.count == 0:
            return self
        count = self.count + other.count
        gap = other.mean - self.mean
        cross = torch.outer(gap, gap) if self.full else gap.square()
        return Moments(
            count,
            (self.count * self.mean + other.count * other.mean) / count,
            self.scatter + other.scatter + (self.count * other.count / count) * cross,
        )

    def without(self, other: "Moments") -> "Moments":
        """The statistics of the rest, where `other` is a part of this sequence: `merge` undone.

        n = n_ab - n_b,  mean = (n_ab mean_ab - n_b mean_b) / n,  gap = mean_b - mean
        scatter = scatter_ab - scatter_b - (n n_b / n_ab) gap gap'
        """
        if other.count == 0:
            return self
        count = self.count - other.count
        if not count > 0:
            raise InputError(f"a part has {other.count:g} samples, and the whole {self.count:g}")
        mean = (self.count * self.mean - other.count * other.mean) / count
        gap = other.mean - mean
        cross = torch.outer(gap, gap) if self.full else gap.square()
        rest = self.scatter - other.scatter - (count * other.count / self.count) * cross
        return Moments(count, mean, rest)

    @classmethod
    def stream(cls, chunks: Iterable[Tensor], dim: int, *, full: bool) -> "Moments":
        """The statistics of a stream of chunks, in float64, one chunk in memory at a time."""
        total = cls.empty(dim, full=full)
        for z in chunks:
            if z.shape[0]:
                total = total.merge(cls.of(z.double(), full=full))
        return total


def merged(*parts: Mapping[int, Moments]) -> dict[int, Moments]:
    """The statistics of several sets of samples together, cell by cell."""
    total: dict[int, Moments] = {}
    for part in parts:
        for cell, seen in part.items():
            total[cell] = total[cell].merge(seen) if cell in total else seen
    return total
