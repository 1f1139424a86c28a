"""Elastic weight consolidation (Kirkpatrick et al., 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.rivals.mlp import FineTuning, GrowingMLP


def fisher_diagonal(net: GrowingMLP, rows: Tensor, columns: list[int]) -> list[Tensor]:
    """mean_x sum_y p(y | x) (d log p(y | x) / d theta)^2, with p the softmax over ``columns``.

    A weight's slope is (slope of its unit) x (its input), so the mean of squares needs no slope
    per weight: F_W = sum_x (sum_y p(y | x) slope^2) input^2 / N.
    """
    first, second = net.body[0], net.body[2]
    total = [torch.zeros_like(value) for value in net.parameters()]
    with torch.no_grad():
        one = first(rows).relu()
        two = second(one).relu()
        p = (linear(two, net.weight, net.bias)[:, columns]).softmax(dim=1)
        for place in range(len(columns)):
            gap = -p
            gap[:, place] += 1  # d log p(y | x) / d logits
            above = torch.zeros(len(rows), len(net.bias)).to(rows)
            above[:, columns] = gap
            deep = (above @ net.weight) * (two > 0)
            low = (deep @ second.weight) * (one > 0)
            for at, (slope, driver) in zip(
                (0, 4, 2), ((above, two), (deep, one), (low, rows)), strict=True
            ):
                weighed = p[:, place, None] * slope**2
                total[at] += weighed.T @ driver**2
                total[at + 1] += weighed.sum(dim=0)
    return [value / len(rows) for value in total]


class EWC(FineTuning):
    """Adds strength / 2 sum_t F_t (theta - theta_t)^2, kept as the sums of F_t and F_t theta_t."""

    def __init__(self, strength: float = 100.0, fisher_rows: int = 200, **others: Any) -> None:
        super().__init__(**others)
        self.strength = strength
        self.fisher_rows = fisher_rows
        self.weight: list[Tensor] = []
        self.pull: list[Tensor] = []

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor | None:
        if not self.weight:
            return None
        old = [theta[: len(f)] for theta, f in zip(net.parameters(), self.weight, strict=True)]
        gap = torch.cat([theta.flatten() for theta in old]) - self._centre
        return 0.5 * self.strength * (self._stiffness * gap**2).sum()

    def _before(self, net: GrowingMLP) -> None:
        """sum_t F_t (theta - theta_t)^2 = F (theta - c)^2 + a constant, F c = sum_t F_t theta_t."""
        if self.weight:
            self._stiffness = torch.cat([f.flatten() for f in self.weight])
            pull = torch.cat([ft.flatten() for ft in self.pull])
            self._centre = pull / self._stiffness.clamp_min(1e-30)

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        chosen = torch.randperm(len(rows))[: self.fisher_rows].to(rows.device)
        columns = target.unique().tolist() if self.over == "piece" else [*range(len(self.pairs))]
        new = fisher_diagonal(net, rows[chosen], columns)
        theta = [parameter.detach() for parameter in net.parameters()]
        pull = [f * value for f, value in zip(new, theta, strict=True)]
        if self.weight:
            new = [_padded_sum(f, old) for f, old in zip(new, self.weight, strict=True)]
            pull = [_padded_sum(f, old) for f, old in zip(pull, self.pull, strict=True)]
        self.weight, self.pull = new, pull

    @property
    def floats_stored(self) -> int:
        """The network and two numbers per parameter."""
        return super().floats_stored + 2 * sum(f.numel() for f in self.weight)


def _padded_sum(new: Tensor, old: Tensor) -> Tensor:
    """Add ``old`` to the first rows of ``new``, whose head may have grown."""
    total = new.clone()
    total[: len(old)] += old
    return total
