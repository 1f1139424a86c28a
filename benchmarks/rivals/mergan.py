"""MeRGAN with replay alignment (Wu et al., 2018): a conditional GAN that replays itself."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from benchmarks.rivals.mlp import GrowingMLP
from benchmarks.rivals.replay import GenerativeReplay


class ConditionalGAN(nn.Module):
    """G(z, c), in [0, 1] for pixels, and a critic that tells real from made and names the class."""

    def __init__(self, dim: int, hidden: int, latent: int, most: int, pixels: bool = True) -> None:
        super().__init__()
        self.latent, self.most = latent, most
        self.generator = nn.Sequential(
            nn.Linear(latent + most, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, dim), nn.Sigmoid() if pixels else nn.Identity(),
        )  # fmt: skip
        self.critic = nn.Sequential(
            nn.Linear(dim, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2)
        )
        self.verdict = nn.Linear(hidden, 1)
        self.naming = nn.Linear(hidden, most)

    def make(self, z: Tensor, code: Tensor) -> Tensor:
        """G(z, c)."""
        return self.generator(torch.cat([z, one_hot(code, self.most).to(z)], dim=1))

    def critic_loss(self, real: Tensor, made: Tensor, code: Tensor) -> Tensor:
        """E v(made) - E v(real) + 10 E (|grad v| - 1)^2 between them + cross-entropy of real rows.

        The gradient penalty (Gulrajani et al., 2017) is taken at random points between pairs.
        """
        seen, fake = self.critic(real), self.critic(made.detach())
        share = torch.rand(len(real), 1).to(real.device)
        between = (share * real + (1 - share) * made.detach()).requires_grad_()
        height = self.verdict(self.critic(between)).sum()
        slope = torch.autograd.grad(height, between, create_graph=True)[0]
        penalty = 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        gap = self.verdict(fake).mean() - self.verdict(seen).mean()
        return gap + penalty + cross_entropy(self.naming(seen), code)

    def generator_loss(self, made: Tensor, code: Tensor) -> Tensor:
        """-E v(made) + cross-entropy of the class that was asked for."""
        seen = self.critic(made)
        return cross_entropy(self.naming(seen), code) - self.verdict(seen).mean()


def alignment(new: ConditionalGAN, old: ConditionalGAN, z: Tensor, code: Tensor) -> Tensor:
    """E |G_new(z, c) - G_old(z, c)|^2 over the old classes, summed over pixels."""
    return ((new.make(z, code) - old.make(z, code)) ** 2).sum(dim=1).mean()


class MeRGAN(GenerativeReplay):
    """A solver trained on new rows and on rows that the previous generator makes of old classes.

    The adversarial game is played over the new rows alone; ``strength`` x the alignment holds the
    generator to its old self on old classes.
    """

    def __init__(self, strength: float = 1.0, most: int = 32, **others: Any) -> None:
        super().__init__(**others)
        self.strength, self.most = strength, most

    def replayed(self, net: GrowingMLP, rows: int) -> tuple[Tensor, Tensor]:
        """Rows of old classes, as many of each, with the class that was asked for."""
        device = next(net.parameters()).device
        code = torch.randint(len(net.bias), (rows,)).to(device)
        with torch.no_grad():
            return self.generator.make(self._noise(rows, device), code), code

    def learn_generator(self, rows: Tensor, target: Tensor) -> None:
        """Adversarial steps on the new rows, with alignment to the old generator."""
        old, old_classes = None, len(self._solver.bias)
        if self.generator is None:
            size = (rows.shape[1], self.generator_hidden, self.latent, self.most)
            pixels = self.scaler.kind == "none"
            self.generator = ConditionalGAN(*size, pixels=pixels).to(rows.device)
        else:
            old = copy.deepcopy(self.generator).requires_grad_(False)
        gan = self.generator
        generator = gan.generator.parameters()
        made_by = torch.optim.Adam(generator, lr=1e-4, betas=(0.0, 0.9), fused=True)
        judges = nn.ModuleList([gan.critic, gan.verdict, gan.naming])
        judged_by = torch.optim.Adam(judges.parameters(), lr=4e-4, betas=(0.0, 0.9), fused=True)
        for _ in range(self.generator_epochs):
            for index in torch.randperm(len(rows)).to(rows.device).split(self.batch):
                x, code = rows[index], target[index]
                made = gan.make(self._noise(len(x), x.device), code)
                judged_by.zero_grad()
                gan.critic_loss(x, made, code).backward()
                judged_by.step()
                loss = gan.generator_loss(made, code)
                if old is not None:
                    again = torch.randint(old_classes, (len(x),)).to(x.device)
                    z = self._noise(len(x), x.device)
                    loss = loss + self.strength * alignment(gan, old, z, again)
                made_by.zero_grad()
                loss.backward()
                made_by.step()

    def _noise(self, rows: int, device: torch.device) -> Tensor:
        return torch.randn(rows, self.latent).to(device)
