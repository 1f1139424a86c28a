"""Flows: inverse, log-determinant, parameter count, contract, and zuko as an oracle."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clbruno.checks import check_flow
from clbruno.core.coupling import Context
from clbruno.core.flow import CellEmbedding, CouplingFlow, FlowSequence, Whitening
from clbruno.errors import InputError

DIMS = [1, 2, 3, 7, 512]
MakeFlow = Callable[[torch.dtype], torch.nn.Module]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def coupling_flow(dim: int, context_dim: int = 0, hidden: int = 16, scale: float = 1.0) -> MakeFlow:
    """Six couplings whose every weight is random and none is zero."""

    def make(dtype: torch.dtype) -> CouplingFlow:
        flow = CouplingFlow(dim, 6, hidden, context_dim, generator=generator())
        with torch.no_grad():
            for name, weights in flow.named_parameters():
                if ".leave." in name:
                    weights.uniform_(-1, 1, generator=generator(weights.numel()))
                    weights.mul_(scale * hidden**-0.5)
        return flow.to(dtype)

    return make


def whitening(dim: int) -> MakeFlow:
    rows = torch.randn(20 * dim, dim, generator=generator(3), dtype=torch.float64)
    flow = Whitening.of(rows.mean(0), rows.mT @ rows / len(rows), ridge=0.1)
    return lambda dtype: Whitening(flow.mean.to(dtype), flow.root.to(dtype))


def sequence(*parts: MakeFlow) -> MakeFlow:
    return lambda dtype: FlowSequence([make(dtype) for make in parts])


@pytest.mark.parametrize("context_dim", [0, 4])
@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test__coupling_flow__random_weights__keeps_the_contract(dim: int, context_dim: int) -> None:
    check_flow(coupling_flow(dim, context_dim), context_dim)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test__whitening__any__keeps_the_contract(dim: int) -> None:
    check_flow(whitening(dim))


def test__sequence__of_whitening_and_couplings__keeps_the_contract() -> None:
    check_flow(sequence(whitening(5), coupling_flow(5, scale=0.5), coupling_flow(5, scale=0.5)))
    check_flow(sequence(whitening(5), coupling_flow(5, 3, scale=0.5)), context_dim=3)


@pytest.mark.parametrize("context_dim", [0, 128])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test__coupling_flow__inverse__within_tolerance(
    dim: int, dtype: torch.dtype, tolerance: float, context_dim: int
) -> None:
    flow = coupling_flow(dim, context_dim, hidden=256)(dtype)
    x = torch.randn(64, dim, generator=generator(1), dtype=dtype)
    context = None
    if context_dim:
        context = Context(
            torch.randn(3, context_dim, generator=generator(2), dtype=dtype), torch.arange(64) % 3
        )

    with torch.no_grad():
        z, ladj = flow(x, context)
        back = flow.inverse(z, context)
        there, _ = flow(flow.inverse(x, context), context)

    assert float((z - x).abs().max()) > 0.1
    assert float(ladj.abs().min()) > 0
    assert float((back - x).abs().max()) < tolerance
    assert float((there - x).abs().max()) < tolerance


@pytest.mark.parametrize("dim", DIMS)
def test__coupling_flow__log_det__is_that_of_autograd(dim: int) -> None:
    flow = coupling_flow(dim, 8, hidden=256)(torch.float64)
    x = torch.randn(2, dim, generator=generator(1), dtype=torch.float64)
    table = torch.randn(2, 8, generator=generator(2), dtype=torch.float64)
    index = torch.arange(2)

    ladj = flow(x, Context(table, index))[1].detach()

    for row in range(2):
        only = Context(table, index[row : row + 1])
        jacobian = torch.autograd.functional.jacobian(
            lambda v, only=only: flow(v[None], only)[0][0], x[row], vectorize=True
        )
        truth = torch.linalg.slogdet(jacobian).logabsdet
        assert abs(float(ladj[row])) > 1e-3
        assert float(ladj[row]) == pytest.approx(float(truth), abs=1e-9)


def test__coupling_flow__paper_recipe__has_1380864_parameters() -> None:
    flow = CouplingFlow(512, 6, hidden=256, context_dim=128)

    assert sum(weights.numel() for weights in flow.parameters()) == 1_380_864


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("couplings", [0, 1, 6])
def test__coupling_flow__new__is_exactly_the_identity(dim: int, couplings: int) -> None:
    flow = CouplingFlow(dim, couplings, hidden=8)
    x = torch.randn(4, dim, generator=generator())

    z, ladj = flow(x)

    assert torch.equal(z, x)
    assert torch.equal(ladj, torch.zeros(4))
    assert torch.equal(flow.inverse(x), x)


def test__coupling_flow__two_couplings__move_every_feature_by_the_other_half() -> None:
    flow = CouplingFlow(5, 2, hidden=8).double()
    coupling = coupling_flow(5, hidden=8)(torch.float64)
    flow.load_state_dict({k: v for k, v in coupling.state_dict().items() if k in flow.state_dict()})
    x = torch.randn(5, generator=generator(4), dtype=torch.float64)

    jacobian = torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0], x)

    assert bool((jacobian[2:, :2] != 0).all()), "the second half moves with the first"
    assert bool((jacobian[:2, 2:] != 0).all()), "the first half moves with the second"
    assert bool((jacobian.diagonal() != 1).all()), "every feature is scaled"


def test__whitening__of_a_covariance__makes_it_the_identity() -> None:
    rows = torch.randn(400, 4, generator=generator(), dtype=torch.float64)
    rows = rows @ torch.randn(4, 4, generator=generator(1), dtype=torch.float64) + 3
    covariance = torch.cov(rows.mT)

    z, ladj = Whitening.of(rows.mean(0), covariance, ridge=0.0)(rows)

    assert torch.allclose(torch.cov(z.mT), torch.eye(4).double(), atol=1e-10)
    assert float(z.mean(0).abs().max()) < 1e-12
    assert float(ladj[0]) == pytest.approx(-0.5 * float(torch.logdet(covariance)), abs=1e-10)


def test__whitening__of_a_singular_covariance__is_held_up_by_the_ridge() -> None:
    covariance = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))

    root = Whitening.of(torch.zeros(2).double(), covariance, ridge=0.25).root

    truth = torch.diag(torch.tensor([4.25**-0.5, 2.0], dtype=torch.float64))
    assert torch.allclose(root, truth, atol=1e-12)


def test__whitening__root__is_symmetric_and_moves_little_with_the_covariance() -> None:
    covariance = torch.eye(3).double() + 1e-9 * torch.randn(
        3, 3, generator=generator(), dtype=torch.float64
    )
    covariance = (covariance + covariance.mT) / 2

    root = Whitening.of(torch.zeros(3).double(), covariance, ridge=0.0).root

    assert torch.allclose(root, root.mT, atol=1e-12)
    assert torch.allclose(root, torch.eye(3).double(), atol=1e-8)


@pytest.mark.parametrize("smallest", [0.0, -1.0])
def test__whitening__root_not_positive_definite__input_error(smallest: float) -> None:
    with pytest.raises(InputError, match="positive definite"):
        Whitening(torch.zeros(2), torch.diag(torch.tensor([1.0, smallest])))


def test__sequence__two_flows__applies_them_in_order_and_adds_log_dets() -> None:
    first, second = whitening(3)(torch.float64), coupling_flow(3)(torch.float64)
    x = torch.randn(5, 3, generator=generator(9), dtype=torch.float64)

    z, ladj = FlowSequence([first, second])(x)

    middle, one = first(x)
    truth, two = second(middle)
    assert torch.equal(z, truth)
    assert torch.allclose(ladj, one + two, atol=1e-12)


@pytest.mark.parametrize(("context_dim", "conditional"), [(0, False), (3, True)])
def test__sequence__conditional__if_any_part_is(context_dim: int, conditional: bool) -> None:
    flow = sequence(whitening(4), coupling_flow(4, context_dim))(torch.float32)

    assert flow.conditional is conditional
    assert flow.dim == 4


def test__embedding__table__is_task_plus_label() -> None:
    task, label = torch.tensor([[1.0], [10.0]]), torch.tensor([[0.1], [0.2], [0.3]])

    table = CellEmbedding(task, label, torch.tensor([0, 1, 1]))()

    assert table.flatten().tolist() == pytest.approx([1.1, 10.2, 10.3])


def test__embedding__grown__keeps_old_contexts_and_draws_new_ones_from_the_seed() -> None:
    old = CellEmbedding(torch.ones(1, 4).double(), torch.ones(2, 4).double(), torch.tensor([0, 0]))
    state = torch.random.get_rng_state()

    new = old.grown(torch.tensor([0, 0, 1]), 2, generator(5))
    again = old.grown(torch.tensor([0, 0, 1]), 2, generator(5))

    assert new().shape == (3, 4)
    assert torch.equal(new()[:2], old())
    assert torch.equal(new(), again())
    assert new.label.dtype == torch.float64
    assert float(new.label[2].detach().std()) > 0.1
    assert torch.equal(state, torch.random.get_rng_state())


ZUKO = """
import math, sys, torch, zuko
from clbruno.core.coupling import Context
from clbruno.core.flow import CouplingFlow

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
dim, context_dim, hidden, bound = 7, 4, 16, 2.5
half, features = dim // 2, torch.arange(dim)
generator = torch.Generator().manual_seed(0)
ours = CouplingFlow(dim, 6, hidden, context_dim, bound=bound)
with torch.no_grad():
    for weights in ours.parameters():
        weights.normal_(0, 0.4, generator=generator)

def univariate(shift, scale):
    return zuko.transforms.MonotonicAffineTransform(shift, scale, slope=math.exp(-bound))

transforms = []
for number, layer in enumerate(ours.layers):
    mask = features < half if number % 2 == 0 else features >= half
    theirs = zuko.flows.coupling.GeneralCouplingTransform(
        dim, context_dim, mask=mask, univariate=univariate,
        hidden_features=(hidden,), activation=torch.nn.SiLU,
    )
    enter, leave = theirs.hyper[0], theirs.hyper[2]
    moved = int((~mask).sum())
    order = torch.stack((torch.arange(moved), moved + torch.arange(moved)), 1).flatten()
    with torch.no_grad():
        enter.weight.copy_(torch.cat((layer.enter.weight, layer.context.weight), 1))
        enter.bias.copy_(layer.enter.bias)
        leave.weight.copy_(layer.leave.weight[order])
        leave.bias.copy_(layer.leave.bias[order])
    transforms.append(theirs)
base = zuko.lazy.UnconditionalDistribution(
    zuko.distributions.DiagNormal, torch.zeros(dim), torch.ones(dim), buffer=True
)
oracle = zuko.lazy.Flow(transforms, base)

x = torch.randn(50, dim, generator=generator)
table = torch.randn(3, context_dim, generator=generator)
index = torch.arange(50) % 3
truth = oracle(table[index]).log_prob(x)
z, ladj = ours(x, Context(table, index))
found = base().log_prob(z) + ladj
assert float(ladj.abs().min()) > 0.01
print(float((found - truth).abs().max() / truth.abs().max()))
"""


def test__coupling_flow__zuko_with_copied_weights__same_log_density() -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", ZUKO],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=source,
    )

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-12
