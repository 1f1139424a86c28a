"""The MLP that the gradient-trained rivals share: plain fine-tuning, and the joint ceiling."""

from __future__ import annotations

import copy
from typing import ClassVar

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
    """Cross-entropy over the pairs of the row's own task, Adam, one piece after the other.

    The hooks do nothing here; each rival fills in those that its equations need.
    """

    def __init__(
        self,
        hidden: int = 800,
        epochs: int = 10,
        lr: float = 1e-3,
        batch: int = 128,
        device: str = "cpu",
        scale: Scale = "standard",
        seed: int = 0,
    ) -> None:
        super().__init__(scale, seed)
        self.hidden, self.epochs, self.lr, self.batch = hidden, epochs, lr, batch
        self.device = torch.device(device)
        self.net: GrowingMLP | None = None
        self._other = torch.zeros(0, 0, dtype=torch.bool)

    def _learn(self, x: FloatArray, code: Codes) -> None:
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.device)
        target = torch.as_tensor(code, dtype=torch.long, device=self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1000 * len(self.pairs))
            if self.net is None:
                self.net = GrowingMLP(x.shape[1], self.hidden).to(self.device)
            self._before(self.net)
            self.net.grow(len(self.pairs))
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
        """-log softmax over the columns of each row's task."""
        if len(self.tasks_) > 1:
            logits = logits.masked_fill(self._elsewhere(logits.device)[target], -torch.inf)
        return cross_entropy(logits, target)

    def _elsewhere(self, device: torch.device) -> Tensor:
        """Whether pair j is of another task than pair i; made anew when there are more pairs."""
        if len(self._other) != len(self.pairs) or self._other.device != device:
            task = torch.tensor([self.tasks_.index(name) for name, _ in self.pairs])
            self._other = (task[:, None] != task).to(device)
        return self._other

    def groups(self, pairs: int) -> list[list[int]]:
        """Columns of the first ``pairs`` pairs, one list per task."""
        first = list(enumerate(self.pairs[:pairs]))
        lists = [[k for k, (name, _) in first if name == task] for task in self.tasks_]
        return [columns for columns in lists if columns]

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
