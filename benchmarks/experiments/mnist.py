"""Table 1, MNIST: five tasks of two digits, from pixels; task known and 10-way task unknown."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.stream import Step, Stream, thin

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """Pixels / 255 in the official split; the seed changes nothing."""
    arrays = data.read("mnist", folder)
    steps: list[Step] = []
    tests: list[Step] = []
    for pair in PAIRS:
        for kept, part in ((steps, "train"), (tests, "test")):
            y = arrays[f"y_{part}"].astype(np.int64)
            rows = np.isin(y, pair)
            x = arrays[f"x_{part}"][rows].astype(np.float32) / 255
            step = Step(x.reshape(len(x), -1), y[rows], f"{pair[0]}/{pair[1]}")
            kept.append(thin(step, 60) if quick else step)
    return Stream("mnist", tuple(steps), tuple(tests))
