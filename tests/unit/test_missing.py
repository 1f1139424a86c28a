"""Marginal densities: in closed form against dense sums, by draws against the closed form."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from clbruno import CLBrunoClassifier
from clbruno.core.missing import laws_of_features, observe, patterns, separation

RNG = np.random.default_rng(0)
Y = np.repeat(["a", "b"], 60)
X = RNG.normal(size=(120, 4)) @ RNG.normal(size=(4, 4)) + 3 * (Y == "b")[:, None]


def model_of(**settings: object) -> CLBrunoClassifier:
    small = {"couplings": 0, "max_epochs": 2, "hidden": 8, **settings}
    return CLBrunoClassifier(random_state=0, **small).fit(X, Y)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{}, {"whiten": True}])
def test__observe__linear_flow__is_the_marginal_t_of_scipy(settings: dict[str, object]) -> None:
    model = model_of(**settings).model_
    x = torch.from_numpy(X[:5]).clone()
    x[:, [1, 3]] = torch.nan
    laws = laws_of_features(model)
    assert laws is not None

    found = observe(model, x)

    assert not bool(found.error.any())
    scaled = model.scaler.forward(x)[:, [0, 2]].numpy()
    for cell, law in enumerate(laws):
        df = law.dof - 4 + 1
        shape = law.scale.numpy() * (law.kappa + 1) / (law.kappa * df)
        t = stats.multivariate_t(law.mean.numpy()[[0, 2]], shape[np.ix_([0, 2], [0, 2])], df)
        units = math.log(model.scaler.unit) * 2 + float(model.scaler.scale[[0, 2]].log().sum())
        assert not model.scaler.root
        np.testing.assert_allclose(
            found.log_likelihood[:, cell].numpy(), t.logpdf(scaled) - units, atol=1e-9
        )


def test__observe__everything_is_there__is_the_likelihood() -> None:
    model = model_of().model_
    x = torch.from_numpy(X[:7])

    found = observe(model, x).log_likelihood

    assert torch.allclose(found, model.log_likelihood(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"couplings": 2},
        {"recipe": "paper", "couplings": 2, "context_dim": 3},
    ],
)
def test__observe__by_draws__agrees_with_a_grid_within_its_error(
    settings: dict[str, object],
) -> None:
    model = model_of(**settings).model_
    x = torch.from_numpy(X[[0, 70]]).clone()
    x[:, 2] = torch.nan

    found = observe(model, x)

    steps = torch.linspace(-60, 60, 24001, dtype=torch.float64)
    for row in range(2):
        full = x[row].expand(len(steps), -1).clone()
        full[:, 2] = steps
        exact = model.log_likelihood(full).logsumexp(0) + math.log(float(steps[1] - steps[0]))
        gap = (found.log_likelihood[row] - exact).abs()
        assert bool((gap <= 4 * found.error[row] + 1e-3).all())
        assert bool((found.error[row] > 0).all())
        assert float(found.error[row].max()) < 0.5


def test__patterns__rows_that_miss_the_same__stand_together() -> None:
    x = torch.tensor([[1.0, math.nan], [1.0, 2.0], [3.0, math.nan]])

    found = {tuple(at.tolist()): rows.tolist() for rows, at in patterns(x)}

    assert found == {(0,): [0, 2], (0, 1): [1]}


def test__separation__against_the_traces__and_from_nothing_to_all() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 400)
    x = rng.normal(size=(800, 3))
    x[:, 0] += 4 * y
    x[:, 1] += 2 * y
    model = CLBrunoClassifier(random_state=0, ridge=1e-6, couplings=0).fit(x, y).model_

    def share(*at: int) -> float:
        return separation(model, torch.tensor(at, dtype=torch.long))

    assert share() == 0
    assert share(0, 1, 2) == pytest.approx(1)
    # Independent features carry the squares of their distances.
    assert share(0) == pytest.approx(16 / 20, abs=0.04)
    assert share(1) == pytest.approx(4 / 20, abs=0.04)
    assert share(2) < 0.02
