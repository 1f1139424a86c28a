"""Synaptic intelligence (Zenke, Poole and Ganguli, 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.rivals.mlp import FineTuning, GrowingMLP


class SI(FineTuning):
    """Adds strength sum Omega (theta - theta*)^2; Omega += w / ((theta - theta*)^2 + xi).

    w is the path integral of -(task gradient) x (parameter step) over the piece.
    """

    def __init__(self, strength: float = 1.0, xi: float = 1e-3, **others: Any) -> None:
        super().__init__(**others)
        self.strength = strength
        self.xi = xi
        self.path: list[Tensor] = []
        self.anchor: list[Tensor] = []
        self.omega: list[Tensor] = []
        self._last: list[tuple[Tensor, Tensor]] = []

    def _train(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        start = [parameter.detach().clone() for parameter in net.parameters()]
        self.path = [torch.zeros_like(value) for value in start]
        self.omega = _padded(self.omega, start, fill_from=None)
        self.anchor = _padded(self.anchor, start, fill_from=start)
        super()._train(net, rows, target)
        self._walk(net)

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor:
        terms = [
            (omega * (theta - anchor) ** 2).sum()
            for theta, omega, anchor in zip(net.parameters(), self.omega, self.anchor, strict=True)
        ]
        return self.strength * torch.stack(terms).sum()

    def _descend(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        self._walk(net)
        self.task_loss(net(rows), target).backward()
        theta = list(net.parameters())
        self._last = [(p.grad.clone(), p.detach().clone()) for p in theta if p.grad is not None]
        self._penalty(net, rows).backward()

    def _walk(self, net: GrowingMLP) -> None:
        """w <- w - g (theta - theta'), with g and theta' the task gradient and place before it."""
        for path, (g, before), theta in zip(self.path, self._last, net.parameters(), strict=False):
            path -= g * (theta.detach() - before)
        self._last = []

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        end = [parameter.detach().clone() for parameter in net.parameters()]
        for omega, path, now, anchor in zip(self.omega, self.path, end, self.anchor, strict=True):
            omega += path.clamp_min(0) / ((now - anchor) ** 2 + self.xi)
        self.anchor, self.path = end, []

    @property
    def floats_stored(self) -> int:
        """The network, its anchor and its importances."""
        return super().floats_stored + 2 * sum(omega.numel() for omega in self.omega)


def _padded(old: list[Tensor], shape: list[Tensor], fill_from: list[Tensor] | None) -> list[Tensor]:
    """Tensors as large as ``shape``: the old values first, then zeros or those of ``fill_from``."""
    fresh = [value.clone() for value in fill_from or [torch.zeros_like(s) for s in shape]]
    for new, before in zip(fresh, old, strict=False):
        new[: len(before)] = before
    return fresh
