"""One affine coupling: the equation, its bounds, its start."""

import numpy as np
import pytest
import torch

from clbruno.core.coupling import QUIET, AffineCoupling, Context


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer_with_weights(
    fixed: int, moved: int, context_dim: int, scale: float = 0.5, bound: float = 3.0
) -> AffineCoupling:
    layer = AffineCoupling(fixed, moved, 8, context_dim, bound, generator()).double()
    with torch.no_grad():
        for weights in layer.parameters():
            weights.normal_(0, scale, generator=generator(weights.numel()))
    return layer


def written_out(
    layer: AffineCoupling, a: np.ndarray, b: np.ndarray, c: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Eq. 1 for one row, feature by feature, in plain loops."""
    weights = {name: w.detach().numpy() for name, w in layer.named_parameters()}
    inner = weights["enter.bias"] + weights["enter.weight"] @ a
    if c is not None:
        inner = inner + weights["context.weight"] @ c
    hidden = inner / (1 + np.exp(-inner))
    out = weights["leave.weight"] @ hidden + weights["leave.bias"]
    moved, ladj = np.empty_like(b), 0.0
    for d in range(len(b)):
        raw = out[len(b) + d]
        s = raw / (1 + abs(raw) / layer.bound)
        moved[d] = out[d] + np.exp(s) * b[d]
        ladj += s
    return moved, ladj


@pytest.mark.parametrize(("fixed", "moved", "context_dim"), [(2, 3, 0), (3, 2, 4), (1, 1, 1)])
def test__coupling__forward__is_the_equation(fixed: int, moved: int, context_dim: int) -> None:
    layer = layer_with_weights(fixed, moved, context_dim)
    a = torch.randn(6, fixed, generator=generator(1), dtype=torch.float64)
    b = torch.randn(6, moved, generator=generator(2), dtype=torch.float64)
    context, rows = None, [None] * 6
    if context_dim:
        table = torch.randn(3, context_dim, generator=generator(3), dtype=torch.float64)
        index = torch.tensor([0, 2, 1, 0, 1, 2])
        context, rows = Context(table, index), [table[i].numpy() for i in index]

    with torch.no_grad():
        found, ladj = layer(a, b, context)

    for i in range(6):
        truth, total = written_out(layer, a[i].numpy(), b[i].numpy(), rows[i])
        assert found[i].tolist() == pytest.approx(truth.tolist(), abs=1e-12)
        assert float(ladj[i]) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("context_dim", [0, 4])
def test__coupling__new__is_exactly_the_identity(context_dim: int) -> None:
    layer = AffineCoupling(2, 3, 8, context_dim)
    a, b = torch.randn(5, 2, generator=generator()), torch.randn(5, 3, generator=generator(1))
    context = Context(torch.ones(1, 4), torch.zeros(5, dtype=torch.long)) if context_dim else None

    moved, ladj = layer(a, b, context)

    assert torch.equal(moved, b)
    assert torch.equal(ladj, torch.zeros(5))
    assert torch.equal(layer.inverse(a, b, context), b)


@pytest.mark.parametrize("bound", [0.5, 3.0])
def test__coupling__huge_weights__log_scale_stays_under_its_bound(bound: float) -> None:
    layer = layer_with_weights(2, 3, 0, scale=100, bound=bound)
    a = torch.randn(50, 2, generator=generator(1), dtype=torch.float64)
    zeros = torch.zeros(50, 3, dtype=torch.float64)

    with torch.no_grad():
        one, zero = layer(a, zeros + 1, None)[0], layer(a, zeros, None)[0]

    log_scale = (one - zero).log()
    assert float(log_scale.abs().max()) < bound
    assert float(log_scale.max()) > 0.95 * bound
    assert float(log_scale.min()) < -0.95 * bound


def test__coupling__no_driver__moves_all_rows_alike() -> None:
    layer = layer_with_weights(0, 2, 0)
    b = torch.randn(5, 2, generator=generator(1), dtype=torch.float64)

    with torch.no_grad():
        moved, ladj = layer(torch.empty(5, 0, dtype=torch.float64), b, None)

    slope = (moved[1:] - moved[:1]) / (b[1:] - b[:1])
    assert slope.std(0).max() < 1e-12
    assert float(ladj[0]) == pytest.approx(float(slope[0].log().sum()), abs=1e-12)


def test__coupling__seed__repeats_its_weights_and_leaves_torch_alone() -> None:
    state = torch.random.get_rng_state()

    one, again, other = (AffineCoupling(3, 3, 8, 2, generator=generator(s)) for s in (5, 5, 6))

    assert torch.equal(one.enter.weight, again.enter.weight)
    assert one.context is not None
    assert again.context is not None
    assert torch.equal(one.context.weight, again.context.weight)
    assert not torch.equal(one.enter.weight, other.enter.weight)
    assert torch.equal(state, torch.random.get_rng_state())


def test__coupling__start__is_uniform_within_one_over_root_of_the_inputs() -> None:
    layer = AffineCoupling(400, 2, 300, 100, generator=generator())

    assert layer.context is not None
    enter, context = layer.enter.weight.detach(), layer.context.weight.detach()
    assert float(enter.abs().max()) == pytest.approx(QUIET / 20, rel=1e-3)
    assert float(context.abs().max()) == pytest.approx(1 / 10, rel=1e-3)
    assert abs(float(enter.mean())) < 1e-3


@pytest.mark.parametrize("context_dim", [0, 3])
@pytest.mark.parametrize("way", ["forward", "inverse"])
def test__coupling__derivative__is_that_of_finite_differences(way: str, context_dim: int) -> None:
    layer = layer_with_weights(2, 3, context_dim)
    noise = [torch.randn(4, width, generator=generator(width)).double() for width in (2, 3)]
    a, b = (rows.requires_grad_() for rows in noise)
    table = torch.randn(2, 3, generator=generator(9)).double().requires_grad_()
    cell = torch.tensor([0, 1, 1, 0])

    def apply(a: torch.Tensor, b: torch.Tensor, table: torch.Tensor, *_: torch.Tensor) -> object:
        return getattr(layer, way)(a, b, Context(table, cell) if context_dim else None)

    inputs = (a, b, table, *layer.parameters()) if context_dim else (a, b, table.detach())
    assert torch.autograd.gradcheck(apply, inputs)
