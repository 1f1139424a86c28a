"""Links, bends, scores and p-values against slow loops and against crepes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from crepes.base import ConformalClassifier
from torch import Tensor

from clbruno.core.calibration import (
    KEPT,
    PLAIN,
    TAILS,
    TEMPERATURES,
    Calibration,
    Link,
    mass_above,
    share_beyond,
    spread,
)
from clbruno.learn import calibrate
from clbruno.learn.calibrate import bend, chosen


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("tail", [math.inf, 6.0, 2.0])
@pytest.mark.parametrize("temperature", [1.0, 7.5])
def test__link__is_the_docstrings_equation(temperature: float, tail: float) -> None:
    log_likelihood = 40 * random(5, 3) - 1000

    found = Link(temperature, tail)(log_likelihood)

    for row, values in enumerate(log_likelihood.tolist()):
        for cell, value in enumerate(values):
            gap = max(values) - value
            power = -gap / temperature
            if tail < math.inf:
                power = -tail * math.log(1 + gap / (tail * temperature))
            assert float(found[row, cell]) == pytest.approx(power, rel=1e-12, abs=1e-12)


def test__link__plain__is_bayes_rule() -> None:
    log_likelihood = 3 * random(6, 4)

    assert torch.allclose(PLAIN(log_likelihood).softmax(1), log_likelihood.softmax(1))


@pytest.mark.parametrize(("slope", "offset"), [(0.5, 0.0), (1.7, 0.3), (1.0, -2.0), (0.2, -9.0)])
def test__bent__confidence_is_bent_the_rest_keeps_its_ratios(slope: float, offset: float) -> None:
    before = (4 * random(200, 5)).log_softmax(1)

    after = Link(slope=slope, offset=offset).bent(before)

    assert float((after.exp().sum(1) - 1).abs().max()) < 1e-12
    top = before.argmax(1, keepdim=True)
    assert bool((after.gather(1, top)[:, 0] >= after.amax(1) - 1e-12).all())
    ratio = (after - before).scatter(1, top, -torch.inf)
    same = ratio.amax(1) - ratio.scatter(1, top, torch.inf).amin(1)
    assert float(same.abs().max()) < 1e-9
    c, bent = before.gather(1, top).exp(), after.gather(1, top).exp()
    wanted = (slope * (c / (1 - c)).log() + offset).sigmoid()
    free = bent > after.scatter(1, top, -torch.inf).amax(1, keepdim=True).exp() + 1e-9
    assert torch.allclose(bent[free], wanted[free], rtol=0, atol=1e-9)
    assert bool((bent[~free] >= wanted[~free] - 1e-9).all())


def test__bent__log_probabilities_down_to_minus_a_million__stay_finite() -> None:
    before = torch.tensor([[0.0, -1e6, -2e6], [-1e-9, -50.0, -60.0]], dtype=torch.float64)

    after = Link(slope=0.7, offset=-0.1).bent(before)

    assert bool(after.isfinite().all())
    assert float((after.exp().sum(1) - 1).abs().max()) < 1e-9


def test__mass_above__against_a_loop__ties_stand_together() -> None:
    proba = torch.tensor([[0.4, 0.1, 0.4, 0.1], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    proba = torch.cat((proba, random(30, 4).softmax(1)))

    found = mass_above(proba)

    for row, values in enumerate(proba.tolist()):
        for label, value in enumerate(values):
            mass = sum(other for other in values if other > value)
            assert float(found[row, label]) == pytest.approx(mass, abs=1e-12)


def test__spread__many_scores__keeps_every_hundredth_rank() -> None:
    ordered = torch.arange(1.0, 1000.0).double()

    assert spread(ordered).tolist() == [10.0 * rank for rank in range(1, KEPT + 1)]
    assert spread(ordered[:KEPT]).tolist() == ordered[:KEPT].tolist()


@pytest.mark.parametrize("n", [150, 321, 5000])
def test__spread__a_new_score__is_under_the_kth_as_often_as_it_should(n: int) -> None:
    ordered = (torch.arange(1, n + 1, dtype=torch.float64)) / (n + 1)
    wanted = torch.arange(1, KEPT + 1, dtype=torch.float64) / (KEPT + 1)

    gap = spread(ordered) - wanted

    assert bool((gap >= -1e-12).all())
    assert float(gap.max()) <= 1 / (n + 1) + 1e-12


def test__share_beyond__against_crepes__the_same_p_values() -> None:
    kept, asked = random(50).abs(), random(40, 3, seed=1).abs()
    kept[:10] = 0.5
    asked[:5] = 0.5
    oracle = ConformalClassifier().fit(kept.numpy())

    expected = oracle.predict_p(asked.numpy(), smoothing=False)

    found = torch.stack([share_beyond(kept.sort().values, column) for column in asked.mT], dim=1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-15)


def test__with_scores__again_and_again__bounded_ascending_and_padded() -> None:
    calibration = Calibration.empty().grown(2)
    for seed in range(3):
        calibration = calibration.with_scores(1, random(3, 60, seed=seed))

    assert calibration.held == (0, KEPT)
    assert bool((calibration.scores[1].diff(dim=1) >= 0).all())
    assert not bool(calibration.scores[0].any())
    assert len(calibration.of([0, 1], 2)) == KEPT
    assert calibration.restricted([1]).held == (KEPT,)


def test__joined__with_what_both_descend_from__counts_it_once() -> None:
    base = Calibration.empty().grown(1).with_scores(0, random(3, 5))
    base = replace(base, curve=base.curve + 1, reliability=base.reliability + 2)
    one = replace(base, curve=base.curve + 3)
    other = base.grown(2).with_scores(1, random(3, 4))
    other = replace(other, curve=other.curve + 5, reliability=other.reliability + 7)

    both = one.grown(2).joined(other, {1: 1}, base)

    assert bool((both.curve == 9).all())
    assert bool((both.reliability == 9).all())
    assert both.held == (5, 4)


def test__chosen__flat_to_the_warm_end__is_the_warmest_and_a_minimum_is_kept() -> None:
    curve = torch.full((len(TEMPERATURES), len(TAILS)), 0.2, dtype=torch.float64)
    curve[20:] = 5.0
    assert chosen(curve).temperature == float(TEMPERATURES[19])

    curve = 100 + (TEMPERATURES.log()[:, None] - math.log(8)).square() * 1000 + 3 * (TAILS != 6)
    link = chosen(curve.double())
    assert link.temperature == pytest.approx(8, rel=1e-9)
    assert link.tail == 6


def test__bend__against_a_search__the_same_minimum() -> None:
    rng = np.random.default_rng(0)
    n = rng.uniform(0, 60, 24)
    x = np.arange(-11.5, 12)
    right = n / (1 + np.exp(-(0.6 * x + 0.2)))
    counts = torch.from_numpy(np.c_[n, right, n * x])

    def loss(slope: float, offset: float) -> float:
        z = slope * x + offset
        fit = right * np.logaddexp(0, -z) + (n - right) * np.logaddexp(0, z)
        return float(fit.sum() + calibrate.UNBENT * ((slope - 1) ** 2 + offset**2))

    slope, offset = bend(counts)

    for step in (1e-3, -1e-3):
        assert loss(slope, offset) <= loss(slope + step, offset)
        assert loss(slope, offset) <= loss(slope, offset + step)


def test__bend__nothing_held_back__bends_nothing() -> None:
    assert bend(torch.zeros(24, 3).double()) == (1.0, 0.0)
