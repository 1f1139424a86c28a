"""Generative replay: a frozen teacher draws pseudo-data from the posterior predictive."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from clbruno.core.model import Model


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
    """

    model: Model
    size: int
    per_task: bool

    def draw(self, generator: torch.Generator) -> Replay:
        """Fresh pseudo-data, in float64 and scaled units; z and x where the model's flow is."""
        if self.per_task:
            tasks = range(len(self.model.registry.tasks))
            parts = [self.model.draw_cells(self.size, task, generator) for task in tasks]
            cells = torch.cat(parts)
        else:
            cells = balanced(len(self.model.registry.cells), self.size, generator)
        z, x = self.model.sample_latent(cells, generator)
        return Replay(z, x, cells)


def balanced(cells: int, size: int, generator: torch.Generator) -> Tensor:
    """`size` cells, each as often as any other to within one, which ones by chance."""
    order = torch.randperm(cells, generator=generator)
    return order.repeat(-(-size // cells))[:size].sort().values
