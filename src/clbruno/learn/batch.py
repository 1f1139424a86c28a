"""A new batch of data as the learner sees it: rows, their cells, and a held-back share."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clbruno.data.scaling import Scaler
from clbruno.learn.distributed import ALONE, Group

ROWS = 4096
"""Rows that are read, scaled and mapped at a time."""


@dataclass(frozen=True)
class Batch:
    """Rows of data, where they lie, and the cell of each; nothing is copied until it is used.

    Attributes:
        x: all rows, an array or a memory map, shape `(n, D)`; in a process group this rank's.
        cell: cell of each row of `x`, in a process group of the rows of all ranks.
        rows: which rows belong to this batch, ascending.
        scaler: maps raw rows to scaled ones.
        group: the ranks that learn it; whoever takes rows gets those that are its own.
        start: position of the first row of `x` among the rows of all ranks.
    """

    x: NDArray[np.floating]
    cell: NDArray[np.int64]
    rows: NDArray[np.int64]
    scaler: Scaler
    group: Group = ALONE
    start: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def mine(self) -> range:
        """Positions within this batch of the rows that lie on this rank."""
        ends = np.searchsorted(self.rows, [self.start, self.start + len(self.x)])
        return range(int(ends[0]), int(ends[1])) if not self.group.alone else range(len(self))

    def raw(self, at: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Raw rows in float64 and their cells, for positions within this batch."""
        rows = self.rows[at]
        if not self.group.alone:
            rows = rows[(rows >= self.start) & (rows < self.start + len(self.x))]
        x = torch.from_numpy(np.array(self.x[rows - self.start], dtype=np.float64))
        return x, torch.from_numpy(self.cell[rows])

    def take(self, at: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Scaled rows in float64 and their cells, for positions within this batch."""
        x, cell = self.raw(at)
        return self.scaler.forward(x), cell

    def of_cell(self, cell: int) -> Iterator[Tensor]:
        """The scaled rows of one cell, in chunks that depend on nothing but that cell's rows."""
        mine = np.flatnonzero(self.cell[self.rows] == cell)
        for start in range(0, len(mine), ROWS):
            yield self.take(mine[start : start + ROWS])[0]

    @property
    def cells(self) -> list[int]:
        """The cells that occur, ascending."""
        return [int(cell) for cell in np.unique(self.cell[self.rows])]

    def split(self, share: float, rng: np.random.Generator) -> tuple["Batch", "Batch"]:
        """A training part and a held-back part with `share` of every cell's rows.

        A cell gives at least two rows where it has ten, and none where it has fewer: a class of
        a few samples needs all of them.
        """
        held: list[NDArray[np.int64]] = []
        for cell in self.cells:
            mine = np.flatnonzero(self.cell[self.rows] == cell)
            size = 0 if len(mine) < 10 or share == 0 else max(2, round(share * len(mine)))
            held.append(rng.permutation(mine)[:size])
        taken = np.zeros(len(self), dtype=bool)
        taken[np.concatenate(held)] = True
        parts = (self.rows[~taken], self.rows[taken])
        return tuple(replace(self, rows=part) for part in parts)  # type: ignore[return-value]
