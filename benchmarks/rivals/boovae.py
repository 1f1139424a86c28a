"""Boo-VAE (Egorov et al., 2021): a VAE whose prior is boosted by components at learned inputs."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.rivals.replay import GenerativeReplay
from benchmarks.rivals.vae import VAE, fit


class BoostedVAE(VAE):
    """A VAE with the prior p(z) = sum_k w_k q(z | u_k); N(0, I) before the first component."""

    inputs: Tensor
    weights: Tensor

    def __init__(self, dim: int, hidden: int, latent: int) -> None:
        super().__init__(dim, hidden, latent)
        self.register_buffer("inputs", torch.zeros(0, dim))
        self.register_buffer("weights", torch.zeros(0))

    def log_prior(self, z: Tensor) -> Tensor:
        """log sum_k w_k N(z; m(u_k), s(u_k)^2)."""
        if not len(self.weights):
            return normal_log_density(z, torch.zeros_like(z), torch.zeros_like(z))
        mean, log_sd = self.posterior(self.inputs)
        each = normal_log_density(z[..., None, :], mean, log_sd)
        return (each + self.weights.log()).logsumexp(dim=-1)

    def elbo(self, x: Tensor) -> Tensor:
        """log p(x | z) + log p(z) - log q(z | x) at one z ~ q(z | x)."""
        mean, log_sd = self.posterior(x)
        z = mean + log_sd.exp() * torch.randn_like(mean)
        return self.log_likelihood(x, z) + self.log_prior(z) - normal_log_density(z, mean, log_sd)

    def sample(self, rows: int) -> Tensor:
        """Mean pixels of rows drawn from the prior."""
        if not len(self.weights):
            return super().sample(rows)
        chosen = torch.multinomial(self.weights, rows, replacement=True)
        mean, log_sd = self.posterior(self.inputs[chosen])
        return self.decoder(mean + log_sd.exp() * torch.randn_like(mean)).sigmoid()

    def boost(self, u: Tensor, share: float) -> None:
        """p <- (1 - share) p + share q(z | u); the first component takes all."""
        share = share if len(self.weights) else 1.0
        self.inputs = torch.cat([self.inputs, u[None].detach()])
        self.weights = torch.cat([self.weights * (1 - share), self.weights.new_full((1,), share)])


def normal_log_density(z: Tensor, mean: Tensor, log_sd: Tensor) -> Tensor:
    """log N(z; mean, sd^2), summed over the last dimension."""
    scaled = (z - mean) * (-log_sd).exp()
    return (-0.5 * scaled**2 - log_sd - 0.5 * math.log(2 * math.pi)).sum(dim=-1)


def component_loss(model: BoostedVAE, u: Tensor, rows: Tensor) -> Tensor:
    """E_h [log h + log p - log q_agg] for a new component h = q(z | u).

    log p - log q_agg is the first-order change of KL(p || q_agg) along h, q_agg the aggregated
    posterior over ``rows``; log h keeps the component wide.
    """
    mean, log_sd = model.posterior(u[None])
    z = mean + log_sd.exp() * torch.randn(32, mean.shape[1], device=u.device)
    centres, widths = model.posterior(rows)
    aggregated = normal_log_density(z[:, None], centres, widths).logsumexp(1) - math.log(len(rows))
    return (normal_log_density(z, mean, log_sd) + model.log_prior(z) - aggregated).mean()


def kept_close(new: BoostedVAE, old: BoostedVAE) -> Tensor:
    """At the old components: symmetric KL of the encoders, cross-entropy excess of the decoders."""
    mean, log_sd = new.posterior(old.inputs)
    old_mean, old_log_sd = old.posterior(old.inputs)
    variance, old_variance = (2 * log_sd).exp(), (2 * old_log_sd).exp()
    gap = (mean - old_mean) ** 2
    encoders = 0.5 * ((variance + gap) / old_variance + (old_variance + gap) / variance - 2) / 2
    z = old_mean + old_log_sd.exp() * torch.randn_like(old_mean)
    target = old.decoder(z).sigmoid()
    excess = binary_cross_entropy_with_logits(new.decoder(z), target, reduction="none")
    floor = binary_cross_entropy_with_logits(target.logit(1e-6), target, reduction="none")
    return encoders.sum(1).mean() + (excess - floor).sum(1).mean()


class BooVAE(GenerativeReplay):
    """A solver fed by replay from a boosted VAE, which is held to its old self at its components.

    ``components`` are added per piece, some after each of ``rounds`` shares of the training, each
    started at a training row and then optimised. The VAE itself sees the new rows alone.
    """

    def __init__(
        self,
        components: int = 15,
        strength: float = 1.0,
        steps: int = 100,
        rounds: int = 5,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.components, self.strength = components, strength
        self.steps, self.rounds = steps, rounds

    def learn_generator(self, rows: Tensor, target: Tensor) -> None:
        """Train the VAE and boost its prior towards the aggregated posterior, in turn."""
        old = None
        if self.generator is None:
            size = (rows.shape[1], self.generator_hidden, self.latent)
            self.generator = BoostedVAE(*size).to(rows.device)
        else:
            old = copy.deepcopy(self.generator).requires_grad_(False)

        def loss(model: BoostedVAE, x: Tensor) -> Tensor:
            held = 0.0 if old is None else self.strength * kept_close(model, old)
            return -model.elbo(x) + held

        for turn in range(self.rounds):
            fit(self.generator, rows, loss, _share(self.generator_epochs, turn, self.rounds))
            self._boost(rows, _share(self.components, turn, self.rounds))

    def _boost(self, rows: Tensor, components: int) -> None:
        """Add components one by one; all components of all pieces have equal weight."""
        model = self.generator
        model.requires_grad_(False)
        for _ in range(components):
            sample = rows[torch.randperm(len(rows))[:200].to(rows.device)]
            u = nn.Parameter(sample[0].clone())
            solver = torch.optim.Adam([u], lr=1e-2)
            for _ in range(self.steps):
                solver.zero_grad()
                component_loss(model, u, sample).backward()
                solver.step()
                u.data.clamp_(0, 1)
            model.boost(u.data, 1.0 / (len(model.weights) + 1))
        model.requires_grad_(True)

    @property
    def floats_stored(self) -> int:
        """Solver, generator and components."""
        kept = self.generator.inputs.numel() + len(self.generator.weights) if self.generator else 0
        return super().floats_stored + kept


def _share(whole: int, turn: int, turns: int) -> int:
    """Part ``turn`` of a whole number that is cut into ``turns`` nearly equal ones."""
    return whole * (turn + 1) // turns - whole * turn // turns
