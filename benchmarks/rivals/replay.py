"""Deep generative replay (Shin et al., 2017) with a VAE as the generator."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from benchmarks.rivals.mlp import FineTuning, GrowingMLP
from benchmarks.rivals.vae import VAE, fit


class GenerativeReplay(FineTuning):
    """Loss r x new + (1 - r) x replayed, r = 1 / pieces; the old solver labels the replayed rows.

    The generator is then trained on all new rows and (1 - r) / r times as many replayed ones.
    """

    def __init__(
        self,
        latent: int = 50,
        generator_hidden: int = 400,
        generator_epochs: int = 20,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.latent, self.generator_hidden = latent, generator_hidden
        self.generator_epochs = generator_epochs
        self.generator: Any = None
        self.pieces = 0
        self._replayed: tuple[Tensor, Tensor] | None = None

    @property
    def share(self) -> float:
        """r, the share of the new piece among all pieces so far."""
        return 1.0 / self.pieces

    def replayed(self, net: GrowingMLP, rows: int) -> tuple[Tensor, Tensor]:
        """Generated rows and the most probable pair of each under the old solver."""
        with torch.no_grad():
            x = self.generator.sample(rows)
            return x, net(x).argmax(dim=1)

    def _before(self, net: GrowingMLP) -> None:
        self.pieces += 1
        self._solver = copy.deepcopy(net)

    def _train(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        self._replayed = None
        if self.generator is not None:
            self._replayed = self.replayed(self._solver, (self.pieces - 1) * len(rows))
        super()._train(net, rows, target)

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor | None:
        """(1 - r) / r x replayed: the whole is the stated loss up to the factor 1 / r."""
        if self._replayed is None:
            return None
        x, target = self._replayed
        index = torch.randint(len(x), (len(rows),)).to(x.device)
        return (1 - self.share) / self.share * self.task_loss(net(x[index]), target[index])

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        self.learn_generator(rows, target)
        self._replayed = None
        del self._solver

    def learn_generator(self, rows: Tensor, target: Tensor) -> None:
        """Train the generator on new and replayed rows."""
        if self.generator is None:
            self.generator = VAE(rows.shape[1], self.generator_hidden, self.latent).to(rows.device)
        if self._replayed is not None:
            rows = torch.cat([rows, self._replayed[0]])
        fit(self.generator, rows, lambda model, x: -model.elbo(x), self.generator_epochs)

    @property
    def floats_stored(self) -> int:
        """Solver and generator."""
        parts = self.generator.parameters() if self.generator else ()
        return super().floats_stored + sum(parameter.numel() for parameter in parts)
