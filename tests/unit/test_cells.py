"""The latent of a whole model: its laws written out, its limits, order, growing and dropping."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

from clbruno.core.cells import ClassLatent, TaskLatent, Thin
from clbruno.core.moments import Moments

TASK = (0, 0, 1)
SIZES = (5, 9, 14)


def data(dim: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(n, dim, generator=generator, dtype=torch.float64) * (cell + 1) + cell
        for cell, n in enumerate(SIZES)
    ]


def moments(full: bool) -> tuple[Moments, ...]:
    return tuple(Moments.of(z, full=full) for z in data())


def class_latent(
    seen: tuple[Moments, ...] | None = None,
    task_of_cell: tuple[int, ...] = TASK,
    **numbers: float,
) -> ClassLatent:
    seen = moments(full=True) if seen is None else seen
    dim = seen[0].mean.shape[0] if seen else 3
    return empty_classes(dim, **numbers).learned(dict(enumerate(seen)), task_of_cell)


def empty_classes(dim: int = 3, **numbers: float) -> ClassLatent:
    numbers = {"strength": 6.0, "kappa": 0.5, "ridge": 0.2, "unit": 2.0} | numbers
    return ClassLatent((), torch.zeros(dim, dim).double(), (), **numbers)


def task_latent(dof: float = math.inf) -> TaskLatent:
    nu = torch.tensor([[1.0, 2.0, 3.0], [1.5, 2.5, 0.5]], dtype=torch.float64)
    empty = TaskLatent(nu, 0.4 * nu, (), (), dof)
    return empty.learned(dict(enumerate(moments(full=False))), TASK)


def scatter(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(0)).T @ (x - x.mean(0))


def test__class_latent__pooled__is_the_within_cell_covariance_and_a_few_units() -> None:
    total = sum(scatter(z.numpy()) for z in data())

    truth = (total + 2.0 * np.eye(3)) / (sum(SIZES) - 3 + 2.0)

    assert np.allclose(class_latent().pooled, truth, atol=1e-12)


def test__class_latent__task_mean__is_over_the_samples_of_the_task() -> None:
    z = data()

    found = class_latent().task_mean

    assert torch.allclose(found[0], torch.cat(z[:2]).mean(0), atol=1e-12)
    assert torch.allclose(found[1], z[2].mean(0), atol=1e-12)


@pytest.mark.parametrize("blur", [0.0, 4.0])
def test__class_latent__log_prob__is_the_t_of_the_docstring(blur: float) -> None:
    latent, z, new = class_latent(blur=blur), data(), data()[0]
    pooled, v0, kappa, ridge = latent.pooled.numpy(), 6.0, 0.5, 0.2

    wiener = pooled @ np.linalg.inv(pooled + blur * ridge * np.eye(3))

    found = latent.log_prob(new, range(3))

    for cell, rows in enumerate(z):
        n, x = SIZES[cell], rows.numpy()
        prior = torch.cat(z[:2]).mean(0).numpy() if cell < 2 else z[2].mean(0).numpy()
        gap = x.mean(0) - prior
        own = scatter(x) + kappa * n / (kappa + n) * np.outer(gap, gap) - n * pooled
        sigma = (1 - ridge) * (pooled + wiener @ own @ wiener / (v0 + n)) + ridge * np.eye(3)
        mean, df = (kappa * prior + n * x.mean(0)) / (kappa + n), v0 + n + 2
        covariance = sigma * (1 + 1 / (kappa + n))
        truth = stats.multivariate_t(mean, covariance * (df - 2) / df, df=df).logpdf(new.numpy())
        assert found[:, cell].tolist() == pytest.approx(truth.tolist(), abs=1e-10)


def test__class_latent__some_cells__are_those_columns() -> None:
    latent, new = class_latent(), data()[0]

    assert torch.equal(latent.log_prob(new, [2, 0]), latent.log_prob(new, range(3))[:, [2, 0]])


def test__class_latent__blank__is_the_law_of_a_cell_without_samples() -> None:
    latent, new = class_latent(), data()[0]

    found = latent.blank(1).log_prob(new)

    sigma = (0.8 * latent.pooled + 0.2 * torch.eye(3).double()) * (1 + 1 / 0.5)
    df = 6.0 + 2
    truth = stats.multivariate_t(
        latent.task_mean[1].numpy(), sigma.numpy() * (df - 2) / df, df=df
    ).logpdf(new.numpy())
    assert found.tolist() == pytest.approx(truth.tolist(), abs=1e-10)


@pytest.mark.parametrize("kind", ["class", "task", "student"])
def test__latent__cells_learned_in_any_order_and_pieces__changes_nothing(kind: str) -> None:
    full = kind == "class"
    z, new = data(), data()[1]
    whole = class_latent() if full else task_latent(7.0 if kind == "student" else math.inf)
    halves = [
        {cell: Moments.of(rows[:2], full=full) for cell, rows in enumerate(z)},
        {cell: Moments.of(rows[2:], full=full) for cell, rows in reversed(list(enumerate(z)))},
    ]
    truth = whole.log_prob(new, range(3))
    for parts in (halves, halves[::-1]):
        latent: ClassLatent | TaskLatent = empty_classes() if full else empty_tasks(whole)
        for part in parts:
            latent = latent.learned(part, TASK)
        assert torch.allclose(latent.log_prob(new, range(3)), truth, rtol=0, atol=1e-10)


def empty_tasks(latent: ClassLatent | TaskLatent) -> TaskLatent:
    assert isinstance(latent, TaskLatent)
    return TaskLatent(latent.nu, latent.rho, (), (), latent.dof)


def test__class_latent__cells_in_another_order__same_columns() -> None:
    latent, new, order = class_latent(), data()[0], [2, 0, 1]
    other = class_latent(
        tuple(latent.moments[cell] for cell in order), tuple(1 - TASK[cell] for cell in order)
    )

    found, truth = other.log_prob(new, range(3)), latent.log_prob(new, order)

    assert torch.allclose(found, truth, rtol=0, atol=1e-10)


def test__class_latent__learned__adds_to_known_cells_and_appends_new_ones() -> None:
    latent, extra = class_latent(), data()[0] + 4

    grown = latent.learned(
        {3: Moments.of(extra, full=True), 0: Moments.of(extra, full=True)}, (*TASK, 1)
    )

    assert [seen.count for seen in grown.moments] == [10, 9, 14, 5]
    assert grown.task_of_cell == (0, 0, 1, 1)
    assert torch.allclose(grown.moments[0].mean, torch.cat((data()[0], extra)).mean(0))
    assert torch.allclose(grown.moments[3].mean, extra.mean(0))
    assert [seen.count for seen in latent.moments] == [5, 9, 14], "the old latent is not changed"


def test__class_latent__without__is_as_if_the_cell_had_never_been() -> None:
    new = data()[0]

    found = class_latent().without([1], (0, 1)).log_prob(new, [0, 1])

    seen = moments(full=True)
    truth = class_latent((seen[0], seen[2]), (0, 1)).log_prob(new, [0, 1])
    assert torch.allclose(found, truth, rtol=0, atol=1e-10)


def many(cells: int = 6, dim: int = 4) -> dict[int, Moments]:
    """Classes that share a covariance up to one strong direction of their own."""
    generator = torch.Generator().manual_seed(1)
    seen = {}
    for cell in range(cells):
        z = torch.randn(40 + cell, dim, generator=generator, dtype=torch.float64)
        z[:, cell % dim] *= 3
        seen[cell] = Moments.of(z + cell, full=True)
    return seen


def test__class_latent__memory_that_suffices__keeps_every_scatter() -> None:
    latent = empty_classes(4, memory=6 * 16).learned(many(), (0,) * 6)

    assert all(isinstance(seen, Moments) for seen in latent.moments)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test__class_latent__memory_too_small__keeps_the_best_factors_within_it(rank: int) -> None:
    memory = 6 * 4 * rank
    full = empty_classes(4).learned(many(), (0,) * 6)

    thin = empty_classes(4, memory=memory).learned(many(), (0,) * 6)

    factors = [seen.factor for seen in thin.moments if isinstance(seen, Thin)]
    assert [factor.shape for factor in factors] == [(4, rank)] * 6
    assert sum(factor.numel() for factor in factors) <= memory
    assert torch.equal(thin.within, full.within)
    assert torch.equal(thin.task_mean, full.task_mean)
    values, vectors = torch.linalg.eigh(0.8 * full.pooled + 0.2 * torch.eye(4).double())
    unroot, root = ((vectors * values**power) @ vectors.mT for power in (-0.5, 0.5))
    for cell, moments in many().items():
        gain, direction = torch.linalg.eigh(
            unroot @ (moments.scatter - moments.count * full.pooled) @ unroot
        )
        kept = direction[:, -rank:]
        beyond = root @ (kept * gain[-rank:].clamp(min=0)) @ kept.mT @ root
        truth = moments.count * full.pooled + beyond
        assert torch.allclose(thin.seen(cell).scatter, truth, rtol=0, atol=1e-8)
        assert thin.seen(cell).count == moments.count
        assert torch.equal(thin.seen(cell).mean, moments.mean)


def test__class_latent__thin_cells_learn_more__counts_means_and_pooled_stay_exact() -> None:
    first, second = many(), {cell: seen for cell, seen in many(8).items() if cell > 2}
    truth = empty_classes(4).learned(first, (0,) * 6).learned(second, (0,) * 8)

    thin = empty_classes(4, memory=6 * 8).learned(first, (0,) * 6).learned(second, (0,) * 8)

    assert all(isinstance(seen, Thin) for seen in thin.moments)
    assert [seen.count for seen in thin.moments] == [seen.count for seen in truth.moments]
    for one, other in zip(thin.moments, truth.moments, strict=True):
        assert torch.allclose(one.mean, other.mean, atol=1e-12)
    assert torch.allclose(thin.pooled, truth.pooled, rtol=0, atol=1e-10)
    assert [seen.factor.shape[1] for seen in thin.moments if isinstance(seen, Thin)] == [1] * 8


def test__class_latent__most_thin_cells_dropped__the_rest_still_answers() -> None:
    thin = empty_classes(4, memory=6 * 4, ridge=0.01).learned(many(), (0,) * 6)

    left = thin.without([0, 1, 2, 3, 5], (0,))

    assert float(torch.linalg.eigvalsh(left.within)[0]) > -1e-8
    assert bool(left.log_prob(torch.zeros(1, 4).double(), [0]).isfinite().all())


def plain(latent: ClassLatent, z: torch.Tensor) -> torch.Tensor:
    """The predictives one by one, each with its scale matrix written out and factorised."""
    return torch.stack([latent.law(cell).log_prob(z) for cell in range(len(latent.moments))], 1)


def noise(n: int, dim: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("memory", [None, 6 * 4, 6 * 12, 6 * 15])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test__class_latent__all_cells_at_once__are_the_laws_one_by_one(
    memory: int | None, offset: float
) -> None:
    numbers = {} if memory is None else {"memory": memory}
    seen = {
        cell: replace(moments, mean=moments.mean + offset * (1 + cell % 2))
        for cell, moments in many().items()
    }
    latent = empty_classes(4, **numbers).learned(seen, (0, 0, 1, 1, 1, 2))
    z = torch.cat([5 * noise(30) + seen[cell].mean for cell in range(6)])

    found, truth = latent.log_prob(z, range(6)), plain(latent, z)

    assert found.dtype == torch.float64
    assert torch.allclose(found, truth, rtol=1e-9, atol=1e-9)


def test__class_latent__full_and_thin_cells_together__are_the_laws_one_by_one() -> None:
    latent = empty_classes(4, memory=6 * 8).learned(many(), (0,) * 6)
    latent = replace(latent.without([1, 2, 3], (0,) * 3), memory=2_000)
    latent = latent.learned({3: many()[1], 0: many()[0]}, (0,) * 4)
    assert [isinstance(seen, Thin) for seen in latent.moments] == [False, True, True, False]
    z = 4 * noise(50)

    assert torch.allclose(latent.log_prob(z, [3, 1, 0]), plain(latent, z)[:, [3, 1, 0]], atol=1e-9)


def test__class_latent__512_features_and_30_thin_cells__within_1e_9_of_the_laws() -> None:
    generator = torch.Generator().manual_seed(3)
    mix = torch.randn(512, 512, generator=generator, dtype=torch.float64) / 16
    seen = {}
    for cell in range(30):
        z = torch.randn(60, 512, generator=generator, dtype=torch.float64)
        seen[cell] = Moments.of(z @ mix + cell / 10, full=True)
    latent = empty_classes(512, strength=150.0, memory=30 * 512 * 8).learned(seen, (0,) * 30)
    z = 2 * torch.randn(40, 512, generator=generator, dtype=torch.float64) @ mix

    found, truth = latent.log_prob(z, range(30)), plain(latent, z)

    assert isinstance(latent.moments[0], Thin)
    assert torch.allclose(found, truth, rtol=0, atol=1e-9)


def test__class_latent__pieces_of_any_size__change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    latent = empty_classes(4, memory=6 * 8).learned(many(), (0,) * 6)
    z = noise(20)
    whole = latent.log_prob(z, range(6))

    monkeypatch.setattr("clbruno.core.stacked.NUMBERS", 1)

    assert torch.allclose(latent.log_prob(z, range(6)), whole, rtol=0, atol=1e-12)
    assert latent.log_prob(z[:0], range(6)).shape == (0, 6)


@pytest.mark.parametrize("dof", [math.inf, 7.0])
def test__task_latent__log_prob__is_the_predictive_of_all_samples_of_the_task(dof: float) -> None:
    latent, z, new = task_latent(dof), data(), data()[0]

    found = latent.log_prob(new, range(3))

    for cell, rows in enumerate((torch.cat(z[:2]), torch.cat(z[:2]), z[2])):
        law = latent.prior(TASK[cell])
        truth = law.given(law.moments(rows)).log_prob(new)
        assert torch.allclose(found[:, cell], truth, rtol=0, atol=1e-10)
    assert torch.equal(latent.log_prob(new, [2, 0]), found[:, [2, 0]])


def test__task_latent__new_task__starts_from_its_covariances_and_nothing_seen() -> None:
    latent = task_latent()
    nu = torch.cat((latent.nu, torch.full((1, 3), 5.0).double()))

    grown = latent.with_covariances(nu, 0.1 * nu).learned({}, TASK)

    assert [seen.count for seen in grown.moments] == [14, 14, 0]
    assert torch.equal(grown.predictive[2].delta, 0.9 * nu[2])
    assert float(grown.predictive[2].mean.abs().max()) == 0


def test__task_latent__without__drops_tasks_that_lose_every_cell() -> None:
    latent, new = task_latent(), data()[0]

    one_label_less = latent.without([0], (0, 1))
    one_task_less = latent.without([0, 1], (0,))

    truth = latent.log_prob(new, [1, 2])
    assert torch.equal(one_label_less.log_prob(new, [0, 1]), truth)
    assert torch.equal(one_task_less.log_prob(new, [0]), truth[:, 1:])
    assert one_task_less.nu.shape == (1, 3)


@pytest.mark.parametrize("kind", ["class", "task"])
def test__latent__sample__draws_each_row_from_its_own_cell(kind: str) -> None:
    latent = class_latent(strength=20.0) if kind == "class" else task_latent()
    cells = torch.tensor([2, 0, 1, 2]).repeat(20_000)

    z = latent.sample(cells, torch.Generator().manual_seed(0))

    assert z.dtype == torch.float64
    for cell in range(3):
        rows = z[cells == cell]
        law = latent.law(cell) if isinstance(latent, ClassLatent) else latent.predictive[TASK[cell]]
        error = (rows.mean(0) - law.mean) / (rows.std(0) / math.sqrt(len(rows)))
        assert float(error.abs().max()) < 4
        probe = rows[:200]
        own = latent.log_prob(probe, [cell]).mean()
        other = latent.log_prob(probe, [(cell + 2) % 3 if cell != 2 else 0]).mean()
        assert float(own) >= float(other) - 1e-9


@pytest.mark.parametrize("kind", ["class", "task"])
def test__latent__sample__repeats_with_its_seed(kind: str) -> None:
    latent = class_latent() if kind == "class" else task_latent()
    cells, state = torch.tensor([0, 2, 2, 1]), torch.random.get_rng_state()

    one, again, other = (
        latent.sample(cells, torch.Generator().manual_seed(seed)) for seed in (4, 4, 5)
    )

    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x, y


def answers(
    train: Mapping[int, np.ndarray], x: np.ndarray, strength: float, ridge: float, doublings: int
) -> np.ndarray:
    """log p(y | x) of a class latent behind an identity flow, with priors from the counts."""
    seen = []
    for rows in train.values():
        each = Moments.of(torch.from_numpy(rows), full=True)
        for _ in range(doublings):
            each = each.merge(each)
        seen.append(each)
    numbers = {"strength": strength, "kappa": 1e-8, "ridge": ridge, "unit": 1e-8}
    latent = class_latent(tuple(seen), (0,) * len(seen), **numbers)
    prior = np.log([len(rows) for rows in train.values()])
    log_prob = latent.log_prob(torch.from_numpy(x), range(len(seen))) + torch.from_numpy(prior)
    return log_prob.log_softmax(1).numpy()


def by_class(x: np.ndarray, y: np.ndarray) -> dict[int, np.ndarray]:
    return {k: x[y == k] for k in range(10)}


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test__class_latent__strength_to_infinity__is_linear_discriminant_analysis(
    share: float,
) -> None:
    """LDA's covariance is (1 - s) W + s tr(W) / D I with W = sum_k S_k / n; ours, at v0 = inf, is
    (1 - s) P + s I with P = sum_k S_k / (n - K). A constant that makes tr(P) / D = 1 makes the
    two the same up to the factor n / (n - K); samples seen 2^10 times take that factor to one.
    """
    x, y = digits()
    pooled = sum(scatter(rows) for rows in by_class(x, y).values())
    x = x / math.sqrt(np.trace(pooled) / (len(x) - 10) / 64)
    half = np.arange(len(x)) % 2 == 0
    for train, test in ((half | True, half | True), (half, ~half)):
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share)
        truth = theirs.fit(x[train], y[train]).predict_log_proba(x[test])

        ours = answers(by_class(x[train], y[train]), x[test], 1e8, share, 0)
        agreement = np.mean(ours.argmax(1) == truth.argmax(1))
        assert agreement >= 0.999

    x = x * math.sqrt(len(x) / (len(x) - 10))
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=share)
    truth = theirs.fit(x, y).predict_log_proba(x)
    assert np.abs(answers(by_class(x, y), x, 1e12, share, 10) - truth).max() < 0.02


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test__class_latent__strength_to_zero__is_quadratic_discriminant_analysis(
    share: float,
) -> None:
    """QDA's covariances are (1 - r) S_k / n_k + r I (older releases divide by n_k - 1), and so are
    ours at v0 = 0; the target is I in both, so any scale of x serves. Samples seen 2^24 times
    make the t a Gaussian, whose density is written out.
    """
    x, y = digits()
    x = x / 4
    half = np.arange(len(x)) % 2 == 0

    ours = answers(by_class(x, y), x, 1e-8, share, 0)
    held = answers(by_class(x[half], y[half]), x[~half], 1e-8, share, 24)

    assert np.mean(ours.argmax(1) == quadratic(share, x, y, x)) >= 0.999
    assert np.mean(held.argmax(1) == quadratic(share, x[half], y[half], x[~half])) >= 0.999

    columns = [
        stats.multivariate_normal(
            rows.mean(0), (1 - share) * scatter(rows) / len(rows) + share * np.eye(64)
        ).logpdf(x)
        + math.log(len(rows))
        for rows in by_class(x, y).values()
    ]
    truth = torch.from_numpy(np.stack(columns, 1)).log_softmax(1).numpy()
    found = answers(by_class(x, y), x, 1e-8, share, 24)
    assert np.abs(found - truth).max() < 0.02


def quadratic(share: float, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    model = QuadraticDiscriminantAnalysis(reg_param=share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pixels that are always black: "not full rank"
        return model.fit(x, y).predict(new)
