"""Learning without forgetting (Li and Hoiem, 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.rivals.mlp import FineTuning, GrowingMLP, frozen


def distillation(new: Tensor, old: Tensor, heat: float) -> Tensor:
    """heat^2 KL(softmax(old / heat) || softmax(new / heat)), mean over rows."""
    target = (old / heat).log_softmax(dim=1)
    answer = (new / heat).log_softmax(dim=1)
    return heat**2 * (target.exp() * (target - answer)).sum(dim=1).mean()


class LwF(FineTuning):
    """Adds strength x the distillation of each old head from the network before this piece.

    The distillation acts on the new rows; gradients flow through the student alone.
    """

    def __init__(self, strength: float = 1.0, heat: float = 2.0, **others: Any) -> None:
        super().__init__(**others)
        self.strength = strength
        self.heat = heat
        self.teacher: GrowingMLP | None = None

    def _before(self, net: GrowingMLP) -> None:
        self.teacher = frozen(net) if len(net.bias) else None

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor | None:
        if self.teacher is None:
            return None
        old, new = self.teacher(rows), net(rows)
        terms = [distillation(new[:, k], old[:, k], self.heat) for k in self.heads(old.shape[1])]
        return self.strength * torch.stack(terms).sum()

    def heads(self, pairs: int) -> list[slice | list[int]]:
        """Old columns that one softmax goes over: all of them, or those of each task."""
        if self.over == "all" or len(self.tasks_) == 1:
            return [slice(pairs)]
        first = list(enumerate(self.pairs[:pairs]))
        lists = [[k for k, (name, _) in first if name == task] for task in self.tasks_]
        return [columns for columns in lists if columns]

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        self.teacher = None
