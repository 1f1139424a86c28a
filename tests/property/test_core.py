"""Ranges, not examples: merges, orders, inverses and Bayes' rule for whatever hypothesis finds."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clbruno.core.calibration import Link
from clbruno.core.conjugate import NormalInverseWishart
from clbruno.core.coupling import Context
from clbruno.core.flow import CouplingFlow, Whitening
from clbruno.core.latent import ExchangeableGaussian, Latent
from clbruno.core.moments import Moments
from clbruno.core.posterior import Posterior, log_label_prior, log_task_prior
from clbruno.registry import Registry

seeds = st.integers(0, 2**31)
dims = st.integers(1, 6)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int, dim: int, seed: int, offset: float = 0.0) -> torch.Tensor:
    return torch.randn(n, dim, generator=generator(seed), dtype=torch.float64) + offset


def assert_close(found: torch.Tensor, truth: torch.Tensor, tolerance: float = 1e-10) -> None:
    assert float(((found - truth).abs() / (1 + truth.abs())).max()) <= tolerance


@st.composite
def latents(draw: st.DrawFn) -> tuple[Latent, int]:
    dim, seed = draw(dims), draw(seeds)
    if draw(st.booleans()):
        rho = 10 ** (4 * torch.rand(dim, generator=generator(seed), dtype=torch.float64) - 3)
        delta = 10 ** (4 * torch.rand(dim, generator=generator(seed + 1)).double() - 2)
        dof = draw(st.sampled_from([math.inf, 2.5, 9.0, 300.0]))
        return ExchangeableGaussian.prior(rho + delta, rho, dof), dim
    root = rows(dim, dim, seed)
    scale = root @ root.mT + 0.1 * torch.eye(dim, dtype=torch.float64)
    kappa = draw(st.sampled_from([1e-3, 0.5, 40.0]))
    dof = dim - 1 + draw(st.sampled_from([0.5, 3.0, 1e4]))
    return NormalInverseWishart(root[0], kappa, dof, scale), dim


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    order=st.randoms(use_true_random=False),
    dim=dims,
    seed=seeds,
    offset=st.floats(-1e4, 1e4),
    full=st.booleans(),
)
def test__moments__any_pieces_in_any_order__are_those_of_the_whole(
    sizes: list[int], order: object, dim: int, seed: int, offset: float, full: bool
) -> None:
    z = rows(sum(sizes), dim, seed, offset)
    parts = [
        Moments.of(part, full=full) if len(part) else Moments.empty(dim, full=full)
        for part in z.split(sizes)
    ]
    order.shuffle(parts)  # type: ignore[attr-defined]

    while len(parts) > 1:
        parts.insert(0, parts.pop().merge(parts.pop(len(parts) // 2)))

    whole = Moments.of(z, full=full)
    assert parts[0].count == whole.count
    assert_close(parts[0].mean, whole.mean)
    assert float((parts[0].scatter - whole.scatter).abs().max()) < 1e-10 * (1 + abs(offset))


@given(latents(), st.integers(1, 12), st.integers(1, 12), seeds)
def test__latent__samples_in_any_order_and_two_parts__same_law(
    latent_and_dim: tuple[Latent, int], n: int, m: int, seed: int
) -> None:
    latent, dim = latent_and_dim
    z, new = rows(n + m, dim, seed, 0.5), rows(4, dim, seed + 1)
    turned = z[torch.randperm(n + m, generator=generator(seed))]
    whole = latent.given(latent.moments(z))

    parts = latent.given(latent.moments(turned[:n])).given(latent.moments(turned[n:]))

    assert_close(parts.log_prob(new), whole.log_prob(new))
    assert_close(latent.nll_of(turned), latent.nll_of(z))
    chain = latent.nll_of(z[:n]) + latent.given(latent.moments(z[:n])).nll_of(z[n:])
    assert_close(chain, latent.nll(latent.moments(z)), 1e-9)


@given(latents(), st.integers(0, 29), seeds)
def test__latent__a_sequence_doubled_to_1e9__stays_finite_and_shrinks(
    latent_and_dim: tuple[Latent, int], doublings: int, seed: int
) -> None:
    latent, dim = latent_and_dim
    seen = latent.moments(rows(dim + 2, dim, seed))
    for _ in range(doublings):
        seen = seen.merge(seen)

    log_prob = latent.given(seen).log_prob(rows(4, dim, seed + 1))

    assert seen.count == (dim + 2) * 2**doublings
    assert bool(log_prob.isfinite().all())
    assert bool(latent.nll(seen).isfinite())


@given(
    dim=st.integers(1, 9),
    couplings=st.integers(0, 5),
    context_dim=st.integers(0, 3),
    bound=st.floats(0.1, 3.0),
    seed=seeds,
)
@settings(max_examples=50)
def test__coupling_flow__any_shape__inverse_and_log_det(
    dim: int, couplings: int, context_dim: int, bound: float, seed: int
) -> None:
    flow = CouplingFlow(dim, couplings, 8, context_dim, bound, generator(seed)).double()
    with torch.no_grad():
        for layer in flow.layers:
            for weights in layer.leave.parameters():  # type: ignore[union-attr,operator]
                weights.uniform_(-0.4, 0.4, generator=generator(seed))
    x = rows(3, dim, seed)
    context = None
    if context_dim:
        context = Context(rows(2, context_dim, seed), torch.tensor([0, 1, 0]))

    z, ladj = flow(x, context)

    assert float((flow.inverse(z, context) - x).detach().abs().max()) < 1e-10
    only = None if context is None else Context(context.table, context.cell[:1])
    jacobian = torch.autograd.functional.jacobian(lambda v: flow(v[None], only)[0][0], x[0])
    truth = torch.linalg.slogdet(jacobian).logabsdet
    assert abs(float(ladj[0].detach() - truth)) < 1e-9


@given(dim=st.integers(1, 6), ridge=st.floats(1e-6, 10), seed=seeds)
@settings(max_examples=50)
def test__whitening__any_covariance__inverse_and_log_det(dim: int, ridge: float, seed: int) -> None:
    root = rows(dim, dim, seed)
    flow, x = Whitening.of(root[0], root @ root.mT, ridge), rows(5, dim, seed + 1)

    z, ladj = flow(x)

    assert float((flow.inverse(z) - x).abs().max()) < 1e-8
    covariance = root @ root.mT + ridge * torch.eye(dim).double()
    assert abs(float(ladj[0] + 0.5 * torch.logdet(covariance))) < 1e-6


cells_of_tasks = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), min_size=1, max_size=4
)


@given(
    labels_of_task=cells_of_tasks,
    level=st.floats(-5000, 100),
    spread=st.sampled_from([0.0, 1.0, 100.0, 4000.0]),
    temperature=st.floats(1, 50),
    kinds=st.tuples(st.sampled_from(["counts", "uniform"]), st.sampled_from(["counts", "uniform"])),
    seed=seeds,
)
def test__posterior__any_tasks_down_to_minus_5000__sums_to_one(
    labels_of_task: list[list[int]],
    level: float,
    spread: float,
    temperature: float,
    kinds: tuple[str, str],
    seed: int,
) -> None:
    task = [t for t, labels in enumerate(labels_of_task) for _ in labels]
    label = [y for labels in labels_of_task for y in labels]
    known = sorted(set(label))
    label = [known.index(y) for y in label]
    counts = [1 + 7 * cell for cell in range(len(task))]
    found = Posterior(
        spread * rows(6, len(task), seed).clamp(-1, 1) + level - abs(spread),
        log_label_prior(counts, task, kinds[0]),
        log_task_prior(counts, task, kinds[1]),
        log_label_prior(counts, task),
        torch.tensor(task),
        torch.tensor(label),
        Link(temperature),
    )

    in_task = torch.zeros(6, len(labels_of_task), dtype=torch.float64)
    in_task.index_add_(1, torch.tensor(task), found.log_label_given_task().exp())

    answers = (in_task, found.log_task().exp().sum(1), found.log_label().exp().sum(1))
    for total in answers:
        assert float((total - 1).abs().max()) < 1e-12
    assert bool(found.log_label().isfinite().all())
    assert bool(found.log_task().isfinite().all())


updates = st.lists(
    st.tuples(
        st.sampled_from(["Boston", "Oslo", 3]),
        st.dictionaries(st.sampled_from(["ill", "well", 0, 1]), st.integers(1, 50), min_size=1),
    ),
    max_size=8,
)


@given(updates)
def test__registry__any_updates__counts_add_up_and_positions_stay(
    history: list[tuple[str | int, dict[str | int, int]]],
) -> None:
    registry, truth = Registry(), {}
    for task, counts in history:
        before = registry
        registry = registry.extended(task, list(counts), list(counts.values()))
        for label, count in counts.items():
            truth[task, label] = truth.get((task, label), 0) + count
        assert registry.tasks[: len(before.tasks)] == before.tasks
        assert registry.labels[: len(before.labels)] == before.labels
        assert registry.cells[: len(before.cells)] == before.cells

    found = {
        (registry.tasks[t], registry.labels[y]): count
        for (t, y), count in zip(registry.cells, registry.counts, strict=True)
    }
    assert found == truth
    for task, label in truth:
        assert registry.counts[registry.cell_index(task, label)] == truth[task, label]
