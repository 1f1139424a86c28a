"""Flows x -> (z, log|det dz/dx|): the seam, the coupling flow, the closed-form linear layer."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from clbruno.core.coupling import AffineCoupling, Context
from clbruno.errors import InputError


@runtime_checkable
class Flow(Protocol):
    """An invertible map of R^dim, optionally conditioned on the (task, label) cell.

    `clbruno.checks.check_flow` holds the contract that every implementation passes.
    """

    dim: int
    conditional: bool

    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        """Return `z` of the shape of `x`, and `log|det dz/dx|` of each row."""
        ...

    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        """Return the `x` that `forward` maps to `z`."""
        ...


class CouplingFlow(nn.Module):
    """Affine couplings that move the two halves of the features in turn.

        (a, b) -> (a, b') -> (a', b') -> ...,   log|det| = the sum over the couplings

    The halves are kept apart between couplings, so no layer copies what it does not move.
    With `dim=1` one half is empty, and every coupling moves the other one.

    Args:
        dim: number of features.
        couplings: how many couplings; 0 is the identity.
        hidden: width of each coupling's hidden layer.
        context_dim: length of the context vector; 0 for a label-free flow.
        bound: limit of each log-scale.
        generator: of the starting weights; None takes torch's own.

    >>> sum(p.numel() for p in CouplingFlow(512, 6, hidden=256, context_dim=128).parameters())
    1380864
    """

    def __init__(
        self,
        dim: int,
        couplings: int,
        hidden: int,
        context_dim: int = 0,
        bound: float = 3.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.conditional = context_dim > 0
        self._sizes = (dim // 2, dim - dim // 2)
        self._moves_second = tuple(layer % 2 == 0 or dim == 1 for layer in range(couplings))
        self.layers = nn.ModuleList()
        for second in self._moves_second:
            fixed, moved = self._sizes if second else self._sizes[::-1]
            layer = AffineCoupling(fixed, moved, hidden, context_dim, bound, generator)
            self.layers.append(layer)

    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        """Map features to the latent space."""
        a, b = x.split(self._sizes, dim=-1)
        ladj = x.new_zeros(x.shape[0])
        for second, layer in zip(self._moves_second, self.layers, strict=True):
            if second:
                b, step = layer(a, b, context)
            else:
                a, step = layer(b, a, context)
            ladj = ladj + step
        return torch.cat((a, b), dim=-1), ladj

    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        """Map latents back to features."""
        a, b = z.split(self._sizes, dim=-1)
        for second, layer in zip(self._moves_second[::-1], list(self.layers)[::-1], strict=True):
            assert isinstance(layer, AffineCoupling)
            if second:
                b = layer.inverse(a, b, context)
            else:
                a = layer.inverse(b, a, context)
        return torch.cat((a, b), dim=-1)


class Whitening(nn.Module):
    """An invertible linear layer in closed form: symmetric whitening.

        z = (x - mean) root,   root = (C + ridge I)^(-1/2),   log|det| = log|root|

    The symmetric root, not one that turns into the eigenvectors' basis: an eigenbasis flips
    between batches, the symmetric root moves with C.

    Args:
        mean: what is subtracted, shape `(dim,)`.
        root: a symmetric positive definite matrix, shape `(dim, dim)`.
    """

    mean: Tensor
    root: Tensor
    unroot: Tensor
    ladj: Tensor

    def __init__(self, mean: Tensor, root: Tensor) -> None:
        super().__init__()
        self.dim = mean.shape[0]
        self.conditional = False
        values, vectors = torch.linalg.eigh(root)
        if not bool((values > 0).all()):
            raise InputError("the whitening root must be positive definite; add a ridge to it")
        self.register_buffer("mean", mean)
        self.register_buffer("root", root)
        self.register_buffer("unroot", (vectors / values) @ vectors.mT, persistent=False)
        self.register_buffer("ladj", values.log().sum(), persistent=False)

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, ridge: float) -> "Whitening":
        """Whiten by `(covariance + ridge I)^(-1/2)`."""
        values, vectors = torch.linalg.eigh(covariance)
        return cls(mean, (vectors * (values.clamp(min=0) + ridge).rsqrt()) @ vectors.mT)

    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        """Whiten."""
        return (x - self.mean) @ self.root, self.ladj.expand(x.shape[0])

    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        """Undo the whitening."""
        return z @ self.unroot + self.mean


class FlowSequence(nn.Module):
    """Flows one after another: `z = f_k(... f_1(x))`, log-determinants added."""

    def __init__(self, flows: Sequence[nn.Module]) -> None:
        super().__init__()
        self.flows = nn.ModuleList(flows)
        self.dim = int(flows[0].dim)  # type: ignore[arg-type]
        self.conditional = any(bool(flow.conditional) for flow in flows)

    def forward(self, x: Tensor, context: Context | None = None) -> tuple[Tensor, Tensor]:
        """Apply every flow in order."""
        ladj = x.new_zeros(x.shape[0])
        for flow in self.flows:
            x, step = flow(x, context)
            ladj = ladj + step
        return x, ladj

    def inverse(self, z: Tensor, context: Context | None = None) -> Tensor:
        """Undo every flow, the last one first."""
        for flow in reversed(self.flows):
            z = flow.inverse(z, context)  # type: ignore[operator]
        return z


class CellEmbedding(nn.Module):
    """Context of each (task, label) cell: `c_{t,y} = r_t + s_{t,y}` (paper, section 3.1).

    Args:
        task: the task embeddings r, shape `(tasks, length)`.
        label: the label embeddings s, one per cell, shape `(cells, length)`.
        task_of_cell: the task of each cell, shape `(cells,)`.
    """

    task_of_cell: Tensor

    def __init__(self, task: Tensor, label: Tensor, task_of_cell: Tensor) -> None:
        super().__init__()
        self.task = nn.Parameter(task)
        self.label = nn.Parameter(label)
        self.register_buffer("task_of_cell", task_of_cell)

    def forward(self) -> Tensor:
        """The table of contexts, one row per cell."""
        return embedding(self.task_of_cell, self.task) + self.label

    def grown(
        self, task_of_cell: Tensor, tasks: int, generator: torch.Generator
    ) -> "CellEmbedding":
        """The same embeddings with fresh standard normal ones behind them for what is new."""
        length = self.label.shape[1]
        fresh_task = torch.randn(tasks - self.task.shape[0], length, generator=generator)
        fresh_label = torch.randn(
            task_of_cell.shape[0] - self.label.shape[0], length, generator=generator
        )
        return CellEmbedding(
            torch.cat((self.task.detach(), fresh_task.to(self.task))),
            torch.cat((self.label.detach(), fresh_label.to(self.label))),
            task_of_cell,
        )

    def restricted(
        self, tasks: Sequence[int], cells: Sequence[int], task_of_cell: Tensor
    ) -> "CellEmbedding":
        """The embeddings of some tasks and cells alone."""
        task, label = self.task.detach(), self.label.detach()
        kept = CellEmbedding(task[list(tasks)], label[list(cells)], task_of_cell)
        return kept.requires_grad_(False)
