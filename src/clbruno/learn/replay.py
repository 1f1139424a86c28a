"""Generative replay: a frozen teacher draws pseudo-data from the posterior predictive."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clbruno.core.model import Model
from clbruno.learn.distributed import ALONE, Group

BLOCK = 4096
"""Pseudo-samples that are drawn at a time, for as many steps as they serve."""


class Replay(NamedTuple):
    """Pseudo-data: latents z', features x' = f_old^-1(z'; cell), cells (paper, section 3.1)."""

    z: Tensor
    x: Tensor
    cell: Tensor


@dataclass(frozen=True)
class Teacher:
    """The model before the update. It is only read.

    Attributes:
        model: the old model.
        size: N', pseudo-samples per draw (per task and draw if `per_task`).
        per_task: the paper's N' for every task, labels by their proportions; otherwise `size`
            for all tasks together, balanced over the cells.
        group: the ranks that share a draw: each gets its part of what one process would draw.
    """

    model: Model
    size: int
    per_task: bool
    group: Group = ALONE

    def draw(self, generator: torch.Generator) -> Replay:
        """Fresh pseudo-data in scaled units, in the precision and where the model's flow is."""
        return Replay(*(part[0] for part in self._of([self._cells(generator)], generator)))

    def draws(self, generator: torch.Generator) -> Iterator[Replay]:
        """Fresh pseudo-data again and again; many draws share one pass of the inverse flow."""
        while True:
            first = self._cells(generator)
            more = [self._cells(generator) for _ in range(BLOCK // len(first) - 1)]
            yield from map(Replay, *self._of([first, *more], generator))

    def _of(self, draws: list[Tensor], generator: torch.Generator) -> list[tuple[Tensor, ...]]:
        """Latents, rows and cells of some draws of equal size; this rank's part of each draw.

        All ranks draw all latents, from one seed; the flow, which costs more, is run for a part.
        """
        each = torch.arange(len(draws[0]))[self.group.share(len(draws[0]))]
        at = (torch.arange(len(draws))[:, None] * len(draws[0]) + each).flatten()
        cells = torch.cat(draws)
        z, x = self.model.sample_latent(cells, generator, None if self.group.alone else at)
        parts = (z, x, cells[at].to(z.device))
        return [part.unflatten(0, (len(draws), len(each))).unbind() for part in parts]

    def _cells(self, generator: torch.Generator) -> Tensor:
        names = self.model.registry
        if not self.per_task:
            return balanced(len(names.cells), self.size, generator)
        tasks = range(len(names.tasks))
        return torch.cat([self.model.draw_cells(self.size, task, generator) for task in tasks])


def balanced(cells: int, size: int, generator: torch.Generator) -> Tensor:
    """`size` cells, each as often as any other to within one, which ones by chance."""
    order = torch.randperm(cells, generator=generator)
    return order.repeat(-(-size // cells))[:size].sort().values
