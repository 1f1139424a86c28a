"""Self-sustaining representation expansion (Zhu et al., 2022), on vectors instead of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from benchmarks.rivals.mlp import FineTuning, GrowingMLP, frozen


class Expanded(nn.Module):
    """W x + b plus a side branch V x; only the branch learns, and merging is W <- W + V."""

    def __init__(self, main: nn.Linear) -> None:
        super().__init__()
        self.main = main.requires_grad_(False)
        self.side = nn.Parameter(torch.zeros_like(main.weight))

    def forward(self, x: Tensor) -> Tensor:
        """Both branches."""
        return self.main(x) + linear(x, self.side)

    def merged(self) -> nn.Linear:
        """One layer with the same answers."""
        self.main.weight.data += self.side.data
        return self.main.requires_grad_(True)


def similarity(features: Tensor, prototypes: Tensor) -> Tensor:
    """Largest cosine between each row and an old prototype."""
    return (normalize(features, dim=1) @ normalize(prototypes, dim=1).T).amax(dim=1)


class SSRE(FineTuning):
    """Side branches learn the new piece; old classes live on as prototypes with noise.

    Loss: cross-entropy + strength x (cross-entropy of prototypes + noise, and distillation of the
    features of those new rows that are nearer to an old prototype than the batch's median).
    """

    def __init__(self, strength: float = 1.0, noise: float = 1.0, **others: Any) -> None:
        super().__init__(**others)
        self.strength, self.noise = strength, noise
        self.prototypes = torch.zeros(0, self.hidden)
        self.owner = torch.zeros(0, dtype=torch.long)
        self.radius = 0.0
        self.teacher: GrowingMLP | None = None

    def _before(self, net: GrowingMLP) -> None:
        if len(net.bias):
            self.teacher = frozen(net)
            for place in (0, 2):
                layer = net.body[place]
                assert isinstance(layer, nn.Linear)
                net.body[place] = Expanded(layer)

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor | None:
        if self.teacher is None:
            return None
        chosen = torch.randint(len(self.owner), (len(rows),)).to(rows.device)
        spread = self.noise * self.radius * torch.randn(len(rows), self.hidden).to(rows.device)
        logits = linear(self.prototypes[chosen] + spread, net.weight, net.bias)
        kept = self.task_loss(logits, self.owner[chosen])
        old, new = self.teacher.body(rows), net.body(rows)
        near = similarity(old, self.prototypes)
        chosen_rows = (near >= near.median()).to(new)
        drift = (chosen_rows * ((new - old) ** 2).sum(dim=1)).sum() / chosen_rows.sum()
        return self.strength * (kept + drift)

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        if self.teacher is not None:
            for place in (0, 2):
                layer = net.body[place]
                assert isinstance(layer, Expanded)
                net.body[place] = layer.merged()
        self.teacher = None
        with torch.no_grad():
            features = net.body(rows)
        new = target.unique()
        means = torch.stack([features[target == code].mean(dim=0) for code in new])
        if not len(self.owner):
            spread = [features[target == code].var(dim=0, correction=0).mean() for code in new]
            self.radius = float(torch.stack(spread).mean().sqrt())
            self.prototypes = self.prototypes.to(rows.device)
            self.owner = self.owner.to(rows.device)
        kept = ~torch.isin(self.owner, new)
        self.prototypes = torch.cat([self.prototypes[kept], means])
        self.owner = torch.cat([self.owner[kept], new])

    @property
    def floats_stored(self) -> int:
        """The network and one prototype per class."""
        return super().floats_stored + self.prototypes.numel()
