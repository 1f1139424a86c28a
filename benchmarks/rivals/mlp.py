"""The MLP that the gradient-trained rivals share: plain fine-tuning, and the joint ceiling."""

from __future__ import annotations

import copy
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from benchmarks.rivals.base import Codes, PairRival
from benchmarks.rivals.scaling import Scale
from benchmarks.stream import FloatArray


class GrowingMLP(nn.Module):
    """Two hidden ReLU layers and one linear output per (task, label) pair seen so far."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.weight = nn.Parameter(torch.zeros(0, hidden))
        self.bias = nn.Parameter(torch.zeros(0))

    def grow(self, outputs: int) -> None:
        """Add outputs; the old rows keep their values."""
        more = outputs - len(self.bias)
        if more > 0:
            fresh = nn.Linear(self.weight.shape[1], more, device=self.bias.device)
            self.weight = nn.Parameter(torch.cat([self.weight.detach(), fresh.weight.detach()]))
            self.bias = nn.Parameter(torch.cat([self.bias.detach(), fresh.bias.detach()]))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, one column per pair."""
        return linear(self.body(x), self.weight, self.bias)


class FineTuning(PairRival):
    """Cross-entropy, Adam, one piece after the other.

    The softmax goes over ``all`` pairs seen so far or over those of the ``piece`` alone, which
    pushes no old output down. The hooks do nothing here; each rival fills in those that its
    equations need.
    """

    def __init__(
        self,
        hidden: int = 800,
        epochs: int = 10,
        lr: float = 1e-3,
        batch: int = 128,
        device: str = "cpu",
        over: Literal["all", "piece"] = "all",
        scale: Scale = "standard",
        seed: int = 0,
    ) -> None:
        super().__init__(scale, seed)
        self.over = over
        self.hidden, self.epochs, self.lr, self.batch = hidden, epochs, lr, batch
        self.device = torch.device(device)
        self.net: GrowingMLP | None = None
        self._outside: Tensor | None = None

    def _learn(self, x: FloatArray, code: Codes) -> None:
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        target = torch.as_tensor(code, dtype=torch.long, device=self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1000 * len(self.pairs))
            if self.net is None:
                self.net = GrowingMLP(x.shape[1], self.hidden).to(self.device)
            self._before(self.net)
            self.net.grow(len(self.pairs))
            self._restrict(target.unique())
            self._train(self.net, rows, target)
            self._after(self.net, rows, target)

    def _train(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        learned = [parameter for parameter in net.parameters() if parameter.requires_grad]
        solver = torch.optim.Adam(learned, lr=self.lr, fused=True)
        for _ in range(self.epochs):
            for part in torch.randperm(len(rows)).to(rows.device).split(self.batch):
                solver.zero_grad()
                self._descend(net, rows[part], target[part])
                solver.step()

    def _descend(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        """The gradient of the task loss and the penalty."""
        loss = self.task_loss(net(rows), target)
        if (penalty := self._penalty(net, rows)) is not None:
            loss = loss + penalty
        loss.backward()

    def task_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """-log softmax over all columns, or over those of the piece."""
        if self._outside is not None:
            logits = logits.masked_fill(self._outside, -torch.inf)
        return cross_entropy(logits, target)

    def _restrict(self, piece: Tensor) -> None:
        if self.over == "piece":
            self._outside = torch.ones(len(self.pairs), dtype=torch.bool, device=piece.device)
            self._outside[piece] = False

    def _before(self, net: GrowingMLP) -> None:
        """Called before the head grows."""

    def _penalty(self, net: GrowingMLP, rows: Tensor) -> Tensor | None:
        """What is added to the task loss."""
        return None

    def _after(self, net: GrowingMLP, rows: Tensor, target: Tensor) -> None:
        """Called when the piece is learned."""

    def _scores(self, x: FloatArray) -> FloatArray:
        assert self.net is not None
        with torch.no_grad():
            rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
            return self.net(rows).cpu().double().numpy()

    @property
    def floats_stored(self) -> int:
        """The network; rivals add what they keep besides."""
        return sum(parameter.numel() for parameter in self.net.parameters()) if self.net else 0


class JointMLP(FineTuning):
    """A ceiling: keeps every row and trains a new network on all of them when it is asked."""

    joint: ClassVar[bool] = True

    def _learn(self, x: FloatArray, code: Codes) -> None:
        self.kept = [*getattr(self, "kept", []), (x.astype(np.float32), code)]
        self.net = None

    def _scores(self, x: FloatArray) -> FloatArray:
        if self.net is None:
            rows = np.concatenate([part for part, _ in self.kept])
            super()._learn(rows, np.concatenate([part for _, part in self.kept]))
        return super()._scores(x)

    @property
    def floats_stored(self) -> int:
        """The network and every row."""
        return super().floats_stored + sum(rows.size for rows, _ in self.kept)


def frozen(net: GrowingMLP) -> GrowingMLP:
    """A copy that takes no gradient."""
    return copy.deepcopy(net).requires_grad_(False)
