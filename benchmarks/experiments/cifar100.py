"""Table 1, S-CIFAR-100: one task, ten batches of ten classes, on 512-d features."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks import backbone, data
from benchmarks.data import Arrays
from benchmarks.stream import Step, Stream, thin

BATCHES, WIDTH = 10, 10


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """The shared features, frozen before any seed; the seed changes nothing."""
    return in_batches("cifar100", data.read("cifar100_resnet18", folder), quick)


def build_from_images(folder: Path | None, seed: int, quick: bool) -> Stream:
    """Features of a network trained here on the images of the first batch, one per seed."""
    name = backbone.file_name(seed)
    arrays = made_features(seed) if folder is None else data.read(name, folder)
    return in_batches("cifar100-images", arrays, quick)


@lru_cache(maxsize=1)
def made_features(seed: int) -> Arrays:
    """Features of made images by a small network."""
    small = backbone.Training(epochs=2, widths=(4, 4, 8, 8))
    return backbone.frozen_features(data.made_images(seed), seed, "cpu", small)


def in_batches(name: str, arrays: Arrays, quick: bool) -> Stream:
    """Batch i brings the classes 10 i to 10 i + 9, in label order."""
    steps: list[Step] = []
    tests: list[Step] = []
    for batch in range(3 if quick else BATCHES):
        low, high = batch * WIDTH, (batch + 1) * WIDTH
        for kept, part in ((steps, "train"), (tests, "test")):
            y = arrays[f"y_{part}"].astype(np.int64)
            rows = (y >= low) & (y < high)
            step = Step(arrays[f"x_{part}"][rows].astype(np.float32), y[rows], "cifar100")
            kept.append(thin(step, 40) if quick else step)
    return Stream(name, tuple(steps), tuple(tests))
