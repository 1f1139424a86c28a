"""One conditional affine coupling: half of the features moves, driven by the other half."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, silu

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
        moved, ladj = _Affine.apply(self._heads_of(a, context), b, self.bound)  # type: ignore[no-untyped-call]
        return moved, ladj

    def inverse(self, a: Tensor, b: Tensor, context: Context | None) -> Tensor:
        """Move `b` back, given the same `a`."""
        moved: Tensor = _Unaffine.apply(self._heads_of(a, context), b, self.bound)  # type: ignore[no-untyped-call]
        return moved

    def _heads_of(self, a: Tensor, context: Context | None) -> Tensor:
        """mu and s, the latter before its bound, side by side."""
        if self.context is None or context is None:
            inner = self.enter(a)
        else:  # the context and the bias of each cell are added up before they are gathered
            table = torch.addmm(self.enter.bias, context.table, self.context.weight.mT)
            inner = embedding(context.cell, table).addmm_(a, self.enter.weight.mT)
        heads: Tensor = self.leave(silu(inner))
        return heads


class _Affine(torch.autograd.Function):
    """b' = mu + exp(s) b and sum_d s, given the heads (mu, r):  s = r u, u = 1 / (1 + |r| / bound).

    Its derivative is written out because half of a flow's time outside its products would go into
    the passes over memory that the chain rule takes one operation at a time:

        db = exp(s) db',   dmu = db',   dr = u^2 (b db + dladj)
    """

    @staticmethod
    def forward(ctx: Any, heads: Tensor, b: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        shift, raw = heads.chunk(2, dim=-1)
        damp = (raw.abs() / bound).add_(1).reciprocal_()
        log_scale = raw * damp
        ladj = log_scale.sum(-1)
        scale = log_scale.exp_()
        ctx.save_for_backward(b, scale, damp)
        return torch.addcmul(shift, b, scale), ladj

    @staticmethod
    def backward(ctx: Any, moved: Tensor, ladj: Tensor) -> tuple[Tensor, Tensor, None]:
        b, scale, damp = ctx.saved_tensors
        grad = moved * scale
        raw = torch.addcmul(ladj[..., None], grad, b) * damp * damp
        return torch.cat((moved, raw), dim=-1), grad, None


class _Unaffine(torch.autograd.Function):
    """b = (b' - mu) exp(-s), the inverse of `_Affine`, and its derivative:

    db' = exp(-s) db,   dmu = -db',   dr = -u^2 b db
    """

    @staticmethod
    def forward(ctx: Any, heads: Tensor, b: Tensor, bound: float) -> Tensor:
        shift, raw = heads.chunk(2, dim=-1)
        damp = (raw.abs() / bound).add_(1).reciprocal_()
        scale = (raw * damp).neg_().exp_()
        moved = (b - shift).mul_(scale)
        ctx.save_for_backward(moved, scale, damp)
        return moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        moved, scale, damp = ctx.saved_tensors
        back = grad * scale
        raw = grad * moved * damp * damp
        return torch.cat((back, raw), dim=-1).neg_(), back, None


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
