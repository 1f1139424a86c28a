"""One conditional affine coupling: half of the features moves, driven by the other half."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

QUIET = 0.1
"""How much smaller than usual the weights of the driving half start."""


class Context(NamedTuple):
    """What the flow is conditioned on: `table[cell]`, kept apart so that a row is projected once.

    Attributes:
        table: one context vector per (task, label) cell, shape `(cells, context_dim)`.
        cell: the row of `table` that belongs to each sample, shape `(n,)`.
    """

    table: Tensor
    cell: Tensor


class AffineCoupling(nn.Module):
    """Conditional affine coupling of Real-NVP (paper, eq. 1).

        s, mu = W2 silu(W1 a + C c + b1) + b2,   s <- s / (1 + |s| / bound)
        forward  b' = mu + exp(s) b,   log|det| = sum_d s_d
        inverse  b  = (b' - mu) exp(-s)

    The last layer starts at zero, so a new coupling is the identity; the weights of the driving
    half start small, so that what the context says is learned before the noise of the features.
    `|s| < bound` keeps `exp(s)` and its inverse within fixed limits whatever the weights are.

    Args:
        fixed: how many features drive the coupling (may be 0).
        moved: how many features it moves.
        hidden: width of the one hidden layer.
        context_dim: length of the context vector; 0 for a label-free coupling.
        bound: limit of the log-scale.
        generator: of the starting weights; None takes torch's own.

    >>> layer = AffineCoupling(fixed=2, moved=3, hidden=8, context_dim=0)
    >>> a, b = torch.randn(5, 2), torch.randn(5, 3)
    >>> moved, ladj = layer(a, b, None)
    >>> bool((moved == b).all()), ladj.abs().max().item()
    (True, 0.0)
    """

    def __init__(
        self,
        fixed: int,
        moved: int,
        hidden: int,
        context_dim: int,
        bound: float = 3.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.bound = bound
        self.enter = _linear(fixed, hidden, generator)
        self.context = _linear(context_dim, hidden, generator, bias=False) if context_dim else None
        self.leave = _linear(hidden, 2 * moved, generator)
        with torch.no_grad():
            self.enter.weight.mul_(QUIET)
            self.leave.weight.zero_()
            self.leave.bias.zero_()

    def forward(self, a: Tensor, b: Tensor, context: Context | None) -> tuple[Tensor, Tensor]:
        """Move `b` given `a`: the new `b` and the log-determinant of each row."""
        shift, log_scale = self._parameters_of(a, context)
        return torch.addcmul(shift, b, log_scale.exp()), log_scale.sum(-1)

    def inverse(self, a: Tensor, b: Tensor, context: Context | None) -> Tensor:
        """Move `b` back, given the same `a`."""
        shift, log_scale = self._parameters_of(a, context)
        return (b - shift) * (-log_scale).exp()

    def _parameters_of(self, a: Tensor, context: Context | None) -> tuple[Tensor, Tensor]:
        inner = self.enter(a)
        if self.context is not None and context is not None:
            inner = inner + self.context(context.table)[context.cell]
        shift, raw = self.leave(silu(inner)).chunk(2, dim=-1)
        return shift, raw / (1 + raw.abs() / self.bound)


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Left to `_linear`, which knows the generator; torch's own start warns on no inputs."""


def _linear(
    inputs: int, outputs: int, generator: torch.Generator | None, *, bias: bool = True
) -> nn.Linear:
    """A linear layer with torch's usual start, U(-1, 1) / sqrt(inputs), from a given generator.

    With no inputs at all (a coupling of one feature has no driver) only its bias acts.
    """
    layer: _Linear = nn.utils.skip_init(_Linear, inputs, outputs, bias=bias)
    limit = 1 / math.sqrt(max(inputs, 1))
    with torch.no_grad():
        for weights in layer.parameters():
            weights.uniform_(-limit, limit, generator=generator)
    return layer
