"""Figures of a run, each a plain function of answers and truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.stream import Array, FloatArray

BINS = 15
FLOOR = float(np.exp(-708.0))
Truth = NDArray[np.intp]


def accuracy(proba: FloatArray, truth: Truth) -> float:
    """Share of rows whose most probable column is the true one."""
    return float((proba.argmax(axis=1) == truth).mean())


def columns_of(names: Array, values: Array) -> Truth:
    """Column of each value in ``names``, in whatever order they stand; -1 where it is absent."""
    place = {name: column for column, name in enumerate(np.asarray(names).tolist())}
    return np.array([place.get(value, -1) for value in np.asarray(values).tolist()], dtype=np.intp)


def nll(proba: FloatArray, truth: Truth) -> float:
    """Mean of -log p(truth), with p floored at exp(-708)."""
    return float(-np.log(np.maximum(proba[np.arange(len(truth)), truth], FLOOR)).mean())


def ece(proba: FloatArray, truth: Truth, bins: int = BINS) -> float:
    """sum_b n_b / n |accuracy_b - confidence_b| over equal bins of the largest probability."""
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == truth
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    total = 0.0
    for b in range(bins):
        inside = place == b
        if inside.any():
            gap = right[inside].mean() - confidence[inside].mean()
            total += float(inside.mean() * abs(gap))
    return total


def final_average(matrix: FloatArray) -> float:
    """Mean over test sets of the last row of A[i, j], accuracy on test j after step i."""
    return float(matrix[-1].mean())


def average_incremental(matrix: FloatArray) -> float:
    """Mean over i of the mean of A[i, j] over j <= i."""
    return float(np.mean([matrix[i, : i + 1].mean() for i in range(len(matrix))]))


def forgetting(matrix: FloatArray) -> float | None:
    """Mean over j < T of max_{j <= i < T} A[i, j] - A[T, j]."""
    last = len(matrix) - 1
    if last < 1:
        return None
    drops = [matrix[j:last, j].max() - matrix[last, j] for j in range(last)]
    return float(np.mean(drops))


def backward_transfer(matrix: FloatArray) -> float | None:
    """Mean over j < T of A[T, j] - A[j, j]."""
    last = len(matrix) - 1
    if last < 1:
        return None
    return float(np.mean([matrix[last, j] - matrix[j, j] for j in range(last)]))


def forward_transfer(matrix: FloatArray, chance: float, seen: NDArray[np.bool_]) -> float | None:
    """Mean of A[j - 1, j] - chance over the tests whose labels were all seen before step j.

    A batch that brings new labels cannot be answered before it is learned, so it does not count.
    """
    steps = [j for j in range(1, len(matrix)) if seen[j]]
    if not steps:
        return None
    return float(np.mean([matrix[j - 1, j] - chance for j in steps]))


def auroc(inlier: FloatArray, outlier: FloatArray) -> float:
    """P(inlier score > outlier score) + P(equal) / 2."""
    order = np.sort(inlier)
    below = np.searchsorted(order, outlier, side="left")
    upto = np.searchsorted(order, outlier, side="right")
    return float(1 - (below + upto).mean() / (2 * len(inlier)))
