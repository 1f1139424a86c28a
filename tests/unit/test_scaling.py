"""The scale of the inputs: the equation, its log-determinant, its floor, chunks of any size."""

import math

import numpy as np
import pytest
import torch

from clbruno.data import scaling
from clbruno.data.scaling import Scaler

HALF_STEP = 0.5 / scaling.STEPS + 1e-9


def table(n: int = 50, dim: int = 4) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, dim)) * np.array([1.0, 2.0, 3.0, 4.0])[:dim] + 10


@pytest.mark.parametrize("rows", [1, 7, 50, 8192])
@pytest.mark.parametrize("root", [False, True])
def test__scaler__own_spreads__every_column_gets_deviation_one_and_mean_zero_to_a_step(
    rows: int, root: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "ROWS", rows)

    z = Scaler.fit(table(), common=False, root=root).forward(torch.from_numpy(table()))

    assert float(z.mean(0).abs().max()) <= HALF_STEP
    assert z.std(0, correction=0).tolist() == pytest.approx([1.0] * 4)


def test__scaler__common_scale__keeps_the_ratios_of_the_spreads() -> None:
    x = table()

    z = Scaler.fit(x, common=True).forward(torch.from_numpy(x)).numpy()

    typical = math.sqrt(np.mean(x.std(0) ** 2))
    assert z.std(0) == pytest.approx(x.std(0) / typical)
    assert z.mean(0) == pytest.approx(np.zeros(4), abs=HALF_STEP)


def test__scaler__soft_root__is_the_equation() -> None:
    scaler = Scaler(2.0, True, torch.tensor([0.5]).double(), torch.tensor([3.0]).double())
    x = torch.tensor([[-8.0], [0.0], [8.0]], dtype=torch.float64)

    g = math.sqrt(4 + 0.01) - math.sqrt(0.01)

    truth = [(-g - 0.5) / 3, -0.5 / 3, (g - 0.5) / 3]
    assert scaler.forward(x).flatten().tolist() == pytest.approx(truth, abs=1e-14)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("common", [False, True])
def test__scaler__forward_and_inverse__undo_each_other(common: bool, root: bool) -> None:
    x = torch.from_numpy(table() - 10)
    scaler = Scaler.fit(table(), common=common, root=root)

    assert torch.allclose(scaler.inverse(scaler.forward(x)), x, rtol=0, atol=1e-12)
    assert torch.allclose(scaler.forward(scaler.inverse(x)), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("root", [False, True])
def test__scaler__ladj__is_that_of_autograd(root: bool) -> None:
    scaler = Scaler(1.7, root, torch.ones(3).double(), torch.tensor([0.5, 2.0, 9.0]).double())
    x = torch.tensor([[-3.0, 0.2, 5.0], [0.1, 40.0, -7.0]], dtype=torch.float64)

    found = scaler.ladj(x)

    for row in range(2):
        jacobian = torch.autograd.functional.jacobian(scaler.forward, x[row : row + 1])
        truth = torch.linalg.slogdet(jacobian.reshape(3, 3)).logabsdet
        assert float(found[row]) == pytest.approx(float(truth), abs=1e-12)


def test__scaler__fit__does_not_write_into_its_input() -> None:
    x = table()
    x.flags.writeable = False
    before = x.copy()

    Scaler.fit(x, common=False, root=True)

    assert np.array_equal(x, before)


def test__scaler__still_feature__gets_a_hundredth_of_the_typical_spread() -> None:
    x = table()
    x[:, 0] = 7.0

    scaler = Scaler.fit(x, common=False)

    assert float(scaler.scale[0]) == pytest.approx(0.01)
    assert (scaler.scale[1:] * scaler.unit).tolist() == pytest.approx(x.std(0)[1:].tolist())


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize(
    "x",
    [
        np.full((5, 3), 2.0),
        np.array([[1.0, -3.0]]),
        np.full((3, 2), 0.1),
        np.full((10_000, 1), 0.7),
        np.full((7, 2), 1e6 + 0.1),
    ],
)
def test__scaler__nothing_varies__later_rows_stay_in_the_units_of_the_data(
    x: np.ndarray, common: bool
) -> None:
    scaler = Scaler.fit(x, common=common)

    same, later = torch.from_numpy(x), torch.from_numpy(x + 1)
    assert float(scaler.forward(same).abs().max()) <= HALF_STEP
    assert float(scaler.forward(later).abs().max()) < 1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test__scaler__huge_offset__keeps_the_digits_in_float64(dtype: type) -> None:
    signs = np.tile([[1.0], [-1.0]], (50_000, 1)).astype(dtype)

    scaler = Scaler.fit((signs + 1e6).astype(dtype), common=False)

    z = scaler.forward(torch.tensor([[1e6 + 1], [1e6 - 1]], dtype=torch.float64))
    assert scaler.center.dtype == scaler.scale.dtype == torch.float64
    assert float(z[0] - z[1]) == pytest.approx(2.0, abs=1e-9)
    assert float(z.mean().abs()) <= HALF_STEP


@pytest.mark.parametrize("value", [0.0, 1.0, -3.25, 0.1, 255.0, 1e6 + 0.1])
def test__scaler__first_batch_of_equal_rows__does_not_keep_the_row(value: float) -> None:
    scaler = Scaler.fit(np.full((4, 3), value), common=False)

    assert not bool((scaler.center * scaler.unit == value).any())
