"""Supplement B.1: four tasks on circles in 1,000 dimensions, learned in five increments."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.stream import Step, Stream

TASKS = 4
TRAIN, TEST = 500, 1000


def draw(rng: np.random.Generator, task: int, rows: int, dim: int) -> Step:
    """y ~ Unif{1..t+1}; x | y ~ N(mu, I/2), mu_d = sqrt(t) sin or cos of 2 pi y / (t+1).

    Dimensions are counted from 1: the odd ones take the sine, the even ones the cosine.
    """
    y = rng.integers(1, task + 2, rows)
    angle = 2 * np.pi * y[:, None] / (task + 1)
    odd = np.arange(1, dim + 1) % 2 == 1
    mean = np.sqrt(task) * np.where(odd, np.sin(angle), np.cos(angle))
    x = mean + np.sqrt(0.5) * rng.standard_normal((rows, dim))
    return Step(x.astype(np.float32), y, f"task {task}")


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """Tasks 1 to 3 whole, then task 4 as its classes 1-3 and its classes 4-5."""
    rng = np.random.default_rng(seed)
    dim, shrink = (40, 4) if quick else (1000, 1)
    steps: list[Step] = []
    tests: list[Step] = []
    for task in range(1, TASKS + 1):
        train = draw(rng, task, TRAIN // shrink, dim)
        test = draw(rng, task, TEST // shrink, dim)
        parts = [(1, 3), (4, 5)] if task == TASKS else [(1, task + 1)]
        for low, high in parts:
            for kept, whole in ((steps, train), (tests, test)):
                kept.append(whole.rows(np.flatnonzero((whole.y >= low) & (whole.y <= high))))
    return Stream("synthetic", tuple(steps), tuple(tests))
