"""All groups at once are the groups one by one: sequences, rows, and their gradients."""

import math

import pytest
import torch

from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments
from clbruno.learn.laws import PooledLaws, StackedLaws

DIM = 4
GROUP = torch.tensor([2, 0, 0, 3, 2, 2, 0, 3, 2])


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def laws(dof: float) -> list[ExchangeableGaussian]:
    """Four groups, two of which have seen samples; the second never occurs below."""
    found = []
    for at in range(4):
        nu = 1 + noise(DIM, seed=at).square()
        law = ExchangeableGaussian.prior(nu, 0.3 * nu, dof)
        seen = Moments.of(noise(3 + at, DIM, seed=at) + 1, full=False)
        found.append(law.given(seen) if at % 2 else law)
    return found


@pytest.mark.parametrize("term", ["nll", "log_prob"])
@pytest.mark.parametrize("dof", [math.inf, 7.0])
def test__stacked_laws__value_and_gradient__are_those_of_the_groups_one_by_one(
    dof: float, term: str
) -> None:
    each = laws(dof)
    z = noise(len(GROUP), DIM, seed=9).requires_grad_()

    found = getattr(StackedLaws(ExchangeableGaussian.stack(each)), term)(z, GROUP)
    ask = {"nll": ExchangeableGaussian.nll_of, "log_prob": ExchangeableGaussian.log_prob}[term]
    truth = sum(ask(each[at], z[at == GROUP]).sum() for at in GROUP.unique().tolist())

    assert float(found.detach()) == pytest.approx(float(truth.detach()), rel=1e-12)
    (one,), (other,) = (torch.autograd.grad(value, z) for value in (found, truth))
    assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test__pooled_laws__value_and_gradient__are_those_of_dense_gaussians() -> None:
    mean, factor = noise(4, DIM, seed=1), noise(DIM, DIM, seed=2)
    covariance = factor @ factor.mT + torch.eye(DIM)
    z = noise(len(GROUP), DIM, seed=9).requires_grad_()
    laws = PooledLaws.of(mean, covariance, z.detach())

    found = laws.log_prob(z, GROUP)

    truth = torch.distributions.MultivariateNormal(mean[GROUP], covariance).log_prob(z).sum()
    assert float(found.detach()) == pytest.approx(float(truth.detach()), rel=1e-12)
    assert float(laws.nll(z, GROUP).detach()) == -float(found.detach())
    (one,), (other,) = (torch.autograd.grad(value, z) for value in (found, truth))
    assert torch.allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dof", [math.inf, 7.0])
def test__stack__one_stack_behind_another__is_the_stack_of_all(dof: float) -> None:
    each = laws(dof)

    joined = ExchangeableGaussian.stack(each[:1]).joined(ExchangeableGaussian.stack(each[1:]))

    whole = ExchangeableGaussian.stack(each)
    z = noise(len(GROUP), DIM)
    assert torch.equal(joined.at(GROUP).log_prob(z), whole.at(GROUP).log_prob(z))


@pytest.mark.parametrize("dof", [math.inf, 7.0])
def test__stack__samples__have_the_means_of_their_groups(dof: float) -> None:
    stack = ExchangeableGaussian.stack(laws(dof))
    group = torch.arange(4).repeat(20_000)

    z = stack.at(group).sample(len(group), torch.Generator().manual_seed(0))

    for at in range(4):
        error = z[group == at].mean(0) - stack.mean[at]
        deviation = (stack.delta + stack.rho)[at].sqrt()
        assert float((error / deviation).abs().max()) < 4 / math.sqrt(20_000)
