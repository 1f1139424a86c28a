"""The three terms against the paper's equations, written out row by row."""

import pytest
import torch
from torch import Tensor, nn

from clbruno.core.coupling import Context
from clbruno.core.flow import CouplingFlow
from clbruno.core.latent import ExchangeableGaussian
from clbruno.learn.laws import StackedLaws
from clbruno.learn.objective import functional, likelihood, retention
from clbruno.learn.replay import Replay

DIM, CONTEXT = 3, 2


@pytest.fixture
def flow() -> CouplingFlow:
    generator = torch.Generator().manual_seed(0)
    flow = CouplingFlow(DIM, 3, hidden=5, context_dim=CONTEXT, generator=generator).double()
    with torch.no_grad():
        for weights in flow.parameters():
            weights.copy_(0.5 * torch.randn(weights.shape, generator=generator))
    return flow


@pytest.fixture
def laws() -> StackedLaws:
    nu, rho = torch.tensor([1.0, 2.0, 0.7]).double(), torch.tensor([0.3, 1.5, 0.1]).double()
    prior = ExchangeableGaussian.prior(nu, rho)
    seen = prior.moments(rows(4, 9))
    return StackedLaws(ExchangeableGaussian.stack([prior, prior, prior.given(seen)]))


def rows(n: int, seed: int) -> Tensor:
    return torch.randn(n, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(cells: Tensor) -> Context:
    return Context(torch.tensor([[0.1, 2.0], [-1.0, 0.4], [0.0, 0.7]]).double(), cells)


def dense(law: ExchangeableGaussian, z: Tensor) -> float:
    """log N(z; mean, rho + delta I) of a whole sequence, each dimension an n x n Gaussian."""
    n, total = len(z), 0.0
    for at in range(DIM):
        cov = (
            torch.full((n, n), float(law.rho[at])).double() + law.delta[at] * torch.eye(n).double()
        )
        law_of_row = torch.distributions.MultivariateNormal(law.mean[at].expand(n), cov)
        total += float(law_of_row.log_prob(z[:, at]))
    return total


def test__likelihood__against_dense_gaussians_and_jacobians__equation_3(
    flow: CouplingFlow, laws: StackedLaws
) -> None:
    x, cell, group = rows(7, 1), torch.tensor([0, 1, 2, 0, 1, 2, 2]), None
    group = torch.tensor([0, 0, 2, 0, 0, 2, 2])

    found = likelihood(*flow(x, context(cell)), group, laws)

    expected, latents = 0.0, []
    for at in range(len(x)):
        here = context(cell[at : at + 1])
        jacobian = torch.autograd.functional.jacobian(
            lambda row, here=here: flow(row[None], here)[0][0], x[at]
        )
        expected -= float(torch.linalg.slogdet(jacobian).logabsdet)
        latents.append(flow(x[at : at + 1], here)[0][0].detach())
    z = torch.stack(latents)
    for task in (0, 2):
        expected -= dense(laws.stack.at(torch.tensor(task)), z[group == task])
    assert float(found.detach()) == pytest.approx(expected, abs=1e-9)


def test__likelihood__rows_of_a_group_in_another_order__same(
    flow: CouplingFlow, laws: StackedLaws
) -> None:
    x, cell, group = rows(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([0, 0, 2, 0, 0, 2])
    order = torch.tensor([5, 2, 0, 1, 4, 3])

    one = likelihood(*flow(x, context(cell)), group, laws)
    two = likelihood(*flow(x[order], context(cell[order])), group[order], laws)

    assert float(one.detach()) == pytest.approx(float(two.detach()), abs=1e-10)


def test__retention__each_row_on_its_own__equation_6(flow: CouplingFlow, laws: StackedLaws) -> None:
    x, cell, group = rows(5, 3), torch.tensor([0, 1, 2, 0, 2]), torch.tensor([0, 0, 2, 0, 2])

    found = retention(*flow(x, context(cell)), group, laws)

    expected = 0.0
    for at in range(5):
        one = slice(at, at + 1)
        loss = likelihood(*flow(x[one], context(cell[one])), group[one], laws)
        expected += float(loss.detach())
    assert float(found.detach()) == pytest.approx(expected, abs=1e-9)


def test__functional__squared_distance_of_inverses__equation_4(flow: CouplingFlow) -> None:
    z, x, cell = rows(5, 4), rows(5, 5), torch.tensor([0, 1, 2, 0, 2])

    found = functional(flow, Replay(z, x, cell), context(cell))

    with torch.no_grad():
        expected = ((flow.inverse(z, context(cell)) - x) ** 2).sum()
        assert float(found) == pytest.approx(float(expected), abs=1e-12)
        back = flow.inverse(z, context(cell))
        assert float(functional(flow, Replay(z, back, cell), context(cell))) == 0.0


@pytest.mark.parametrize("term", ["likelihood", "retention", "functional"])
def test__terms__gradient__reaches_every_layer(
    flow: CouplingFlow, laws: StackedLaws, term: str
) -> None:
    z, x, cell = rows(6, 6), rows(6, 7), torch.tensor([0, 1, 2, 0, 1, 2])
    group, replay = torch.tensor([0, 0, 2, 0, 0, 2]), Replay(z, x, cell)

    loss = {
        "likelihood": lambda: likelihood(*flow(x, context(cell)), group, laws),
        "retention": lambda: retention(*flow(x, context(cell)), group, laws),
        "functional": lambda: functional(flow, replay, context(cell)),
    }[term]()
    loss.backward()

    for module in flow.modules():
        if isinstance(module, nn.Linear):
            assert module.weight.grad is not None
            assert float(module.weight.grad.abs().max()) > 0
