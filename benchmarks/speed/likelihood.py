"""The likelihood of a whole sequence, against the recursion that goes sample by sample."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.clock import Options, Row, race, ratio
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments

N, DIM, PART = 10_000, 512, 256


def recursion(z: Tensor, nu: Tensor, rho: Tensor) -> Tensor:
    """-log p(z_1, .., z_n), each sample by the Gaussian that the ones before it predict.

    d_i = rho / (nu + rho (i - 1)),  mean' = mean + d (z - mean),  v' = v - d (v - nu + rho)
    """
    mean, variance = torch.zeros_like(nu), nu
    total = torch.zeros((), dtype=z.dtype)
    constant = 0.5 * len(nu) * torch.log(torch.tensor(2 * torch.pi, dtype=z.dtype))
    for at, row in enumerate(z.unbind()):
        beta = (row - mean).square() / variance
        total = total + 0.5 * (beta + variance.log()).sum() + constant
        gain = rho / (nu + rho * at)
        mean = mean + gain * (row - mean)
        variance = variance - gain * (variance - nu + rho)
    return total


def rows(options: Options) -> list[Row]:
    """The closed form from statistics, with and without its gradient."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(N, DIM, generator=generator, dtype=torch.float64)
    nu = 1 + torch.rand(DIM, generator=generator, dtype=torch.float64)
    rho = 0.4 * nu
    law = ExchangeableGaussian.prior(nu, rho)

    def closed() -> Tensor:
        return law.nll(Moments.stream(z.split(PART), DIM, full=False))

    gap = abs(float(closed() / recursion(z, nu, rho)) - 1)
    assert gap < 1e-10, gap
    seconds = race(
        {
            "closed form": closed,
            "recursion": lambda: recursion(z, nu, rho),
            "reading the rows once": z.sum,
            "closed form with gradient": lambda: with_gradient(z, nu, rho, closed=True),
            "recursion with gradient": lambda: with_gradient(z, nu, rho, closed=False),
        },
        options.repeats,
    )
    checked = f"closed form and recursion differ by {gap:.0e} of their value"
    details = {"seconds": seconds, "n": N, "D": DIM, "numbers kept": 2 * DIM + 1}
    against = "recursion of the paper, one step a sample"
    return [
        Row(
            f"sequence likelihood and statistics, n = {N:,}, D = {DIM}",
            against,
            1 / ratio(seconds, "closed form", "recursion", options.threads),
            500,
            at_least=True,
            checked=checked,
            details=details,
        ),
        Row(
            "the same with its gradient",
            against,
            1
            / ratio(
                seconds, "closed form with gradient", "recursion with gradient", options.threads
            ),
            500,
            at_least=True,
            checked=checked,
            details=details,
        ),
    ]


def with_gradient(z: Tensor, nu: Tensor, rho: Tensor, *, closed: bool) -> Tensor:
    """The gradient with respect to the rows."""
    leaf = z.detach().requires_grad_()
    if closed:
        law = ExchangeableGaussian.prior(nu, rho)
        value = law.nll_of(leaf)
    else:
        value = recursion(leaf, nu, rho)
    (found,) = torch.autograd.grad(value, leaf)
    return found
