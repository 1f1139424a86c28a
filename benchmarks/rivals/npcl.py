"""Neural process continual learning (Jha et al., 2024): attention to a small buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from benchmarks.rivals.base import Codes
from benchmarks.rivals.mlp import FineTuning
from benchmarks.stream import FloatArray

Gaussian = tuple[Tensor, Tensor]


class AttentiveProcess(nn.Module):
    """p(y | x, context) through attention to the context and one latent of its mean."""

    def __init__(self, dim: int, hidden: int, latent: int, most: int) -> None:
        super().__init__()
        self.most = most
        self.embed = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.pair = nn.Sequential(
            nn.Linear(hidden + most, hidden), nn.ReLU(), nn.Linear(hidden, hidden)
        )
        self.attend = nn.MultiheadAttention(hidden, 4, batch_first=True)
        self.law = nn.Linear(hidden, 2 * latent)
        self.decode = nn.Sequential(
            nn.Linear(2 * hidden + latent, hidden), nn.ReLU(), nn.Linear(hidden, most)
        )

    def encode(self, x: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Keys h(x) and values r(h(x), y) of labelled rows."""
        key = self.embed(x)
        return key, self.pair(torch.cat([key, one_hot(code, self.most).to(key)], dim=1))

    def latent_law(self, values: Tensor) -> Gaussian:
        """Mean and log standard deviation of z given the mean of r, whatever the order."""
        mean, log_sd = self.law(values.mean(dim=0)).chunk(2)
        return mean, log_sd.clamp(-6, 3)

    def logits(self, x: Tensor, key: Tensor, value: Tensor, z: Tensor) -> Tensor:
        """Decoder of [h(x), attention(h(x); context), z]."""
        h = self.embed(x)
        seen, _ = self.attend(h[None], key[None], value[None], need_weights=False)
        return self.decode(torch.cat([h, seen[0], z.expand(len(x), -1)], dim=1))


def divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) of diagonal Gaussians given as mean and log standard deviation."""
    (m, s), (n, t) = q, p
    return (t - s + 0.5 * ((2 * s).exp() + (m - n) ** 2) * (-2 * t).exp() - 0.5).sum()


class NPCL(FineTuning):
    """Trains on new rows beside rows of a buffer of M = 500, filled by reservoir sampling.

    Loss: cross-entropy at z ~ q(z | context, targets) + strength x KL(q || p(z | context)). One
    global latent stands for the original's hierarchy of global and task latents.
    """

    def __init__(
        self,
        memory: int = 500,
        latent: int = 64,
        strength: float = 0.1,
        most: int = 128,
        samples: int = 5,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.memory, self.latent, self.strength = memory, latent, strength
        self.most, self.samples = most, samples
        self.process: AttentiveProcess | None = None
        self.kept_x, self.kept_y = torch.zeros(0), torch.zeros(0, dtype=torch.long)
        self.seen = 0

    def _learn(self, x: FloatArray, code: Codes) -> None:
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        target = torch.as_tensor(code, dtype=torch.long, device=self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1000 * len(self.pairs))
            if self.process is None:
                size = (x.shape[1], self.hidden, self.latent, self.most)
                self.process = AttentiveProcess(*size).to(self.device)
                self.kept_x = rows[:0]
                self.kept_y = target[:0]
            self._optimise(self.process, rows, target)
        self._keep(rows, target)

    def _optimise(self, process: AttentiveProcess, rows: Tensor, target: Tensor) -> None:
        solver = torch.optim.Adam(process.parameters(), lr=self.lr, fused=True)
        for _ in range(self.epochs):
            for part in torch.randperm(len(rows)).to(rows.device).split(self.batch):
                x, y = rows[part], target[part]
                if len(self.kept_x):
                    old = torch.randint(len(self.kept_x), (len(part),)).to(rows.device)
                    x = torch.cat([x, self.kept_x[old]])
                    y = torch.cat([y, self.kept_y[old]])
                solver.zero_grad()
                self.loss(process, x, y).backward()
                solver.step()

    def loss(self, process: AttentiveProcess, x: Tensor, y: Tensor) -> Tensor:
        """Half of the rows, at random, are the context; all are targets."""
        chosen = torch.randperm(len(x)).to(x.device)[: max(1, len(x) // 2)]
        key, value = process.encode(x, y)
        q, p = process.latent_law(value), process.latent_law(value[chosen])
        z = q[0] + q[1].exp() * torch.randn_like(q[0])
        logits = process.logits(x, key[chosen], value[chosen], z)[:, : len(self.pairs)]
        return self.task_loss(logits, y) + self.strength * divergence(q, p) / len(x)

    def _keep(self, rows: Tensor, target: Tensor) -> None:
        """Reservoir sampling: row number n replaces a kept one with probability M / n."""
        rng = np.random.default_rng(self.seed + 1000 * self.seen)
        held = list(range(len(self.kept_x)))
        for number in range(len(held), len(held) + len(rows)):
            self.seen += 1
            if len(held) < self.memory:
                held.append(number)
            elif (place := int(rng.integers(self.seen))) < self.memory:
                held[place] = number
        chosen = torch.tensor(held).to(rows.device)
        self.kept_x = torch.cat([self.kept_x, rows])[chosen]
        self.kept_y = torch.cat([self.kept_y, target])[chosen]

    def _scores(self, x: FloatArray) -> FloatArray:
        assert self.process is not None
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.seed)
            key, value = self.process.encode(self.kept_x, self.kept_y)
            mean, log_sd = self.process.latent_law(value)
            total = torch.zeros(len(rows), len(self.pairs), device=self.device)
            for _ in range(self.samples):
                z = mean + log_sd.exp() * torch.randn_like(mean)
                logits = self.process.logits(rows, key, value, z)[:, : len(self.pairs)]
                total += logits.softmax(dim=1) / self.samples
        return total.clamp_min(1e-30).log().cpu().double().numpy()

    @property
    def floats_stored(self) -> int:
        """The process, and the rows and labels of the buffer."""
        parts = self.process.parameters() if self.process else ()
        kept = self.kept_x.numel() + self.kept_y.numel()
        return sum(parameter.numel() for parameter in parts) + kept
