"""Table 1, S-CIFAR-100: one task, ten batches of ten classes, on frozen 512-d features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.stream import Step, Stream, thin

BATCHES, WIDTH = 10, 10


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """Batch i brings the classes 10 i to 10 i + 9, in label order; the seed changes nothing."""
    arrays = data.read("cifar100_resnet18", folder)
    steps: list[Step] = []
    tests: list[Step] = []
    for batch in range(3 if quick else BATCHES):
        low, high = batch * WIDTH, (batch + 1) * WIDTH
        for kept, part in ((steps, "train"), (tests, "test")):
            y = arrays[f"y_{part}"].astype(np.int64)
            rows = (y >= low) & (y < high)
            step = Step(arrays[f"x_{part}"][rows].astype(np.float32), y[rows], "cifar100")
            kept.append(thin(step, 40) if quick else step)
    return Stream("cifar100", tuple(steps), tuple(tests))
