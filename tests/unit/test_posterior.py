"""Bayes' rule against slow loops in exact-exponent arithmetic, and level sets of a known model."""

import math
from dataclasses import replace
from decimal import Decimal

import pytest
import torch

from clbruno.config import recipe
from clbruno.core.calibration import Calibration, Link
from clbruno.core.cells import ClassLatent, TaskLatent
from clbruno.core.coupling import Context
from clbruno.core.flow import CellEmbedding, CouplingFlow, FlowSequence
from clbruno.core.model import LEVEL_SAMPLES, Model, chunks_of
from clbruno.core.moments import Moments
from clbruno.core.posterior import (
    Posterior,
    level_set_p_value,
    log_label_prior,
    log_task_prior,
)
from clbruno.data.scaling import Scaler
from clbruno.errors import InputError
from clbruno.registry import Registry

TASK = [0, 0, 1, 1, 1, 2]
LABEL = [0, 1, 1, 0, 2, 1]
COUNTS = [30, 10, 5, 15, 20, 7]
SCALE = torch.tensor([0.5, 2.0, 10.0], dtype=torch.float64)


def posterior(log_likelihood: torch.Tensor, temperature: float = 1.0) -> Posterior:
    return Posterior(
        log_likelihood,
        log_label_prior(COUNTS, TASK),
        log_task_prior(COUNTS, TASK, "counts"),
        log_label_prior(COUNTS, TASK),
        torch.tensor(TASK),
        torch.tensor(LABEL),
        Link(temperature),
    )


def rows(level: float, spread: float, n: int = 20) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return level + spread * torch.randn(n, 6, generator=generator, dtype=torch.float64)


def slow(
    row: list[float], temperature: float
) -> tuple[list[Decimal], list[Decimal], list[Decimal]]:
    """p(y | t, x) per cell, p(t | x) and p(y | x) of eqs. 10-12, summed one by one."""
    joint = []
    for cell in range(6):
        in_task = sum(COUNTS[other] for other in range(6) if TASK[other] == TASK[cell])
        share = Decimal(COUNTS[cell]) / in_task
        joint.append(((Decimal(row[cell]) + share.ln()) / Decimal(temperature)).exp())
    given_task = []
    for cell in range(6):
        total = sum(joint[c] for c in range(6) if TASK[c] == TASK[cell])
        given_task.append(joint[cell] / total)
    tasks = []
    for task in range(3):
        prior = Decimal(sum(COUNTS[c] for c in range(6) if TASK[c] == task)) / sum(COUNTS)
        tasks.append(prior * sum(joint[c] for c in range(6) if TASK[c] == task))
    tasks = [task / sum(tasks) for task in tasks]
    labels = []
    for label in range(3):
        total = Decimal(0)
        for task in range(3):
            for cell in range(6):
                if TASK[cell] == task and LABEL[cell] == label:
                    total += given_task[cell] * tasks[task]
        labels.append(total)
    return given_task, tasks, labels


@pytest.mark.parametrize("temperature", [1.0, 2.0, 37.5])
@pytest.mark.parametrize(("level", "spread"), [(-3.0, 2.0), (-5000.0, 40.0), (-1e6, 300.0)])
def test__posterior__any_level__is_the_double_loop_of_eq_12(
    level: float, spread: float, temperature: float
) -> None:
    log_likelihood = rows(level, spread)

    found = posterior(log_likelihood, temperature)

    columns = (found.log_label_given_task(), found.log_task(), found.log_label())
    for i, row in enumerate(log_likelihood.tolist()):
        for log_p, truth in zip(columns, slow(row, temperature), strict=True):
            assert log_p[i].tolist() == pytest.approx([float(t.ln()) for t in truth], abs=1e-9)


@pytest.mark.parametrize("level", [0.0, -5000.0, -1e6])
def test__posterior__far_from_everything__sums_to_one_and_stays_finite(level: float) -> None:
    log_likelihood = rows(level, 100.0)
    log_likelihood[::2, ::2] -= 1e6

    found = posterior(log_likelihood)

    by_task = torch.zeros(20, 3, dtype=torch.float64)
    by_task.index_add_(1, torch.tensor(TASK), found.log_label_given_task().exp())
    sums = (by_task, found.log_task().exp().sum(1), found.log_label().exp().sum(1))
    assert all(float((total - 1).abs().max()) < 1e-12 for total in sums)
    answers = (found.log_label_given_task(), found.log_task(), found.log_label())
    assert all(bool(answer.isfinite().all()) for answer in answers)
    assert bool(found.log_evidence().isfinite().all())
    assert bool(found.log_density().isfinite().all())


def test__posterior__evidence_and_density__are_the_weighted_sums() -> None:
    log_likelihood = rows(-2.0, 1.0)

    found = posterior(log_likelihood, temperature=9.0)

    for i, row in enumerate(log_likelihood.tolist()):
        density = 0.0
        for task in range(3):
            cells = [c for c in range(6) if TASK[c] == task]
            count = sum(COUNTS[c] for c in cells)
            evidence = sum(math.exp(row[c]) * COUNTS[c] / count for c in cells)
            assert float(found.log_evidence()[i, task]) == pytest.approx(math.log(evidence))
            density += evidence * count / sum(COUNTS)
        assert float(found.log_density()[i]) == pytest.approx(math.log(density))


def test__posterior__cells_tasks_and_labels_renumbered__changes_nothing() -> None:
    log_likelihood, order = rows(-5000.0, 20.0), torch.tensor([4, 0, 5, 2, 1, 3])
    new_task, new_label = torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])
    one = posterior(log_likelihood, temperature=2.0)
    back = new_task.argsort()

    other = Posterior(
        log_likelihood[:, order],
        one.log_label_prior[order],
        one.log_task_prior[back],
        one.log_share[order],
        new_task[one.task_of_cell[order]],
        new_label[one.label_of_cell[order]],
        Link(2.0),
    )

    assert torch.allclose(other.log_task()[:, new_task], one.log_task(), rtol=0, atol=1e-10)
    assert torch.allclose(other.log_label()[:, new_label], one.log_label(), rtol=0, atol=1e-10)
    found, truth = other.log_label_given_task(), one.log_label_given_task()[:, order]
    assert torch.allclose(found, truth, rtol=0, atol=1e-10)


def test__posterior__task_known__is_its_labels_and_nothing_outside() -> None:
    found = posterior(rows(-3.0, 2.0, n=3))

    known = found.log_label_in(torch.tensor([0, 1, 2]), 4)

    assert known.shape == (3, 4)
    assert torch.allclose(known.exp().sum(1), torch.ones(3).double(), atol=1e-12)
    cells = found.log_label_given_task()
    assert torch.allclose(known[0, [0, 1]], cells[0, [0, 1]], atol=1e-12)
    assert torch.allclose(known[1, [1, 0, 2]], cells[1, [2, 3, 4]], atol=1e-12)
    assert known[0, 2:].tolist() == [-math.inf, -math.inf]
    assert known[2].tolist() == [-math.inf, 0.0, -math.inf, -math.inf]


def test__label_prior__counts_and_uniform__are_normalised_within_each_task() -> None:
    by_count = log_label_prior(COUNTS, TASK).exp().tolist()
    uniform = log_label_prior(COUNTS, TASK, "uniform").exp().tolist()

    assert by_count == pytest.approx([30 / 40, 10 / 40, 5 / 40, 15 / 40, 20 / 40, 1])
    assert uniform == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3, 1])


def test__task_prior__uniform_by_default_or_counts() -> None:
    assert log_task_prior(COUNTS, TASK).exp().tolist() == pytest.approx([1 / 3] * 3)
    by_count = log_task_prior(COUNTS, TASK, "counts").exp().tolist()
    assert by_count == pytest.approx([40 / 87, 40 / 87, 7 / 87])


def test__priors__given__are_normalised_within_each_task_and_over_the_tasks() -> None:
    label = log_label_prior(COUNTS, TASK, [3, 1, 1, 1, 2, 9]).exp().tolist()
    task = log_task_prior(COUNTS, TASK, (1.0, 3.0, 4.0)).exp().tolist()

    assert label == pytest.approx([3 / 4, 1 / 4, 1 / 4, 1 / 4, 2 / 4, 1])
    assert task == pytest.approx([1 / 8, 3 / 8, 4 / 8])


def test__priors__unknown_kind__input_error_that_names_the_known() -> None:
    with pytest.raises(InputError, match="'counts', 'uniform' or weights, got 'flat'"):
        log_label_prior(COUNTS, TASK, "flat")
    with pytest.raises(InputError, match="'counts', 'uniform' or weights, got 'flat'"):
        log_task_prior(COUNTS, TASK, "flat")


@pytest.mark.parametrize("weights", [[1, 2], [1, 0, 1], [1, -1, 1], [1, math.nan, 1], []])
def test__priors__given_and_wrong__input_error(weights: list[float]) -> None:
    with pytest.raises(InputError, match="task_prior needs 3 positive numbers"):
        log_task_prior(COUNTS, TASK, weights)
    with pytest.raises(InputError, match="label_prior needs 6 positive numbers"):
        log_label_prior(COUNTS, TASK, weights)


def test__p_value__counts_generated_samples_that_are_no_likelier() -> None:
    generated = torch.tensor([-5.0, -3.0, -3.0, -1.0], dtype=torch.float64)

    found = level_set_p_value(torch.tensor([-9.0, -5.0, -4.0, -3.0, 0.0]).double(), generated)

    assert found.tolist() == pytest.approx([1 / 5, 2 / 5, 2 / 5, 4 / 5, 1.0])


def known_model(names: tuple[str, ...] = ("Oslo", "Rome", "a", "b")) -> Model:
    """Two tasks of overlapping classes with known moments behind an identity flow."""
    generator = torch.Generator().manual_seed(3)
    moments = []
    for _ in range(4):
        z = torch.randn(60, 3, generator=generator, dtype=torch.float64)
        moments.append(Moments.of(z * 1.5 + 2 * z.mean(0) * 60**0.5 / 3, full=True))
    registry = Registry().extended(names[0], names[2:], [30, 90])
    registry = registry.extended(names[1], names[2:], [60, 60])
    return Model(
        recipe=recipe("default"),
        registry=registry,
        scaler=Scaler(2.0, False, torch.full((3,), 0.5).double(), SCALE / 2),
        flow=FlowSequence([CouplingFlow(3, 0, hidden=1)]),
        embedding=None,
        latent=ClassLatent(
            (), torch.zeros(3, 3).double(), (), strength=20.0, kappa=0.1, ridge=0.05
        ).learned(dict(enumerate(moments)), registry.task_of_cell),
        temperature=1.0,
        curve=torch.zeros(0, 0),
        calibration=Calibration.empty().grown(4),
        seed=11,
    )


@pytest.mark.parametrize("task", [0, 1])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test__level_sets__rows_drawn_from_the_task__false_alarms_are_alpha(
    task: int, alpha: float
) -> None:
    model, n = known_model(), 20_000
    generator = torch.Generator().manual_seed(100 + task)
    x = model.sample(model.draw_cells(n, task, generator), generator)

    p_value = level_set_p_value(model.posterior(x).log_evidence()[:, task], model.levels[task])

    alarms = float((p_value <= alpha).double().mean())
    error = math.sqrt(alpha * (1 - alpha) * (1 / n + 1 / LEVEL_SAMPLES))
    assert abs(alarms - alpha) < 2 * error


def test__level_sets__far_away_rows__are_alarms() -> None:
    model = known_model()

    evidence = model.posterior(torch.full((5, 3), 1e4).double()).log_evidence()

    assert evidence.isfinite().all()
    for task in (0, 1):
        p_value = level_set_p_value(evidence[:, task], model.levels[task])
        assert p_value.tolist() == [1 / (1 + LEVEL_SAMPLES)] * 5


@pytest.mark.parametrize(("drawn", "other"), [(0, 1), (1, 0), (3, 2), (2, 3)])
def test__model__density__ratio_over_another_cells_samples_averages_to_one(
    drawn: int, other: int
) -> None:
    """E_p[q / p] = 1 for two densities that are both normalised."""
    model = known_model()
    x = model.sample(torch.full((50_000,), drawn), torch.Generator().manual_seed(0))

    log_p = model.log_likelihood(x)
    ratio = (log_p[:, other] - log_p[:, drawn]).exp()

    error = float(ratio.std()) / math.sqrt(len(x))
    assert error < 0.02
    assert float(ratio.mean()) == pytest.approx(1, abs=4 * error)


def test__model__scaling__is_in_the_density() -> None:
    model = known_model()
    x = model.sample(torch.tensor([0, 1, 2, 3]), torch.Generator().manual_seed(0))
    z = (x - 1) / SCALE

    found = model.log_likelihood(x, [2])

    truth = model.latent.log_prob(z, [2]) - math.log(0.5 * 2 * 10)
    assert torch.allclose(found, truth, atol=1e-10)


def conditional_model() -> Model:
    """The paper's parts: couplings that see task and label, one latent per task."""
    generator, model = torch.Generator().manual_seed(5), known_model()
    flow = CouplingFlow(3, 2, 8, context_dim=4).double()
    with torch.no_grad():
        for weights in flow.parameters():
            weights.normal_(0, 0.4, generator=generator)
    task = model.registry.task_of_cell
    nu = torch.tensor([[1.0, 2.0, 3.0], [1.5, 2.5, 0.5]], dtype=torch.float64)
    seen = {
        cell: Moments.of(torch.randn(6, 3, generator=generator).double() + cell, full=False)
        for cell in range(4)
    }
    return replace(
        model,
        flow=FlowSequence([flow]),
        embedding=CellEmbedding(
            torch.randn(2, 4, generator=generator).double(),
            torch.randn(4, 4, generator=generator).double(),
            torch.tensor(task),
        ),
        latent=TaskLatent(nu, 0.4 * nu, (), ()).learned(seen, task),
    )


def test__model__label_free_flow__log_determinant_is_in_the_density() -> None:
    flow, x = conditional_model().flow, torch.full((2, 3), 1.5).double()
    model = replace(known_model(), flow=flow)

    found = model.log_likelihood(x, [2])[:, 0]

    with torch.no_grad():
        z, ladj = flow((x - 1) / SCALE)
    assert float(ladj.abs().min()) > 1e-3
    truth = model.latent.log_prob(z, [2])[:, 0] + ladj - math.log(10)
    assert torch.allclose(found, truth, atol=1e-10)


def test__model__soft_root__is_in_the_density() -> None:
    scaler = Scaler(2.0, True, torch.zeros(3).double(), SCALE)
    model = replace(known_model(), scaler=scaler)
    x = known_model().sample(torch.tensor([0, 1, 2, 3]), torch.Generator().manual_seed(0))

    found = model.log_likelihood(x, [2])[:, 0]

    truth = model.latent.log_prob(scaler.forward(x), [2])[:, 0] + scaler.ladj(x)
    assert torch.allclose(found, truth, atol=1e-10)


def test__model__draw__follows_the_priors_of_what_is_named() -> None:
    model, n = known_model(), 40_000

    def shares(task: str | None, label: str | None) -> list[float]:
        cells = model.draw(n, task, label, torch.Generator().manual_seed(0))
        return (cells.bincount(minlength=4).double() / n).tolist()

    assert shares(None, None) == pytest.approx([0.125, 0.375, 0.25, 0.25], abs=0.01)
    assert shares("Oslo", None) == pytest.approx([0.25, 0.75, 0, 0], abs=0.01)
    assert shares(None, "a") == pytest.approx([1 / 3, 0, 2 / 3, 0], abs=0.01)
    assert shares("Rome", "b") == [0, 0, 0, 1]


def test__model__draw__tasks_by_their_counts_if_the_recipe_says_so() -> None:
    model = known_model()
    model = replace(
        model,
        recipe=recipe("default", task_prior="counts"),
        registry=replace(model.registry, counts=(30, 90, 240, 240)),
    )

    cells = model.draw(40_000, None, None, torch.Generator().manual_seed(0))

    share = cells.bincount(minlength=4).double() / 40_000
    assert share.tolist() == pytest.approx([0.05, 0.15, 0.4, 0.4], abs=0.01)


def test__model__conditional_flow__each_cell_is_scored_through_its_own_context() -> None:
    model = conditional_model()
    x = known_model().sample(torch.tensor([0, 1, 2, 3, 0]), torch.Generator().manual_seed(0))

    found = model.log_likelihood(x)

    assert model.embedding is not None
    scaled = (x - 1) / SCALE
    with torch.no_grad():
        table = model.embedding()
        for cell in range(4):
            z, ladj = model.flow(scaled, Context(table, torch.full((5,), cell)))
            truth = model.latent.log_prob(z, [cell])[:, 0] + ladj - math.log(10)
            assert torch.allclose(found[:, cell], truth, atol=1e-10)
    assert torch.equal(model.log_likelihood(x, [3, 1]), found[:, [3, 1]])


def test__model__conditional_flow__samples_are_the_inverse_of_their_latents() -> None:
    model, cells = conditional_model(), torch.tensor([0, 3, 1, 2, 2])

    z, scaled = model.sample_latent(cells, torch.Generator().manual_seed(0))
    x = model.sample(cells, torch.Generator().manual_seed(0))

    with torch.no_grad():
        back, _ = model.flow(scaled, model.context(cells))
    assert torch.allclose(back, z, atol=1e-10)
    assert torch.allclose((x - 1) / SCALE, scaled, atol=1e-10)


def test__model__tasks_and_labels_renamed__answers_bit_for_bit_the_same() -> None:
    one, other = known_model(), known_model(("2", "1", "z", "y"))
    x = one.sample(torch.tensor([0, 1, 2, 3]), torch.Generator().manual_seed(0))

    assert torch.equal(one.posterior(x).log_label(), other.posterior(x).log_label())
    assert torch.equal(one.posterior(x).log_task(), other.posterior(x).log_task())
    assert torch.equal(one.levels, other.levels)


def test__model__draws_of_cells__follow_the_label_prior() -> None:
    cells = known_model().draw_cells(40_000, 0, torch.Generator().manual_seed(0))

    share = cells.bincount(minlength=4).double() / 40_000
    assert share.tolist() == pytest.approx([0.25, 0.75, 0, 0], abs=0.01)


@pytest.mark.parametrize(("n", "size"), [(0, 4), (3, 4), (4, 4), (9, 4)])
def test__chunks__cover_the_rows_in_order(n: int, size: int) -> None:
    parts = list(chunks_of(n, size))

    assert [row for part in parts for row in range(n)[part]] == list(range(n))
    assert all(part.stop - part.start <= size for part in parts)
