"""One normalising flow per class: Real-NVP couplings with exact densities."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rivals.vae import OnePerClass


class Coupling(nn.Module):
    """y_B = x_B exp(s(x_A)) + m(x_A), y_A = x_A; s is bounded by tanh; starts as the identity."""

    mask: Tensor

    def __init__(self, mask: Tensor, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        dim = len(mask)
        last = nn.Linear(hidden, 2 * dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), last)

    def shift_and_scale(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """m and s, zero on the kept half."""
        shift, raw = self.net(kept).chunk(2, dim=-1)
        return shift * (1 - self.mask), 2 * torch.tanh(raw / 2) * (1 - self.mask)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """y and log|det dy/dx| = sum s."""
        shift, scale = self.shift_and_scale(x * self.mask)
        return x * scale.exp() + shift, scale.sum(dim=-1)

    def inverse(self, y: Tensor) -> Tensor:
        """x_B = (y_B - m) exp(-s)."""
        shift, scale = self.shift_and_scale(y * self.mask)
        return (y - shift) * (-scale).exp()


class RealNVP(nn.Module):
    """Couplings over random halves behind one affine map per dimension, base N(0, I)."""

    def __init__(self, dim: int, hidden: int, couplings: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_width = nn.Parameter(torch.zeros(dim))
        masks: list[Tensor] = []
        for index in range(couplings):
            odd = torch.randperm(dim) % 2 == 0 if index % 2 == 0 else masks[-1] == 0
            masks.append(odd.float())
        self.couplings = nn.ModuleList(Coupling(mask, hidden) for mask in masks)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and log|det dz/dx|."""
        z = (x - self.shift) * (-self.log_width).exp()
        total = -self.log_width.sum().expand(len(x))
        for coupling in self.couplings:
            z, ladj = coupling(z)
            total = total + ladj
        return z, total

    def inverse(self, z: Tensor) -> Tensor:
        """x with forward(x) = z."""
        for coupling in reversed(self.couplings):
            assert isinstance(coupling, Coupling)
            z = coupling.inverse(z)
        return z * self.log_width.exp() + self.shift

    def log_prob(self, x: Tensor) -> Tensor:
        """log N(z; 0, I) + log|det dz/dx|."""
        z, ladj = self(x)
        return ladj - 0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=-1)


class ClassFlows(OnePerClass):
    """One flow per class, on inputs with uniform noise of width ``noise`` while training."""

    def __init__(self, couplings: int = 6, noise: float = 0.1, **others: Any) -> None:
        super().__init__(**others)
        self.couplings, self.noise = couplings, noise

    def make(self, rows: Tensor) -> RealNVP:
        """A flow that starts as the standardisation of the rows with their noise."""
        flow = RealNVP(rows.shape[1], self.hidden, self.couplings)
        variance = rows.var(dim=0, correction=0) + self.noise**2 / 12
        flow.shift.data = (rows.mean(dim=0) + self.noise / 2).cpu()
        flow.log_width.data = 0.5 * variance.log().cpu()
        return flow

    def loss(self, model: RealNVP, rows: Tensor) -> Tensor:
        """-log p(x + u), u ~ Unif(0, noise)."""
        return -model.log_prob(rows + self.noise * torch.rand_like(rows))

    def log_density(self, model: RealNVP, rows: Tensor) -> Tensor:
        """log p(x + noise / 2)."""
        return model.log_prob(rows + self.noise / 2)
