"""Rows of a batch as training needs them: scaled, in its precision, where the flow is."""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from clbruno.core.moments import Moments, merged
from clbruno.learn.batch import ROWS, Batch
from clbruno.learn.student import Student

KEPT = 2**25
"""Most numbers that stay, 128 MB in float32; larger batches are read again in every epoch."""


class Jitter(NamedTuple):
    """Noise for training rows: its standard deviation, and where it comes from."""

    size: float
    generator: torch.Generator


class Rows:
    """The rows of a batch and their cells on the device that trains.

    Args:
        batch: where they are read from.
        like: tells the precision and the device.
    """

    def __init__(self, batch: Batch, like: Tensor) -> None:
        self.batch = batch
        self.like = like
        self.mine = batch.mine
        self.kept = batch.x.shape[1] * len(self.mine) <= KEPT

    def take(self, at: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Some rows, in any order; in a process group this rank's of them."""
        at = at[(at >= self.mine.start) & (at < self.mine.stop)]
        if self.kept:
            index = torch.from_numpy(at - self.mine.start).to(self.like.device)
            return self._all[0][index], self._all[1][index]
        ascending = np.sort(at)  # as a file is read best
        x, cell = self._read(ascending)
        index = torch.from_numpy(np.searchsorted(ascending, at)).to(self.like.device)
        return x[index], cell[index]

    def shuffled(
        self, size: int, rng: np.random.Generator, jitter: Jitter | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass in random order by exchangeable subsequences, at most `size` rows each.

        All have the same length; the few rows that this leaves over wait for the next pass.
        """
        order = rng.permutation(len(self.batch))
        steps = -(-len(order) // size)
        length = len(order) // steps
        block = length * max(1, ROWS // length) if self.batch.group.alone else length
        for start in range(0, length * steps, block):
            at = order[start : min(start + block, length * steps)]
            x, cell = self._jittered(at, length, jitter)
            if not self.batch.group.alone:
                yield x, cell  # as many of a step's rows as lie on this rank
                continue
            yield from zip(x.split(length), cell.split(length), strict=True)

    def first(self, most: int, jitter: Jitter | None = None) -> tuple[Tensor, Tensor]:
        """The first rows, `most` of them at most."""
        at = np.arange(min(len(self.batch), most))
        return self._jittered(at, len(at), jitter)

    def _jittered(
        self, at: NDArray[np.int64], each: int, jitter: Jitter | None
    ) -> tuple[Tensor, Tensor]:
        """x + jitter e of some rows, `each` of them to a draw of e.

        Ranks draw e for the rows of all of them, so that it does not depend on where a row lies.
        """
        x, cell = self.take(at)
        if jitter is None:
            return x, cell
        shape, draws = (each, x.shape[1]), len(at) // max(each, 1)
        noise = [torch.randn(shape, generator=jitter.generator) for _ in range(draws)]
        here = torch.from_numpy((at >= self.mine.start) & (at < self.mine.stop))
        return x + jitter.size * torch.cat(noise)[here].to(x), cell

    def moments(self, student: Student) -> dict[int, Moments]:
        """Statistics of each cell per dimension under the student, in one pass over all rows.

        Sums are float64, but which rows share a sum depends on where they lie: good enough to
        score an epoch, not to be kept.
        """
        total: dict[int, Moments] = {}
        for at in self._blocks():
            x, cell = self.take(at)
            z = student.flow(x, student.context(cell))[0].double()
            names, place = cell.unique(return_inverse=True)
            member = one_hot(place, len(names)).double()
            n = member.sum(0)
            mean = member.mT @ z / n[:, None]
            scatter = member.mT @ (z - member @ mean).square()
            sums = zip(n.tolist(), mean.cpu(), scatter.cpu(), strict=True)
            parts = dict(zip(names.tolist(), (Moments(*each) for each in sums), strict=True))
            total = merged(total, parts)
        if self.batch.group.alone:
            return total
        nothing = Moments.empty(self.batch.x.shape[1], full=False)
        return self.batch.group.merged({at: total.get(at, nothing) for at in self.batch.cells})

    def pooled(self, student: Student, cells: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of the rows under the student: count and mean of every cell, and their pooled scatter.

        Two passes in the precision of training: good enough for the laws of an epoch.
        """
        dim, group = self.batch.x.shape[1], self.batch.group
        total = self.like.new_zeros((cells, dim), dtype=torch.float64)
        count = self.like.new_zeros(cells, dtype=torch.float64)
        scatter = self.like.new_zeros((dim, dim), dtype=torch.float64)
        with torch.no_grad():
            for z, cell in self._latents(student):
                total.index_add_(0, cell, z.double())
                count += torch.bincount(cell, minlength=cells)
            total, count = group.sum(total), group.sum(count)
            mean = total / count.clamp(min=1)[:, None]
            for z, cell in self._latents(student):
                rest = z - mean.to(z)[cell]
                scatter += (rest.mT @ rest).double()
        return count.cpu(), mean.cpu(), group.sum(scatter).cpu()

    def _latents(self, student: Student) -> Iterator[tuple[Tensor, Tensor]]:
        for at in self._blocks():
            x, cell = self.take(at)
            yield student.flow(x, student.context(cell))[0], cell

    def _blocks(self) -> list[NDArray[np.int64]]:
        """The positions of this rank's rows, some at a time."""
        starts = self.mine[::ROWS]
        return [np.arange(start, min(start + ROWS, self.mine.stop)) for start in starts]

    @cached_property
    def _all(self) -> tuple[Tensor, Tensor]:
        parts = [self._read(at) for at in self._blocks() or [np.arange(0)]]
        return torch.cat([x for x, _ in parts]), torch.cat([cell for _, cell in parts])

    def _read(self, at: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        x, cell = self.batch.take(at)
        return x.to(self.like), cell.to(self.like.device)
