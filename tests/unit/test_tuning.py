"""Leave-one-out in closed form against real refits; log-losses against a loop; the choice."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clbruno import CLBrunoClassifier
from clbruno.core.calibration import Link
from clbruno.core.cells import ClassLatent, Thin
from clbruno.core.moments import Moments
from clbruno.data.scaling import Scaler
from clbruno.learn import tuning
from clbruno.learn.batch import Batch
from clbruno.learn.tuning import (
    RIDGES,
    TEMPERATURES,
    LeftOut,
    held_back_figures,
    leave_one_out,
    log_losses,
    rows_to_leave_out,
)

DIM = 4
SIZES = (30, 12, 3, 1, 50)


def gaussians(sizes: tuple[int, ...] = SIZES, dim: int = DIM) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows, cells = [], []
    for cell, size in enumerate(sizes):
        noise = torch.randn(size, dim, generator=generator, dtype=torch.float64)
        mix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        rows.append(noise @ mix + 2 * torch.randn(dim, generator=generator).double())
        cells += [cell] * size
    return torch.cat(rows), torch.tensor(cells)


def latent_of(z: Tensor, cell: Tensor, cells: int, **numbers: Any) -> ClassLatent:
    settings = {"strength": 3.0, "kappa": 1e-9, "ridge": 0.2, "memory": 10**9, **numbers}
    dim = z.shape[1]
    empty = ClassLatent((), torch.zeros(dim, dim).double(), (), **settings)
    seen = {at: Moments.of(z[cell == at], full=True) for at in range(cells) if (cell == at).any()}
    return empty.learned(seen, (0,) * cells)


def refitted(z: Tensor, cell: Tensor, cells: int, **numbers: Any) -> Tensor:
    """log p(z_i | cell, the others), each from a model that never saw row i."""
    columns = []
    for at in range(len(z)):
        kept = torch.arange(len(z)) != at
        latent = latent_of(z[kept], cell[kept], cells, **numbers)
        columns.append(latent.log_prob(z[at : at + 1], range(cells))[0])
    return torch.stack(columns)


def by_the_equations(latent: ClassLatent, rows: LeftOut) -> Tensor:
    """The docstring's Sigma_k', built densely and scored row by row."""
    found = torch.empty(len(rows.cell), len(latent.moments), dtype=torch.float64)
    degrees = sum(max(seen.count - 1, 0) for seen in latent.moments)
    eye = torch.eye(rows.z.shape[1], dtype=torch.float64)
    for at, own in enumerate(rows.cell.tolist()):
        n_own = latent.moments[own].count
        d = rows.z[at] - latent.moments[own].mean
        out = n_own / (n_own - 1) * torch.outer(d, d)
        pooled = latent.pooled - out / (degrees - 1)
        for cell in range(len(latent.moments)):
            seen = latent.seen(cell)
            mine = float(cell == own)
            samples = latent.strength + seen.count - mine
            own_part = seen.scatter - mine * out - (seen.count - mine) * pooled
            cov = pooled + latent.filter @ own_part @ latent.filter / samples
            cov = (1 - latent.ridge) * cov + latent.ridge * eye
            mean = seen.mean - mine * d / (n_own - 1)
            df = samples + 2
            scale = cov * (df - 2) / df * (1 + 1 / (latent.kappa + seen.count - mine))
            law = _Student(df, mean, scale)
            found[at, cell] = law.log_prob(rows.z[at])
    return found


class _Student:
    """A multivariate t, written out once more."""

    def __init__(self, df: float, mean: Tensor, scale: Tensor) -> None:
        self.df, self.mean, self.scale = df, mean, scale

    def log_prob(self, z: Tensor) -> float:
        gap, dim, df = (z - self.mean).numpy(), len(z), self.df
        distance = float(gap @ np.linalg.solve(self.scale.numpy(), gap))
        return (
            math.lgamma((df + dim) / 2)
            - math.lgamma(df / 2)
            - dim / 2 * math.log(df * math.pi)
            - 0.5 * float(np.linalg.slogdet(self.scale.numpy())[1])
            - (df + dim) / 2 * math.log(1 + distance / df)
        )


@pytest.mark.parametrize("ridge", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize("strength", [0.5, 3.0, 400.0])
@pytest.mark.parametrize("blur", [0.0, 5.0])
def test__leave_one_out__is_the_docstrings_equations(
    ridge: float, strength: float, blur: float
) -> None:
    z, cell = gaussians()
    latent = latent_of(z, cell, len(SIZES), ridge=ridge, strength=strength, blur=blur)
    can_lose_one = cell != 3
    rows = LeftOut(z[can_lose_one], cell[can_lose_one])

    found = leave_one_out(latent, rows)

    assert found.shape == (95, 5)
    assert float((found - by_the_equations(latent, rows)).abs().max()) < 1e-8


@pytest.mark.parametrize(("ridge", "blur"), [(0.9, 0.0), (0.1, 0.0), (0.1, 5.0)])
def test__leave_one_out__against_refitting_without_the_row__one_part_in_n(
    ridge: float, blur: float
) -> None:
    sizes = (40, 60, 80)
    z, cell = gaussians(sizes)
    degrees = sum(sizes) - len(sizes)

    found = leave_one_out(latent_of(z, cell, 3, ridge=ridge, blur=blur), LeftOut(z, cell))
    exact = refitted(z, cell, 3, ridge=ridge, blur=blur)

    # The pooled covariance is a part in N off, the filter a few, and with them the distances.
    parts = (1 if blur == 0 else 5) / degrees
    assert float(((found - exact).abs() / (DIM + exact.abs())).max()) < parts
    losses = [
        log_losses(each, torch.zeros(3).double(), LeftOut(z, cell)) for each in (found, exact)
    ]
    assert float(((losses[0] - losses[1]) / losses[1]).abs().max()) < parts


def test__leave_one_out__more_data__closer_to_refitting() -> None:
    gaps = []
    for times in (1, 4):
        sizes = tuple(times * size for size in (10, 15, 20))
        z, cell = gaussians(sizes)
        found = leave_one_out(latent_of(z, cell, 3), LeftOut(z, cell))
        gaps.append(float((found - refitted(z, cell, 3)).abs().mean()))

    assert gaps[1] < gaps[0] / 2


def test__leave_one_out__own_row__is_less_likely_than_when_it_was_learned() -> None:
    z, cell = gaussians((8, 8, 8))
    latent = latent_of(z, cell, 3)
    own = cell[:, None]

    left_out = leave_one_out(latent, LeftOut(z, cell)).gather(1, own)

    assert bool((left_out < latent.log_prob(z, range(3)).gather(1, own)).all())


def test__leave_one_out__a_cell_of_two__is_finite() -> None:
    z, cell = gaussians((2, 2))

    assert bool(leave_one_out(latent_of(z, cell, 2), LeftOut(z, cell)).isfinite().all())


def test__leave_one_out__thin_cells__the_same_equations_on_what_they_keep() -> None:
    z, cell = gaussians((60, 60, 60))
    thin = replace(latent_of(z, cell, 3), memory=3 * DIM * DIM - 1).thinned()
    assert all(isinstance(seen, Thin) for seen in thin.moments)

    found = leave_one_out(thin, LeftOut(z, cell))

    assert float((found - by_the_equations(thin, LeftOut(z, cell))).abs().max()) < 1e-8


def test__log_losses__against_a_slow_loop__every_temperature() -> None:
    rng = np.random.default_rng(0)
    log_prob = torch.from_numpy(rng.normal(size=(9, 3)) * 40)
    log_prior = torch.from_numpy(np.log(rng.dirichlet(np.ones(3))))
    cell = torch.from_numpy(rng.integers(0, 3, 9))

    found = log_losses(log_prob, log_prior, LeftOut(log_prob, cell))

    assert found.shape == TEMPERATURES.shape
    for at, temperature in enumerate(TEMPERATURES.tolist()):
        loss = 0.0
        for row in range(9):
            joint = [float(log_prob[row, k]) / temperature + float(log_prior[k]) for k in range(3)]
            peak = max(joint)
            total = peak + math.log(sum(math.exp(value - peak) for value in joint))
            loss -= joint[int(cell[row])] - total
        assert float(found[at]) == pytest.approx(loss, rel=1e-12)


def test__temperatures__are_from_one__rising() -> None:
    assert TEMPERATURES[0] == 1
    assert TEMPERATURES[-1] == 128
    assert bool((TEMPERATURES.diff() > 0).all())


def overlapping(copies: int, n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Three classes whose features say the same thing `copies` times, up to a little noise."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], n)
    signal = np.c_[np.cos(2.1 * y), np.sin(2.1 * y)] + 0.7 * rng.standard_t(3, size=(3 * n, 2))
    return np.hstack([signal + 0.01 * rng.normal(size=signal.shape) for _ in range(copies)]), y


def test__temperature__is_the_best_of_the_grid_on_rows_left_out() -> None:
    x, y = overlapping(3)
    model = CLBrunoClassifier(random_state=0, ridge=0.1).fit(x, y).model_

    assert model.curve.shape == (1, len(TEMPERATURES))
    assert model.temperature == float(TEMPERATURES[model.curve[0].argmin()])


def test__temperature__data_drawn_from_the_model__is_near_one() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 400)
    x = rng.normal(size=(1200, 3)) + np.eye(3)[y]

    assert CLBrunoClassifier(random_state=0).fit(x, y).model_.temperature <= 2 ** (3 / 8)


def test__temperature__repeated_columns_that_are_not_gaussian__helps_fresh_rows() -> None:
    x, y = overlapping(6, n=400)
    model = CLBrunoClassifier(random_state=0, ridge=0.9).fit(x[::2], y[::2])
    tempered = model.predict_log_proba(x[1::2])
    plainly = replace(model.model_.calibration, link=Link())
    model.model_ = replace(model.model_, calibration=plainly)
    plain = model.predict_log_proba(x[1::2])

    truth = y[1::2, None]
    losses = [-np.take_along_axis(each, truth, 1).mean() for each in (tempered, plain)]

    assert losses[0] < losses[1]


def test__ridge__is_the_first_of_those_within_a_thousandth_of_the_best() -> None:
    x, y = overlapping(3)
    model = CLBrunoClassifier(random_state=0).fit(x, y).model_
    lowest = model.curve.amin(1)

    as_good = [
        ridge
        for ridge, value in zip(RIDGES, lowest.tolist(), strict=True)
        if value <= (1 + tuning.AS_GOOD) * float(lowest.min()) + tuning.AS_GOOD
    ]

    assert model.latent.ridge == as_good[0]


def test__ridge__fixed_by_the_recipe__stays() -> None:
    x, y = overlapping(2)
    model = CLBrunoClassifier(random_state=0, ridge=0.42).fit(x, y).partial_fit(x, y)

    assert model.model_.latent.ridge == 0.42


def test__curve__adds_up_over_updates() -> None:
    x, y = overlapping(2)
    model = CLBrunoClassifier(random_state=0).fit(x, y)
    first = model.model_.curve

    second = model.partial_fit(x + 0.1, y).model_.curve

    assert bool((second > first).all())


def test__curve__no_row_can_be_left_out__model_is_usable() -> None:
    x, y = overlapping(1, n=1)
    model = CLBrunoClassifier(random_state=0, min_class_size=1).fit(x, y)

    assert model.model_.temperature == 1.0
    assert np.isfinite(model.predict_proba(x)).all()


def batch_of(cells: list[int]) -> Batch:
    cell = np.array(cells, dtype=np.int64)
    x = np.random.default_rng(0).normal(size=(len(cell), DIM))
    return Batch(x, cell, np.arange(len(cell)), Scaler.fit(x, common=True))


def test__rows_to_leave_out__are_balanced_bounded_and_never_a_single_one() -> None:
    cells = [0] * 300 + [1] * 100 + [2]
    batch = batch_of(cells)
    x, cell = batch.take(np.arange(len(batch)))

    at = rows_to_leave_out(batch, latent_of(x, cell, 3), np.random.default_rng(0))

    per_cell = np.bincount(batch.cell[at], minlength=3).tolist()
    assert per_cell == [400 // 3, 100, 0]
    assert (np.diff(at) > 0).all()


def test__rows_to_leave_out__many_cells__forty_each() -> None:
    batch = batch_of(sorted([*range(20)] * 60))
    x, cell = batch.take(np.arange(len(batch)))

    at = rows_to_leave_out(batch, latent_of(x, cell, 20), np.random.default_rng(0))

    assert np.bincount(batch.cell[at]).tolist() == [40] * 20


def test__held_back_figures__against_the_estimators_answers() -> None:
    x, y = overlapping(1)
    model = CLBrunoClassifier(random_state=0).fit(x[::2], y[::2], task="A")
    cell = y[1::2].astype(np.int64)
    held = Batch(x[1::2], cell, np.arange(len(cell)), model.model_.scaler)

    found = held_back_figures(model.model_, held)

    assert found["rows"] == len(cell)
    assert found["accuracy"] == pytest.approx(model.score(x[1::2], y[1::2]), abs=1e-6)
    log_proba = model.predict_log_proba(x[1::2])
    assert found["log_loss"] == pytest.approx(
        -np.take_along_axis(log_proba, cell[:, None], 1).mean(), abs=1e-6
    )
    assert found["task_accuracy"] == 1.0


def test__held_back_figures__cells_that_the_model_does_not_know__are_left_out() -> None:
    x, y = overlapping(1)
    model = CLBrunoClassifier(random_state=0).fit(x[y < 2], y[y < 2])
    held = Batch(x, y.astype(np.int64), np.arange(len(y)), model.model_.scaler)

    assert held_back_figures(model.model_, held)["rows"] == 300
    only_new = Batch(x, y.astype(np.int64), np.flatnonzero(y == 2), model.model_.scaler)
    assert held_back_figures(model.model_, only_new) == {}
