"""The paper's latent: closed form = dense distribution = the paper's recursion."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from clbruno.checks import check_latent
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.moments import Moments
from clbruno.errors import InputError

NU = torch.tensor([1.0, 2.5, 0.3], dtype=torch.float64)
RHO = torch.tensor([0.1, 2.4, 1e-3], dtype=torch.float64)


def prior(dof: float = math.inf) -> ExchangeableGaussian:
    return ExchangeableGaussian.prior(NU, RHO, dof)


def data(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator, dtype=torch.float64) * 1.5 + 0.7


def covariance(d: int, n: int) -> np.ndarray:
    nu, rho = float(NU[d]), float(RHO[d])
    return np.full((n, n), rho) + (nu - rho) * np.eye(n)


def recursion(z: torch.Tensor) -> float:
    """Log-likelihood by the one-step recursion of Conditional-BRUNO, in each dimension.

    d_i = rho / (nu + rho (i - 1))
    m_{i+1} = (1 - d_i) m_i + d_i z_i,   v_{i+1} = (1 - d_i) v_i + d_i (nu - rho)
    """
    total = 0.0
    for d in range(z.shape[1]):
        nu, rho = float(NU[d]), float(RHO[d])
        mean, variance = 0.0, nu
        for i, value in enumerate(z[:, d].tolist(), start=1):
            total -= 0.5 * (math.log(2 * math.pi * variance) + (value - mean) ** 2 / variance)
            gain = rho / (nu + rho * (i - 1))
            mean = (1 - gain) * mean + gain * value
            variance = (1 - gain) * variance + gain * (nu - rho)
    return total


@pytest.mark.parametrize("dof", [math.inf, 2.5, 7.0, 100.0])
def test__latent__any_dof__keeps_the_contract(dof: float) -> None:
    check_latent(lambda: prior(dof))


def test__latent__own_dof_per_dimension__keeps_the_contract() -> None:
    dof = torch.tensor([2.5, 7.0, 50.0], dtype=torch.float64)

    check_latent(lambda: ExchangeableGaussian(RHO, RHO, NU - RHO, dof))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 30])
def test__gaussian__nll__is_dense_and_recursive(n: int) -> None:
    z = data(n)

    found = -float(prior().nll(prior().moments(z)))

    columns = range(3)
    dense = sum(
        stats.multivariate_normal(np.zeros(n), covariance(d, n)).logpdf(z[:, d]) for d in columns
    )
    assert found == pytest.approx(float(dense), abs=1e-10)
    assert found == pytest.approx(recursion(z), abs=1e-10)


@pytest.mark.parametrize("n", [1, 2, 10])
def test__gaussian__predictive__is_that_of_the_dense_gaussian(n: int) -> None:
    z, new = data(n), data(4, seed=1)

    found = prior().given(prior().moments(z)).log_prob(new)

    for row in range(4):
        truth = 0.0
        for d in range(3):
            dense = covariance(d, n + 1)
            gain = np.linalg.solve(dense[:n, :n], dense[:n, n])
            mean, variance = gain @ z[:, d].numpy(), dense[n, n] - gain @ dense[:n, n]
            truth += stats.norm(mean, math.sqrt(variance)).logpdf(float(new[row, d]))
        assert float(found[row]) == pytest.approx(truth, abs=1e-10)


def test__gaussian__predictive__is_the_formula_of_count_and_sum() -> None:
    z = data(6)

    law = prior().given(prior().moments(z))

    delta, n, total = NU - RHO, 6, z.sum(0)
    mean = RHO * total / (delta + n * RHO)
    variance = delta + RHO * delta / (delta + n * RHO)
    assert torch.allclose(law.mean, mean, atol=1e-12)
    assert torch.allclose(law.rho + law.delta, variance, atol=1e-12)


@pytest.mark.parametrize("dof", [2.5, 7.0, 100.0])
@pytest.mark.parametrize("n", [1, 2, 10, 30])
def test__student__nll__is_the_dense_multivariate_t(n: int, dof: float) -> None:
    z = data(n)

    found = -float(prior(dof).nll(prior(dof).moments(z)))

    dense = sum(
        stats.multivariate_t(np.zeros(n), covariance(d, n) * (dof - 2) / dof, df=dof).logpdf(
            z[:, d].numpy()
        )
        for d in range(3)
    )
    assert found == pytest.approx(float(dense), abs=1e-10)


@pytest.mark.parametrize("n", [1, 2, 10])
def test__student__predictive__is_the_conditional_of_the_dense_t(n: int) -> None:
    dof, z, new = 5.0, data(n), data(4, seed=1)

    found = prior(dof).given(prior(dof).moments(z)).log_prob(new)

    for row in range(4):
        truth = 0.0
        for d in range(3):
            dense, seen = covariance(d, n + 1), z[:, d].numpy()
            gain = np.linalg.solve(dense[:n, :n], dense[:n, n])
            spread = (dense[n, n] - gain @ dense[:n, n]) * (dof - 2) / dof
            beta = seen @ np.linalg.solve(dense[:n, :n], seen) * dof / (dof - 2)
            scale = math.sqrt((dof + beta) / (dof + n) * spread)
            truth += stats.t(dof + n, gain @ seen, scale).logpdf(float(new[row, d]))
        assert float(found[row]) == pytest.approx(truth, abs=1e-10)


def test__student__dof_to_infinity__is_the_gaussian() -> None:
    seen, new = prior().moments(data(5)), data(3, seed=1)

    student, gauss = prior(1e9), prior()

    assert float(student.nll(seen)) == pytest.approx(float(gauss.nll(seen)), abs=1e-5)
    assert torch.allclose(
        student.given(seen).log_prob(new), gauss.given(seen).log_prob(new), atol=1e-5
    )


@pytest.mark.parametrize("dof", [math.inf, 7.0])
def test__latent__samples__have_the_predictive_mean_and_variance(dof: float) -> None:
    law = prior(dof).given(prior(dof).moments(data(5)))

    z = law.sample(100_000, torch.Generator().manual_seed(0))

    variance = law.rho + law.delta
    assert z.dtype == torch.float64
    error = (z.mean(0) - law.mean) / (variance / len(z)).sqrt()
    assert float(error.abs().max()) < 4
    assert torch.allclose(z.var(0), variance, rtol=0.04)


def exact_nll(count: int, mean: Fraction, square: Fraction, nu: Fraction, rho: Fraction) -> float:
    """The closed form of (n, S, Q) with its quadratic part in exact rational arithmetic."""
    delta, total = nu - rho, count * mean
    spread = delta + count * rho
    quadratic = square / delta - rho * total**2 / (delta * spread)
    logs = count * math.log(2 * math.pi) + (count - 1) * math.log(delta) + math.log(spread)
    return 0.5 * (logs + float(quadratic))


@pytest.mark.parametrize("offset", [0, 3, 1_000_000])
def test__gaussian__1e9_samples_around_an_offset__nll_is_exact(offset: int) -> None:
    nu, rho = Fraction(5, 4), Fraction(1, 4)
    pair = torch.tensor([[offset + 1.0], [offset - 1.0]], dtype=torch.float64)
    law = ExchangeableGaussian.prior(
        torch.tensor([float(nu)], dtype=torch.float64),
        torch.tensor([float(rho)], dtype=torch.float64),
    )

    seen = law.moments(pair)
    for _ in range(29):
        seen = seen.merge(seen)

    n = 2**30
    truth = exact_nll(n, Fraction(offset), n * Fraction(offset**2 + 1), nu, rho)
    assert seen.count == n > 1e9
    assert float(law.nll(seen)) == pytest.approx(truth, rel=1e-12)
    after = law.given(seen)
    shrunk = float(n * rho * offset / (nu - rho + n * rho))
    assert float(after.mean) == pytest.approx(shrunk, rel=1e-14)
    assert float(after.rho) == pytest.approx(float(rho / (1 + n * rho)), rel=1e-12)
    assert bool(after.log_prob(pair).isfinite().all())


@pytest.mark.parametrize("dof", [math.inf, 5.0])
def test__latent__1e9_samples_in_chunks__predicts_as_in_one_batch(dof: float) -> None:
    z, new = data(1000), data(5, seed=1)
    one, chunks = Moments.of(z, full=False), Moments.stream(z.split(13), dim=3, full=False)
    for _ in range(20):
        one, chunks = one.merge(one), chunks.merge(chunks)

    truth, found = prior(dof).given(one), prior(dof).given(chunks)

    assert one.count > 1e9
    assert torch.allclose(found.log_prob(new), truth.log_prob(new), rtol=0, atol=1e-10)
    assert bool(truth.log_prob(new).isfinite().all())


@pytest.mark.parametrize(
    ("nu", "rho"), [(1.0, 1.0), (1.0, 2.0), (1.0, 0.0), (1.0, -0.5), (math.nan, 0.5)]
)
def test__prior__nu_not_over_rho_over_zero__input_error(nu: float, rho: float) -> None:
    with pytest.raises(InputError, match="nu > rho > 0"):
        ExchangeableGaussian.prior(torch.tensor([2.0, nu]), torch.tensor([1.0, rho]))


@pytest.mark.parametrize("dof", [2.0, 0.0, -1.0, math.nan])
def test__prior__two_degrees_of_freedom_or_fewer__input_error(dof: float) -> None:
    with pytest.raises(InputError, match="degrees of freedom"):
        prior(dof)
