"""A variational autoencoder for values in [0, 1], and one of them per class as a classifier."""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.rivals.base import Codes, PairRival, logsumexp
from benchmarks.stream import FloatArray


class VAE(nn.Module):
    """z ~ N(0, I), x_d | z ~ Bernoulli(sigmoid(decoder(z)_d)), q(z | x) = N(m(x), diag s(x)^2)."""

    def __init__(self, dim: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent)
        )
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.latent = latent

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z), summed over dimensions."""
        logits = self.decoder(z)
        target = x.expand_as(logits)
        return -binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=-1)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of q(z | x)."""
        mean, log_sd = self.encoder(x).chunk(2, dim=-1)
        return mean, log_sd.clamp(-8, 4)

    def elbo(self, x: Tensor) -> Tensor:
        """E_q log p(x | z) - KL(q || p), one sample of z, one value per row."""
        mean, log_sd = self.posterior(x)
        z = mean + log_sd.exp() * torch.randn_like(mean)
        divergence = 0.5 * (mean**2 + (2 * log_sd).exp() - 1 - 2 * log_sd).sum(dim=-1)
        return self.log_likelihood(x, z) - divergence

    def log_evidence(self, x: Tensor, samples: int) -> Tensor:
        """log mean_s p(x | z_s) p(z_s) / q(z_s | x), z_s ~ q."""
        mean, log_sd = self.posterior(x)
        noise = torch.randn(samples, *mean.shape, device=x.device, dtype=x.dtype)
        z = mean + log_sd.exp() * noise
        log_ratio = (0.5 * (noise**2 - z**2) + log_sd).sum(dim=-1)
        weight = self.log_likelihood(x, z) + log_ratio
        return weight.logsumexp(dim=0) - math.log(samples)

    def sample(self, rows: int) -> Tensor:
        """Mean pixels of rows drawn from the prior."""
        device = next(self.parameters()).device
        z = torch.randn(rows, self.latent, device=device)
        return self.decoder(z).sigmoid()


def fit(
    model: nn.Module,
    rows: Tensor,
    loss: Any,
    epochs: int,
    lr: float = 1e-3,
    batch: int = 128,
) -> None:
    """Minimise the mean of ``loss(model, rows)`` with Adam."""
    solver = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(epochs):
        for index in torch.randperm(len(rows)).to(rows.device).split(batch):
            solver.zero_grad()
            loss(model, rows[index]).mean().backward()
            solver.step()


class OnePerClass(PairRival):
    """log p(x, k) = log p_k(x) + log n_k with one density model per class, trained alone.

    More rows of a known class continue the training of its model.
    """

    def __init__(
        self,
        hidden: int = 400,
        epochs: int = 20,
        device: str = "cpu",
        seed: int = 0,
        **others: Any,
    ) -> None:
        super().__init__(seed=seed, **others)
        self.hidden, self.epochs = hidden, epochs
        self.device = torch.device(device)
        self.models: list[nn.Module] = []
        self.count: list[int] = []

    def _learn(self, x: FloatArray, code: Codes) -> None:
        with torch.random.fork_rng(devices=[]):
            for k in np.unique(code):
                torch.manual_seed(self.seed + 1000 * int(k))
                rows = self._rows(x[code == k])
                if k == len(self.models):
                    self.models.append(self.make(rows).to(self.device))
                    self.count.append(0)
                fit(self.models[k], rows, self.loss, self.epochs)
                self.count[k] += len(rows)

    def _scores(self, x: FloatArray) -> FloatArray:
        rows = self._rows(x)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.seed)
            columns = [
                torch.cat([self.log_density(model, part) for part in rows.split(500)])
                for model in self.models
            ]
        return torch.stack(columns, dim=1).cpu().double().numpy() + np.log(self.count)

    def score_samples(self, x: FloatArray) -> FloatArray:
        """log p(x) = logsumexp_k log p(x, k)."""
        return logsumexp(self._scores(self.scaler(x)) - np.log(sum(self.count)))

    def without(self, label: object) -> Self:
        """The same without the models of a label, as if it had never come."""
        kept = [k for k, (_, name) in enumerate(self.pairs) if name != label]
        less = copy.copy(self)
        less.pairs, less.models, less.count = (
            [part[k] for k in kept] for part in (self.pairs, self.models, self.count)
        )
        less.tasks_ = list(dict.fromkeys(task for task, _ in less.pairs))
        less.classes_ = np.unique([name for _, name in less.pairs])
        return less

    def make(self, rows: Tensor) -> nn.Module:
        """A fresh density model for rows like these."""
        raise NotImplementedError

    def loss(self, model: Any, rows: Tensor) -> Tensor:
        """What training minimises, per row."""
        raise NotImplementedError

    def log_density(self, model: Any, rows: Tensor) -> Tensor:
        """log p_k(x), per row."""
        raise NotImplementedError

    def _rows(self, x: FloatArray) -> Tensor:
        return torch.as_tensor(x, dtype=torch.float32, device=self.device)

    @property
    def floats_stored(self) -> int:
        """All models and the counts."""
        numbers = sum(p.numel() for model in self.models for p in model.parameters())
        return numbers + len(self.count)


class ClassVAEs(OnePerClass):
    """One VAE per class; log p_k(x) by importance sampling."""

    def __init__(self, latent: int = 20, samples: int = 20, **others: Any) -> None:
        super().__init__(**others)
        self.latent, self.samples = latent, samples

    def make(self, rows: Tensor) -> VAE:
        """A VAE."""
        return VAE(rows.shape[1], self.hidden, self.latent)

    def loss(self, model: VAE, rows: Tensor) -> Tensor:
        """-ELBO."""
        return -model.elbo(rows)

    def log_density(self, model: VAE, rows: Tensor) -> Tensor:
        """Importance-weighted log p(x)."""
        return model.log_evidence(rows, self.samples)
