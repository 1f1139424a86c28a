"""What is trained: a new task's covariances start where its rows are, a known task's stay."""

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier
from clbruno.core.cells import TaskLatent
from clbruno.core.moments import Moments
from clbruno.learn.student import COMMON, Covariances


def rows(n: int, spread: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(n, 3, generator=generator, dtype=torch.float64) + 5 * seed


@pytest.mark.parametrize("spread", [1e-3, 0.5, 40.0])
def test__start_from__two_new_tasks__nu_is_the_spread_within_the_cells(spread: float) -> None:
    old = torch.tensor([[2.0, 3.0, 4.0]]), torch.tensor([[0.5, 0.6, 0.7]])
    covariances = Covariances(*old, new_tasks=2)
    cells = {3: rows(400, spread, 1), 4: rows(300, spread, 2), 5: rows(500, 2 * spread, 3)}
    seen = {cell: Moments.of(z, full=False) for cell, z in cells.items()}

    covariances.start_from(seen, task_of_cell=(0, 0, 0, 1, 1, 2))

    nu, rho = covariances()
    assert torch.equal(nu[0], old[0][0])
    assert torch.equal(rho[0], old[1][0])
    for task, parts in ((1, (3, 4)), (2, (5,))):
        scatter = sum((len(cells[at]) - 1) * cells[at].var(0) for at in parts)
        samples = sum(len(cells[at]) - 1 for at in parts)
        expected = ((scatter + 1) / (samples + 1)).float()
        torch.testing.assert_close(nu[task], expected, rtol=1e-5, atol=0)
        torch.testing.assert_close(rho[task], COMMON * expected, rtol=1e-5, atol=0)


def test__start_from__one_row_of_each_class__is_the_unit() -> None:
    covariances = Covariances(torch.zeros(0, 3), torch.zeros(0, 3), new_tasks=1)
    before = torch.stack(covariances())

    covariances.start_from({0: Moments.of(rows(1, 1.0, 1), full=False)}, task_of_cell=(0,))

    torch.testing.assert_close(torch.stack(covariances()), before)
    torch.testing.assert_close(before[0], torch.ones(1, 3))


def test__covariances__training__moves_new_tasks_alone_and_keeps_their_order() -> None:
    covariances = Covariances(torch.ones(1, 3), torch.full((1, 3), 0.2), new_tasks=1)
    optimiser = torch.optim.SGD(covariances.parameters(), lr=50.0)

    nu, rho = covariances()
    (nu.sum() - 3 * rho.sum()).backward()
    optimiser.step()

    after_nu, after_rho = covariances()
    assert torch.equal(after_nu[0], nu[0])
    assert torch.equal(after_rho[0], rho[0])
    assert not torch.equal(after_nu[1], nu[1])
    assert bool((after_rho[1] > 0).all() & (after_nu[1] >= after_rho[1]).all())


def test__update__new_task_before_any_training__has_the_spread_of_its_rows() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(0, 1, (200, 3)) * [0.5, 1.0, 1.0] + 3
    model = CLBrunoClassifier("paper", random_state=0, max_epochs=0, couplings=2, hidden=4)
    latent = model.fit(x, ["a", "b"] * 100).model_.latent

    scaled = model.model_.scaler.forward(torch.from_numpy(x))
    assert isinstance(latent, TaskLatent)
    torch.testing.assert_close(latent.nu[0], scaled.var(0), rtol=0.2, atol=0.0)
    assert float(latent.nu[0].max()) > 2 * float(latent.nu[0].min())
