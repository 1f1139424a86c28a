"""Elastic weight consolidation (Kirkpatrick et al., 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from benchmarks.rivals.mlp import FineTuning, GrowingMLP


def fisher_diagonal(net: GrowingMLP, rows: Tensor, columns: list[int]) -> list[Tensor]:
    """mean_x sum_y p(y | x) (d log p(y | x) / d theta)^2, with p the softmax over ``columns``."""
    named = {name: value.detach() for name, value in net.named_parameters()}

    def log_p(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(net, parameters, (x[None],))[0, columns]
        return logits.log_softmax(dim=0) @ y

    slopes = vmap(grad(log_p), in_dims=(None, None, 0))
    labels = torch.eye(len(columns), dtype=rows.dtype, device=rows.device)
    total = {name: torch.zeros_like(value) for name, value in named.items()}
    for x in rows:
        with torch.no_grad():
            p = net(x[None])[0, columns].softmax(dim=0)
        for block, weight in zip(labels.split(16), p.split(16), strict=True):
            for name, slope in slopes(named, x, block).items():
                total[name] += torch.einsum("y,y...->...", weight, slope**2)
    return [value / len(rows) for value in total.values()]


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
        terms = []
        for theta, f, ft in zip(net.parameters(), self.weight, self.pull, strict=True):
            old = theta[: len(f)]
            centre = ft / f.clamp_min(1e-30)
            terms.append((f * (old - centre) ** 2).sum())
        return 0.5 * self.strength * torch.stack(terms).sum()

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        chosen = torch.randperm(len(rows))[: self.fisher_rows].to(rows.device)
        task = self.pairs[int(target[0])][0]
        columns = [k for k, (name, _) in enumerate(self.pairs) if name == task]
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
