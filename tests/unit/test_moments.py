"""Sufficient statistics: exact formulas, merging, a thousand million samples, huge offsets."""

import numpy as np
import pytest
import torch

from clbruno.core.moments import Moments, merged
from clbruno.errors import InputError


def rows(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64) * 2 + 1


def assert_same(found: Moments, truth: Moments, tolerance: float = 1e-12) -> None:
    assert found.count == truth.count
    for one, two in ((found.mean, truth.mean), (found.scatter, truth.scatter)):
        assert one.shape == two.shape
        assert bool(((one - two).abs() <= tolerance * (1 + two.abs())).all())


@pytest.mark.parametrize("full", [False, True])
def test__moments__of_rows__is_count_mean_and_centred_scatter(full: bool) -> None:
    z = rows(9, 3)

    found = Moments.of(z, full=full)

    x = z.numpy()
    scatter = sum(np.outer(r - x.mean(0), r - x.mean(0)) for r in x)
    assert found.count == 9.0
    assert found.full is full
    assert np.allclose(found.mean, x.mean(0), atol=1e-13)
    assert np.allclose(found.scatter, scatter if full else np.diag(scatter), atol=1e-12)


@pytest.mark.parametrize("full", [False, True])
def test__moments__merge__is_that_of_the_union(full: bool) -> None:
    z = rows(10, 3)

    found = Moments.of(z[:3], full=full).merge(Moments.of(z[3:], full=full))

    assert_same(found, Moments.of(z, full=full))


@pytest.mark.parametrize("full", [False, True])
def test__moments__merge_with_none__changes_nothing(full: bool) -> None:
    some, none = Moments.of(rows(4, 2), full=full), Moments.empty(2, full=full)

    for found in (some.merge(none), none.merge(some)):
        assert found.count == 4.0
        assert torch.equal(found.mean, some.mean)
        assert torch.equal(found.scatter, some.scatter)
    assert none.merge(none).count == 0.0


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 2, 2)])
def test__moments__of_no_rows_or_no_table__input_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"at least one row .* shape"):
        Moments.of(torch.zeros(shape), full=False)


@pytest.mark.parametrize("full", [False, True])
def test__moments__merged_with_itself_20_times__1e9_samples_without_loss(full: bool) -> None:
    once = Moments.of(rows(1000, 2), full=full)

    many = once
    for _ in range(20):
        many = many.merge(many)

    assert many.count == 1000 * 2**20 > 1e9
    assert torch.allclose(many.mean, once.mean, rtol=1e-15, atol=0)
    assert torch.allclose(many.scatter, 2**20 * once.scatter, rtol=1e-14, atol=0)


def test__moments__1e9_and_one_more__still_moves() -> None:
    many = Moments(1e9, torch.zeros(1).double(), torch.zeros(1).double())

    more = many.merge(Moments.of(torch.ones(1, 1).double(), full=False))

    assert more.count == 1e9 + 1
    assert float(more.mean) == pytest.approx(1 / (1e9 + 1), rel=1e-12)
    assert float(more.scatter) == pytest.approx(1e9 / (1e9 + 1), rel=1e-12)


@pytest.mark.parametrize("full", [False, True])
def test__moments__mean_1e6_and_deviation_1__keeps_the_digits(full: bool) -> None:
    signs = torch.tensor([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]).double()
    z = 1e6 + signs.repeat(25_000, 1)

    found = Moments.stream(z.split(777), dim=2, full=full)

    truth = 1e5 * torch.eye(2).double() if full else torch.full((2,), 1e5).double()
    assert float((found.mean - 1e6).abs().max()) < 1e-9
    assert float((found.scatter - truth).abs().max()) < 1e-3


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test__moments__stream__is_one_batch_in_float64(chunk: int) -> None:
    z = rows(100, 3).float()

    found = Moments.stream((*z.split(chunk), z[:0]), dim=3, full=True)

    assert found.mean.dtype == found.scatter.dtype == torch.float64
    assert_same(found, Moments.of(z.double(), full=True))


def test__moments__empty_stream__is_the_empty_statistics() -> None:
    found = Moments.stream([], dim=3, full=True)

    assert found.count == 0.0
    assert found.mean.shape == (3,)
    assert found.scatter.shape == (3, 3)


def test__moments__of_float32__keeps_precision_and_gradient() -> None:
    z = rows(5, 2).float().requires_grad_()

    found = Moments.of(z, full=False)

    assert found.mean.dtype == torch.float32
    gradient = torch.autograd.grad(found.scatter.sum(), z)[0]
    assert torch.allclose(gradient, 2 * (z - z.mean(0)), atol=1e-5)


def test__merged__several_sets_of_cells__are_added_cell_by_cell() -> None:
    z = rows(12, 2)
    first = {0: Moments.of(z[:3], full=True), 4: Moments.of(z[3:5], full=True)}
    second = {4: Moments.of(z[5:9], full=True), 2: Moments.of(z[9:], full=True)}

    total = merged(first, {}, second)

    assert sorted(total) == [0, 2, 4]
    assert_same(total[4], Moments.of(z[3:9], full=True))
    assert_same(total[0], first[0])
    assert_same(total[2], second[2])
    assert first[4].count == 2, "what came in is not changed"
    assert merged() == {}


@pytest.mark.parametrize("full", [True, False])
def test__without__a_part__undoes_the_merge(full: bool) -> None:
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 9
    rest, part = Moments.of(z[:30], full=full), Moments.of(z[30:] * 2, full=full)

    found = rest.merge(part).without(part)

    assert found.count == 30
    torch.testing.assert_close(found.mean, rest.mean, rtol=1e-13, atol=0)
    torch.testing.assert_close(found.scatter, rest.scatter, rtol=1e-11, atol=1e-11)
    assert rest.without(Moments.empty(3, full=full)) is rest
    with pytest.raises(InputError, match="a part has 30 samples"):
        rest.without(rest)
