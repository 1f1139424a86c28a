"""Closed-form rivals against scikit-learn, dense formulas and order-free updates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.rivals.fecam import FeCAM
from benchmarks.rivals.lda import NearestMean, StreamingLDA
from benchmarks.rivals.linear import FeTrIL, JointLogistic
from benchmarks.rivals.moments import Moments
from benchmarks.rivals.ranpac import RanPAC
from benchmarks.rivals.shrunk import ShrunkCovariances

CLOSED = [StreamingLDA, NearestMean, ShrunkCovariances, FeCAM, lambda: RanPAC(width=40)]


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(4), [30, 40, 50, 60])
    mixing = rng.standard_normal((4, 5, 5))
    x = 2 * rng.standard_normal((4, 5))[y] + np.einsum(
        "nij,nj->ni", mixing[y], rng.standard_normal((180, 5))
    )
    return x, y


def test__lda__one_batch__equals_sklearn(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    prior = np.bincount(y) / len(y)
    reference = LinearDiscriminantAnalysis(solver="lsqr", priors=prior).fit(x, y)
    # sklearn divides the scatter by N, ours by N - K: rescale the log-odds before comparing.
    ours = StreamingLDA(ridge=0.0).partial_fit(x, y, "a")
    score = ours._scores(x) - np.log(ours.moments.n)
    theirs = reference.decision_function(x) - np.log(prior)
    gap = score * len(y) / (len(y) - 4) - theirs
    np.testing.assert_allclose(gap - gap[:, :1], 0, atol=1e-8)


def test__shrunk__no_shrinkage__equals_sklearn_qda(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    ours = ShrunkCovariances(strength=0.0, ridge=0.0).partial_fit(x, y, "a")
    for k in range(4):
        part = x[y == k]
        density = multivariate_normal(part.mean(0), np.cov(part.T, ddof=0))
        expected = density.logpdf(x) + np.log(len(part))
        np.testing.assert_allclose(ours._scores(x)[:, k], expected, rtol=1e-9)
    reference = QuadraticDiscriminantAnalysis().fit(x, y)
    assert (ours.predict(x) == reference.predict(x)).mean() > 0.97


def test__shrunk__endless_shrinkage__equals_lda(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    shrunk = ShrunkCovariances(strength=1e12, ridge=0.0).partial_fit(x, y, "a")
    lda = StreamingLDA(ridge=0.0).partial_fit(x, y, "a")
    np.testing.assert_allclose(shrunk.predict_proba(x), lda.predict_proba(x), atol=1e-6)


def test__shrunk__covariance__follows_its_formula(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    model = ShrunkCovariances(strength=2.0, ridge=0.5).partial_fit(x, y, "a")
    gaps = [x[y == k] - x[y == k].mean(0) for k in range(4)]
    pooled = sum(gap.T @ gap for gap in gaps) / (180 - 4)
    expected = (10 * pooled + gaps[1].T @ gaps[1]) / (10 + 40) + 0.1 * np.trace(pooled) * np.eye(5)
    np.testing.assert_allclose(model.covariance(1, model.moments.pooled(0.0)), expected)


@pytest.mark.parametrize("make", CLOSED)
def test__closed_form__rows_in_pieces__equal_one_batch(
    make: type, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = np.abs(rows[0]), rows[1]
    order = np.random.default_rng(0).permutation(len(y))
    whole, pieces = make(), make()
    for model in (whole, pieces):
        model.scaler.kind = "none"
    whole.partial_fit(x, y, "a")
    for code in range(4):
        pieces.partial_fit(x[y == code][:7], y[y == code][:7], "a")
    seen = np.concatenate([np.flatnonzero(y == code)[:7] for code in range(4)])
    rest = np.setdiff1d(order, seen)
    pieces.partial_fit(x[rest], y[rest], "a")
    np.testing.assert_allclose(pieces.predict_proba(x), whole.predict_proba(x), atol=1e-3)


def test__moments__two_pieces__equal_direct_sums(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    moments = Moments(each=True)
    moments.update(x[::2], y[::2])
    moments.update(x[1::2], y[1::2])
    for k in range(4):
        gap = x[y == k] - x[y == k].mean(0)
        np.testing.assert_allclose(moments.scatter[k], gap.T @ gap, atol=1e-9)
    assert moments.floats == 4 + 20 + 4 * 15


def test__fecam__identity_covariance__is_nearest_mean() -> None:
    x = np.array([[3.0, 0.0], [5.0, 0.0], [4.0, 1.0], [4.0, -1.0]])
    model = FeCAM(gamma=0.0, scale="none")
    model.partial_fit(np.concatenate([x, x + 10]), np.repeat([0, 1], 4), "a")
    assert model.correlation(0).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(model._scores(np.array([[4.0, 2.0]])), [[-2.0, -82.0]])


def test__fecam__shrinkage__follows_its_formula() -> None:
    x = np.array([[0.0, 0.0], [2.0, 2.0], [2.0, 0.0], [4.0, 4.0]])
    model = FeCAM(gamma=1.0, scale="none").partial_fit(x, np.zeros(4, int), "a")
    cov = np.cov(x.T)
    shrunk = cov + np.trace(cov) / 2 * np.eye(2) + cov[0, 1] * (1 - np.eye(2))
    expected = shrunk[0, 1] / np.sqrt(shrunk[0, 0] * shrunk[1, 1])
    assert model.correlation(0)[0, 1] == pytest.approx(expected)


def test__ranpac__one_batch__equals_ridge_regression(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    model = RanPAC(width=30, ridge=0.1).partial_fit(x, y, "a")
    phi = model.features(x).astype(float)
    lam = 0.1 * np.trace(phi.T @ phi) / 30
    reference = Ridge(alpha=lam, fit_intercept=False).fit(phi, np.eye(4)[y])
    answer = reference.predict(phi)
    noise = ((np.eye(4)[y] - answer) ** 2).mean()
    np.testing.assert_allclose(model._scores(x) * noise, answer, atol=1e-4)


def test__joint_logistic__same_penalty__equals_sklearn(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    model = JointLogistic(penalty=0.01, iterations=500, scale="none")
    model.partial_fit(x[y < 2], y[y < 2], "a").partial_fit(x[y >= 2], y[y >= 2], "a")
    reference = LogisticRegression(C=1 / (0.01 * len(y)), max_iter=5000, tol=1e-8).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x), reference.predict_proba(x), atol=2e-3)


def test__fetril__translated_rows__have_the_old_mean(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    model = FeTrIL(scale="none").partial_fit(x[y < 2], y[y < 2], "a")
    moved = model.translated(x[y >= 2], y[y >= 2], 1)
    np.testing.assert_allclose(moved.mean(0), x[y == 1].mean(0), atol=1e-10)
    assert len(moved) in {50, 60}


def test__pair_rival__two_tasks__marginals_agree(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = rows
    model = StreamingLDA()
    for task, low in (("a", 0), ("b", 2)):
        part = (y == low) | (y == low + 1)
        model.partial_fit(x[part], y[part] % 2, task)
    joint = model.pair_proba(x)
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], joint[:, 1] + joint[:, 3])
    np.testing.assert_allclose(model.predict_task_proba(x)[:, 1], joint[:, 2] + joint[:, 3])
    known = joint[:, 3] / (joint[:, 2] + joint[:, 3])
    np.testing.assert_allclose(model.predict_proba(x, "b")[:, 1], known)
