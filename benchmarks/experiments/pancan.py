"""Supplement table, PANCAN: one task, tumour types in six batches of similar sample counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.stream import Array, Step, Stream, split_stratified, thin

BATCHES, ROOM = 6, 5
GENES = 2000
"""Features of the paper's own matrix; any other number of them is a stand-in."""
STAND_IN = (
    "664 microRNAs and 67 mRNA signature scores of 9,755 TCGA tumours (32 types) stand in for the "
    "paper's 2,000 genes of 10,535 tumours (33 types)"
)


def rooms_for(types: int) -> list[int]:
    """Five types a batch; the first has room for what is left over, 7 of 32 or 8 of 33."""
    return [types - ROOM * (BATCHES - 1), *[ROOM] * (BATCHES - 1)]


def batches_of_types(y: Array, rooms: Sequence[int]) -> list[list[str]]:
    """Types in descending count (ties by name), each to the least filled batch with room left."""
    names, counts = np.unique(y, return_counts=True)
    batches: list[list[str]] = [[] for _ in rooms]
    filled = [0] * len(rooms)
    for index in sorted(range(len(names)), key=lambda i: (-counts[i], names[i])):
        free = [b for b, room in enumerate(rooms) if len(batches[b]) < room]
        least = min(free, key=lambda b: filled[b])
        batches[least].append(str(names[index]))
        filled[least] += int(counts[index])
    return batches


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """An 80/20 split stratified by type under ``seed``, then the six batches."""
    arrays = data.read("pancan", folder)
    x, y = arrays["x"].astype(np.float32), arrays["y"]
    steps: list[Step] = []
    tests: list[Step] = []
    sides = split_stratified(y, seed)
    for types in batches_of_types(y, rooms_for(len(np.unique(y)))):
        for kept, side in zip((steps, tests), sides, strict=True):
            rows = side[np.isin(y[side], types)]
            step = Step(x[rows], y[rows], "pancan")
            kept.append(thin(step, 30) if quick else step)
    stand_in = "" if folder is None or x.shape[1] == GENES else STAND_IN
    return Stream("pancan", tuple(steps), tuple(tests), stand_in)
