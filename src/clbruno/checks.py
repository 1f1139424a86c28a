"""The contracts of a Flow and of a Latent, as small named checks that every implementation passes.

A check raises an AssertionError whose message starts with the name of the check.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clbruno.core.coupling import Context
from clbruno.core.flow import Flow
from clbruno.core.latent import Latent
from clbruno.core.moments import Moments

MakeFlow = Callable[[torch.dtype], Flow]
"""Builds the same flow anew in a given precision, with weights at which it is not trivial."""

MakeLatent = Callable[[], Latent]
"""Builds the same latent anew, in float64."""

ROWS = 16
CELLS = 3


def check_flow(make_flow: MakeFlow, context_dim: int = 0) -> None:
    """Run every check of the contract of a flow.

    Args:
        make_flow: builds the flow in a given precision; called once and more per check.
        context_dim: length of the context vectors of a conditional flow.

    Examples:
        >>> from clbruno.core.flow import Whitening
        >>> mean, root = torch.ones(3), 2 * torch.eye(3)
        >>> check_flow(lambda dtype: Whitening(mean.to(dtype), root.to(dtype)))
    """
    for check in FLOW_CHECKS:
        check(make_flow, context_dim)


def check_latent(make_latent: MakeLatent) -> None:
    """Run every check of the contract of a latent.

    Args:
        make_latent: builds the latent; called once per check.

    Examples:
        >>> from clbruno.core.latent import ExchangeableGaussian
        >>> nu, rho = torch.ones(2).double(), torch.full((2,), 0.3).double()
        >>> check_latent(lambda: ExchangeableGaussian.prior(nu, rho))
    """
    for check in LATENT_CHECKS:
        check(make_latent)


def flow_shapes(make_flow: MakeFlow, context_dim: int) -> None:
    """z has the shape of x, the log-determinant one entry per row; the precision is kept."""
    for dtype in (torch.float32, torch.float64):
        flow, context = make_flow(dtype), _context(context_dim, dtype)
        x = _rows(flow.dim, dtype)
        before = x.clone()
        z, ladj = flow.forward(x, context)
        back = flow.inverse(z, context)
        shapes = (z.shape, ladj.shape, back.shape)
        _require(shapes == (x.shape, x.shape[:1], x.shape), "shapes", f"got {shapes} for {x.shape}")
        dtypes = {z.dtype, ladj.dtype, back.dtype}
        _require(dtypes == {dtype}, "shapes", f"{dtype} in, {dtypes} out")
        _require(torch.equal(x, before), "shapes", "forward changed its input")


def flow_inverse(make_flow: MakeFlow, context_dim: int) -> None:
    """inverse(forward(x)) = x and forward(inverse(z)) = z."""
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        flow, context = make_flow(dtype), _context(context_dim, dtype)
        x = _rows(flow.dim, dtype)
        there = flow.inverse(flow.forward(x, context)[0], context)
        back = flow.forward(flow.inverse(x, context), context)[0]
        _require_close(there, x, tolerance, "inverse", f"inverse(forward(x)), {dtype}")
        _require_close(back, x, tolerance, "inverse", f"forward(inverse(z)), {dtype}")


def flow_log_det(make_flow: MakeFlow, context_dim: int) -> None:
    """The log-determinant is that of autograd's Jacobian, row by row."""
    flow, context = make_flow(torch.float64), _context(context_dim, torch.float64)
    x = _rows(flow.dim, torch.float64)[:3].requires_grad_()
    only = None if context is None else Context(context.table, context.cell[:3])
    z, ladj = flow.forward(x, only)
    columns = [torch.autograd.grad(z[:, d].sum(), x, retain_graph=True)[0] for d in range(flow.dim)]
    truth = torch.linalg.slogdet(torch.stack(columns, dim=1)).logabsdet
    _require_close(ladj, truth, 1e-9, "log_det", "log|det| against autograd")


def flow_rows(make_flow: MakeFlow, context_dim: int) -> None:
    """A row's answer does not depend on the other rows, and repeats."""
    flow, context = make_flow(torch.float64), _context(context_dim, torch.float64)
    x = _rows(flow.dim, torch.float64)
    z, ladj = flow.forward(x, context)
    again = flow.forward(x, context)[0]
    _require(torch.equal(z, again), "rows", "the same call gave two answers")
    for part in (slice(0, 1), slice(5, 9), slice(0, 0)):
        only = None if context is None else Context(context.table, context.cell[part])
        z_part, ladj_part = flow.forward(x[part], only)
        _require_close(z_part, z[part], 1e-12, "rows", f"z of rows {part} on their own")
        _require_close(ladj_part, ladj[part], 1e-12, "rows", f"log-det of rows {part}")


def flow_gradients(make_flow: MakeFlow, context_dim: int) -> None:
    """Gradients reach the rows and every trainable weight, through z and the log-determinant."""
    flow, context = make_flow(torch.float64), _context(context_dim, torch.float64)
    weights = dict(flow.named_parameters()) if isinstance(flow, nn.Module) else {}
    x = _rows(flow.dim, torch.float64).requires_grad_()
    leaves: dict[str, Tensor] = {"x": x}
    leaves |= {name: w for name, w in weights.items() if w.requires_grad and w.numel()}
    z, ladj = flow.forward(x, context)
    loss = z.square().sum() - ladj.sum()
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for name, gradient in zip(leaves, found, strict=True):
        _require(gradient is not None, "gradients", f"{name} is not reached")
        finite = bool(gradient.isfinite().all())
        _require(finite, "gradients", f"the gradient of {name} is not finite")
        _require(bool((gradient != 0).any()), "gradients", f"the gradient of {name} is zero")


def flow_context(make_flow: MakeFlow, context_dim: int) -> None:
    """A conditional flow uses table[index] and learns it; a label-free flow ignores it."""
    flow = make_flow(torch.float64)
    _require(
        flow.conditional == (context_dim > 0),
        "context",
        f"conditional is {flow.conditional}, with context_dim={context_dim}",
    )
    x, context = _rows(flow.dim, torch.float64), _context(max(context_dim, 1), torch.float64)
    assert context is not None
    if not flow.conditional:
        same = torch.equal(flow.forward(x)[0], flow.forward(x, context)[0])
        _require(same, "context", "a label-free flow gave another z for a context")
        return
    table, index = context.table.requires_grad_(), context.cell
    z, ladj = flow.forward(x, context)
    other = flow.forward(x, Context(table, (index + 1) % CELLS))[0]
    _require(not torch.allclose(z, other), "context", "another cell gave the same z")
    turned = flow.forward(x, Context(table.roll(1, 0), (index + 1) % CELLS))[0]
    _require_close(turned, z, 1e-12, "context", "z after renumbering the cells")
    gradient = torch.autograd.grad(z.square().sum() - ladj.sum(), table)[0]
    _require(bool((gradient != 0).any()), "context", "no gradient reaches the table")


def latent_conditioning(make_latent: MakeLatent) -> None:
    """given(A).given(B) = given(A and B), and conditioning leaves the law it started from alone."""
    latent, a, b = _latent_and_data(make_latent)
    before = latent.log_prob(a)
    twice = latent.given(latent.moments(a)).given(latent.moments(b))
    once = latent.given(latent.moments(a).merge(latent.moments(b)))
    new = torch.cat((a, b)) + 0.5
    _require_close(twice.log_prob(new), once.log_prob(new), 1e-9, "conditioning", "log_prob")
    truth = once.nll(latent.moments(new))
    _require_close(twice.nll(latent.moments(new)), truth, 1e-9, "conditioning", "nll")
    _require(torch.equal(latent.log_prob(a), before), "conditioning", "given() changed the law")


def latent_chain_rule(make_latent: MakeLatent) -> None:
    """nll(A and B) = nll(A) + given(A).nll(B)."""
    latent, a, b = _latent_and_data(make_latent)
    seen, new = latent.moments(a), latent.moments(b)
    parts = latent.nll(seen) + latent.given(seen).nll(new)
    _require_close(parts, latent.nll(seen.merge(new)), 1e-9, "chain_rule", "nll in two parts")


def latent_one_sample(make_latent: MakeLatent) -> None:
    """log_prob(z) = - nll of the sequence of z alone, also after conditioning."""
    latent, a, b = _latent_and_data(make_latent)
    for law in (latent, latent.given(latent.moments(a))):
        alone = torch.stack([-law.nll(law.moments(row[None])) for row in b])
        _require_close(law.log_prob(b), alone, 1e-9, "one_sample", "log_prob against -nll of one")


def latent_permutation(make_latent: MakeLatent) -> None:
    """The order of the samples changes nothing."""
    latent, a, b = _latent_and_data(make_latent)
    z = torch.cat((a, b))
    turned = z[torch.randperm(len(z), generator=_generator(7))]
    truth = latent.nll_of(z)
    _require_close(latent.nll_of(turned), truth, 1e-10, "permutation", "nll_of reordered rows")
    law, other = latent.given(latent.moments(z)), latent.given(latent.moments(turned))
    _require_close(other.log_prob(a), law.log_prob(a), 1e-10, "permutation", "log_prob given them")


def latent_rows(make_latent: MakeLatent) -> None:
    """nll_of(rows) = nll(moments(rows)) for any number of rows, and is differentiable."""
    latent, a, b = _latent_and_data(make_latent)
    for z in (a[:1], a[:2], a, torch.cat((a, b))):
        truth = latent.nll(latent.moments(z))
        _require_close(latent.nll_of(z), truth, 1e-9, "rows", f"nll_of {len(z)} rows")
    z = a.clone().requires_grad_()
    from_rows = torch.autograd.grad(latent.nll_of(z), z)[0]
    from_moments = torch.autograd.grad(latent.nll(latent.moments(z)), z)[0]
    _require_close(from_rows, from_moments, 1e-8, "rows", "the gradient of nll_of")


def latent_empty(make_latent: MakeLatent) -> None:
    """The empty sequence has probability one and teaches nothing."""
    latent, a, _ = _latent_and_data(make_latent)
    empty = Moments.empty(a.shape[1], full=latent.moments(a).full)
    _require_close(latent.nll(empty), torch.zeros(()).double(), 1e-9, "empty", "nll of nothing")
    law = latent.given(empty)
    _require_close(law.log_prob(a), latent.log_prob(a), 1e-12, "empty", "log_prob given nothing")


def latent_samples(make_latent: MakeLatent) -> None:
    """Samples follow log_prob, by Stein's identities for the score s(z) = d log p(z) / dz:

    E[s] = 0,   E[s z'] = - I,   each within six standard errors
    """
    latent, a, _ = _latent_and_data(make_latent)
    for law in (latent, latent.given(latent.moments(a))):
        z = law.sample(20_000, _generator(3)).requires_grad_()
        score = torch.autograd.grad(law.log_prob(z).sum(), z)[0]
        z = z.detach()
        centred = z - z.mean(0)
        products = score[:, :, None] * centred[:, None, :]
        for name, draws, truth in (
            ("E[score]", score, torch.zeros(z.shape[1])),
            ("E[score z']", products, -torch.eye(z.shape[1])),
        ):
            error = draws.std(0) / len(z) ** 0.5
            worst = float(((draws.mean(0) - truth) / error).abs().max())
            _require(worst < 6, "samples", f"{name} is {worst:.1f} standard errors off")


def latent_seeds(make_latent: MakeLatent) -> None:
    """A seed repeats its samples, another seed does not, and torch's own generator is not used."""
    latent = make_latent()
    state = torch.random.get_rng_state()
    one, again = latent.sample(5, _generator(0)), latent.sample(5, _generator(0))
    other = latent.sample(5, _generator(1))
    _require(torch.equal(one, again), "seeds", "one seed gave two samples")
    _require(not torch.equal(one, other), "seeds", "two seeds gave one sample")
    untouched = torch.equal(state, torch.random.get_rng_state())
    _require(untouched, "seeds", "sampling drew from torch's global generator")


FLOW_CHECKS = (flow_shapes, flow_inverse, flow_log_det, flow_rows, flow_gradients, flow_context)
"""The contract of a flow."""

LATENT_CHECKS = (
    latent_conditioning,
    latent_chain_rule,
    latent_one_sample,
    latent_permutation,
    latent_rows,
    latent_empty,
    latent_samples,
    latent_seeds,
)
"""The contract of a latent."""


def _rows(dim: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(ROWS, dim, generator=_generator(0), dtype=torch.float64).to(dtype)


def _context(context_dim: int, dtype: torch.dtype) -> Context | None:
    if not context_dim:
        return None
    table = torch.randn(CELLS, context_dim, generator=_generator(1), dtype=torch.float64)
    return Context(table.to(dtype), torch.arange(ROWS) % CELLS)


def _latent_and_data(make_latent: MakeLatent) -> tuple[Latent, Tensor, Tensor]:
    latent = make_latent()
    dim = latent.sample(1, _generator(0)).shape[1]
    shift = torch.randn(dim, generator=_generator(1), dtype=torch.float64)
    z = latent.sample(2 * dim + 7, _generator(2)).double() + shift
    return latent, z[: dim + 4], z[dim + 4 :]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _require(ok: bool, check: str, message: str) -> None:
    if not ok:
        raise AssertionError(f"{check}: {message}")


def _require_close(found: Tensor, truth: Tensor, tolerance: float, check: str, what: str) -> None:
    """|found - truth| <= tolerance (1 + |truth|), everywhere."""
    if found.shape != truth.shape:
        raise AssertionError(f"{check}: {what} has shape {found.shape}, expected {truth.shape}")
    error = (found - truth).detach().abs() / (1 + truth.detach().abs())
    worst = float(error.max()) if error.numel() else 0.0
    if not worst <= tolerance:
        raise AssertionError(f"{check}: {what} is off by {worst:.3g}, over {tolerance:g}")
