"""The normal-inverse-Wishart sequence: matrix-t, ratio of evidences, numerical integration."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import multigammaln

from clbruno.checks import check_latent
from clbruno.core.conjugate import NormalInverseWishart
from clbruno.core.moments import Moments
from clbruno.errors import InputError

DIMS = [1, 2, 5]


def law(dim: int, kappa: float = 0.7, extra: float = 3.5) -> NormalInverseWishart:
    generator = torch.Generator().manual_seed(dim)
    mean = torch.randn(dim, generator=generator, dtype=torch.float64)
    root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    scale = root @ root.mT + 0.5 * torch.eye(dim, dtype=torch.float64)
    return NormalInverseWishart(mean, kappa, dim - 1 + extra, scale)


def data(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64) * 1.5 + 0.7


def matrix_t(prior: NormalInverseWishart, z: torch.Tensor) -> float:
    """Log-density of the rows as one matrix-t, with dense n x n row covariances.

    Gamma_D((v + n) / 2) / Gamma_D(v / 2) pi^(-n D / 2) |O|^(-D / 2) |Psi|^(-n / 2)
    |I + O^-1 (Z - M) Psi^-1 (Z - M)'|^(-(v + n) / 2),   O = I + 1 1' / kappa
    """
    n, dim = z.shape
    rest = (z - prior.mean).numpy()
    psi, v = prior.scale.numpy(), prior.dof
    rows = np.eye(n) + np.ones((n, n)) / prior.kappa
    inner = np.eye(n) + np.linalg.solve(rows, rest @ np.linalg.solve(psi, rest.T))
    return float(
        multigammaln((v + n) / 2, dim)
        - multigammaln(v / 2, dim)
        - n * dim / 2 * math.log(math.pi)
        - dim / 2 * np.linalg.slogdet(rows)[1]
        - n / 2 * np.linalg.slogdet(psi)[1]
        - (v + n) / 2 * np.linalg.slogdet(inner)[1]
    )


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("extra", [1.5, 3.5, 200.0])
def test__conjugate__any_size__keeps_the_contract(dim: int, extra: float) -> None:
    check_latent(lambda: law(dim, extra=extra))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n", [1, 2, 4, 5, 6, 30])
def test__conjugate__nll__is_the_dense_matrix_t(n: int, dim: int) -> None:
    prior, z = law(dim), data(n, dim)

    truth = -matrix_t(prior, z)

    assert float(prior.nll(prior.moments(z))) == pytest.approx(truth, rel=1e-10)
    assert float(prior.nll_of(z)) == pytest.approx(truth, rel=1e-10)


@pytest.mark.parametrize("dim", DIMS)
def test__conjugate__nll__is_the_product_of_one_step_t_densities(dim: int) -> None:
    prior, z = law(dim), data(8, dim)

    truth, mean, kappa = 0.0, prior.mean.numpy(), prior.kappa
    v, psi = prior.dof, prior.scale.numpy()
    for row in z.numpy():
        df = v - dim + 1
        shape = psi * (kappa + 1) / (kappa * df)
        truth -= float(stats.multivariate_t(mean, shape, df=df).logpdf(row))
        psi = psi + kappa / (kappa + 1) * np.outer(row - mean, row - mean)
        mean = (kappa * mean + row) / (kappa + 1)
        v, kappa = v + 1, kappa + 1

    assert float(prior.nll(prior.moments(z))) == pytest.approx(truth, abs=1e-10)


def test__conjugate__one_dimension__nll_is_the_integral_over_mean_and_variance() -> None:
    prior, z = law(1, kappa=0.7, extra=4.0), data(3, 1)
    centre, psi = float(prior.mean), float(prior.scale)
    mu, log_variance = np.linspace(-40, 40, 801), np.linspace(-5, 8, 261)
    variance = np.exp(log_variance)[:, None]

    joint = stats.invgamma(prior.dof / 2, scale=psi / 2).logpdf(variance) + np.log(variance)
    joint = joint + stats.norm(centre, np.sqrt(variance / prior.kappa)).logpdf(mu)
    for value in z.flatten().tolist():
        joint = joint + stats.norm(mu, np.sqrt(variance)).logpdf(value)
    over_mu = integrate.simpson(np.exp(joint), x=mu)

    truth = -math.log(integrate.simpson(over_mu, x=log_variance))
    assert float(prior.nll(prior.moments(z))) == pytest.approx(truth, abs=1e-4)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n", [0, 1, 20])
def test__conjugate__predictive__is_the_ratio_of_two_evidences(n: int, dim: int) -> None:
    prior, z, new = law(dim), data(n, dim), data(4, dim, seed=1)
    seen = prior.moments(z) if n else Moments.empty(dim, full=True)

    found = prior.given(seen).log_prob(new)

    without = matrix_t(prior, z) if n else 0.0
    for row in range(4):
        both = torch.cat((z, new[row : row + 1]))
        moments = prior.moments(both)
        ratio = float(prior.nll(seen) - prior.nll(moments))
        assert float(found[row]) == pytest.approx(ratio, abs=1e-10)
        assert float(found[row]) == pytest.approx(matrix_t(prior, both) - without, abs=1e-10)


@pytest.mark.parametrize("dim", DIMS)
def test__conjugate__given__is_the_textbook_update(dim: int) -> None:
    prior, z = law(dim), data(9, dim)

    after = prior.given(prior.moments(z))

    x, m, k = z.numpy(), prior.mean.numpy(), prior.kappa
    centred = x - x.mean(0)
    gap = x.mean(0) - m
    psi = prior.scale.numpy() + centred.T @ centred + k * 9 / (k + 9) * np.outer(gap, gap)
    assert (after.kappa, after.dof) == (k + 9, prior.dof + 9)
    assert np.allclose(after.mean, (k * m + 9 * x.mean(0)) / (k + 9), atol=1e-12)
    assert np.allclose(after.scale, psi, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 3])
def test__conjugate__samples__have_the_predictive_mean_and_covariance(dim: int) -> None:
    prior = law(dim, extra=8.0)

    z = prior.sample(200_000, torch.Generator().manual_seed(0))

    df = prior.dof - dim + 1
    truth = prior.scale * (prior.kappa + 1) / (prior.kappa * (df - 2))
    deviation = truth.diagonal().sqrt()
    error = (z.mean(0) - prior.mean) / (deviation / math.sqrt(len(z)))
    correlation = (torch.cov(z.mT).reshape(dim, dim) - truth) / torch.outer(deviation, deviation)
    assert float(error.abs().max()) < 4
    assert float(correlation.abs().max()) < 0.02


def test__conjugate__order_of_samples_and_merges__changes_nothing() -> None:
    prior, z, new = law(4), data(30, 4), data(5, 4, seed=1)
    turned = z[torch.randperm(30, generator=torch.Generator().manual_seed(1))]
    parts = [prior.moments(part) for part in turned.split([1, 9, 4, 16])]

    one = prior.given(prior.moments(z))
    left = prior.given(((parts[0].merge(parts[1])).merge(parts[2])).merge(parts[3]))
    right = prior.given(parts[3].merge(parts[2].merge(parts[1].merge(parts[0]))))
    steps = prior
    for part in parts:
        steps = steps.given(part)

    truth = one.log_prob(new)
    for other in (left, right, steps):
        assert torch.allclose(other.log_prob(new), truth, rtol=0, atol=1e-10)
        assert torch.allclose(other.log_det, one.log_det, rtol=0, atol=1e-10)


def test__conjugate__1e9_samples__predicts_the_gaussian_of_their_mean_and_covariance() -> None:
    z, new = data(50, 3), data(5, 3, seed=1)
    seen = Moments.stream(z.split(7), dim=3, full=True)
    for _ in range(25):
        seen = seen.merge(seen)

    found = law(3).given(seen).log_prob(new)

    covariance = np.cov(z.numpy().T, bias=True)
    truth = stats.multivariate_normal(z.mean(0).numpy(), covariance).logpdf(new.numpy())
    assert seen.count > 1e9
    assert found.tolist() == pytest.approx(truth.tolist(), abs=1e-5)


def test__conjugate__dof_to_infinity__is_the_gaussian_of_the_prior_covariance() -> None:
    covariance = law(3).scale
    prior = NormalInverseWishart(law(3).mean, 1e12, 1e9, covariance * 1e9)

    found = prior.log_prob(data(5, 3))

    truth = stats.multivariate_normal(law(3).mean.numpy(), covariance.numpy())
    assert found.tolist() == pytest.approx(truth.logpdf(data(5, 3).numpy()).tolist(), abs=1e-5)


@pytest.mark.parametrize("kappa", [0.0, -1.0, math.nan])
def test__conjugate__kappa_not_positive__input_error(kappa: float) -> None:
    with pytest.raises(InputError, match="kappa"):
        law(2, kappa=kappa)


@pytest.mark.parametrize("extra", [0.0, -2.0, math.nan])
def test__conjugate__dof_up_to_d_less_one__input_error(extra: float) -> None:
    with pytest.raises(InputError, match=r"D - 1 = 1"):
        law(2, extra=extra)


def test__conjugate__scale_of_another_size__input_error() -> None:
    with pytest.raises(InputError, match=r"2 x 2.*\(3, 3\)"):
        NormalInverseWishart(torch.zeros(2), 1.0, 4.0, torch.eye(3))


def test__conjugate__dependent_features__input_error_that_names_the_ridge() -> None:
    prior = NormalInverseWishart(torch.zeros(2), 1.0, 4.0, torch.ones(2, 2))

    with pytest.raises(InputError, match=r"linearly dependent.*ridge"):
        prior.log_prob(torch.zeros(1, 2))
