"""Pseudo-data: from the posterior predictive, balanced, fresh, the teacher only read."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier
from clbruno.learn.replay import Teacher, balanced


@pytest.fixture(scope="module")
def taught() -> CLBrunoClassifier:
    """Two tasks, one with two labels of which one is rare, one with one label."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], [90, 10, 50])
    x = rng.normal(size=(150, 3)) + 6 * np.eye(3)[np.unique(y, return_inverse=True)[1]]
    model = CLBrunoClassifier(random_state=0, couplings=1, hidden=4, max_epochs=1)
    return model.fit(x, y, task=["A"] * 100 + ["B"] * 50)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("cells", "size"), [(1, 5), (3, 9), (3, 10), (7, 3), (5, 128)])
def test__balanced__every_cell_as_often_as_any_other_to_within_one(cells: int, size: int) -> None:
    found = balanced(cells, size, generator())

    counts = torch.bincount(found, minlength=cells)
    assert len(found) == size
    assert int(counts.max() - counts.min()) <= 1
    assert bool((found.diff() >= 0).all())


def test__balanced__fewer_than_cells__which_ones_is_chance() -> None:
    shared = generator()

    drawn = {int(cell) for _ in range(60) for cell in balanced(6, 1, shared)}

    assert drawn == set(range(6))


@pytest.mark.parametrize("size", [3, 30, 128])
def test__draw__one_budget__is_for_all_tasks_together(taught: Any, size: int) -> None:
    replay = Teacher(taught.model_, size, per_task=False).draw(generator())

    assert replay.x.shape == replay.z.shape == (size, 3)
    assert replay.x.dtype == torch.float64
    assert not replay.x.requires_grad
    assert int(torch.bincount(replay.cell, minlength=3).min()) >= size // 3


def test__draw__per_task__every_task_by_its_proportions(taught: Any) -> None:
    replay = Teacher(taught.model_, 2000, per_task=True).draw(generator())

    counts = torch.bincount(replay.cell).tolist()
    assert len(replay.cell) == 4000
    assert counts[2] == 2000
    assert counts[1] / 2000 == pytest.approx(0.1, abs=0.03)


def test__draw__x__is_the_old_flows_inverse_of_z(taught: Any) -> None:
    replay = Teacher(taught.model_, 32, per_task=False).draw(generator())

    assert torch.equal(taught.model_.flow.inverse(replay.z), replay.x)


def test__draw__again__fresh__same_generator__the_same(taught: Any) -> None:
    teacher, shared = Teacher(taught.model_, 32, per_task=False), generator()

    first, second = teacher.draw(shared), teacher.draw(shared)

    assert not torch.equal(first.z, second.z)
    assert torch.equal(teacher.draw(generator()).z, first.z)


@pytest.mark.parametrize("per_task", [False, True])
@pytest.mark.parametrize("block", [1, 100, 4096])
def test__draws__one_after_the_other__each_is_a_draw_of_its_own(
    taught: Any, per_task: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clbruno.learn.replay.BLOCK", block)
    teacher = Teacher(taught.model_, 32, per_task)

    draws = list(islice(teacher.draws(generator()), 7))

    for draw in draws:
        assert draw.x.shape == draw.z.shape == (64 if per_task else 32, 3)
        back = taught.model_.flow.inverse(draw.z)
        assert torch.allclose(back, draw.x, rtol=0, atol=1e-12)
        counts = torch.bincount(draw.cell, minlength=3).tolist()
        assert counts[2] == 32 if per_task else max(counts) - min(counts) <= 1
    assert len({float(draw.z.sum()) for draw in draws}) == 7


def test__draw__model_in_float32__pseudo_data_in_float32_and_the_same_within_rounding(
    taught: Any,
) -> None:
    single = taught.model_.placed(torch.device("cpu"), torch.float32)

    found = Teacher(single, 32, per_task=False).draw(generator())

    truth = Teacher(taught.model_, 32, per_task=False).draw(generator())
    assert found.x.dtype == found.z.dtype == torch.float32
    assert torch.allclose(found.x.double(), truth.x, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.cell, truth.cell)


def test__draw__rows__have_the_means_that_were_learned(taught: Any) -> None:
    replay = Teacher(taught.model_, 6000, per_task=False).draw(generator())

    rows = taught.model_.scaler.inverse(replay.x)
    for cell, mean in enumerate(6 * np.eye(3)):
        assert rows[replay.cell == cell].mean(0).numpy() == pytest.approx(mean, abs=0.8)


def test__draw__paper__from_the_posterior_not_the_prior() -> None:
    rng = np.random.default_rng(0)
    x = np.vstack([rng.normal(0, 1, (60, 3)), rng.normal(9, 1, (60, 3))])
    settings = {"couplings": 0, "context_dim": 0, "learning_rate": 0.05}
    model = CLBrunoClassifier(recipe="paper", random_state=0, **settings)
    model.fit(x, ["a"] * 60 + ["b"] * 60, task=["A"] * 60 + ["B"] * 60)

    replay = Teacher(model.model_, 500, per_task=True).draw(generator())

    rows = model.model_.scaler.inverse(replay.x)
    assert float(rows[replay.cell == 0].mean()) == pytest.approx(0, abs=0.7)
    assert float(rows[replay.cell == 1].mean()) == pytest.approx(9, abs=0.7)
