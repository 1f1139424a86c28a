"""Streams keep to the protocols, and no test row is ever learned."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import data
from benchmarks.experiments import EXPERIMENTS, pancan, synthetic
from benchmarks.stream import Step, Stream, split_stratified, thin, validation_stream

REAL = Path(os.environ["CLBRUNO_DATA"]) if "CLBRUNO_DATA" in os.environ else None


def rows_of(steps: tuple[Step, ...]) -> set[bytes]:
    return {step.task.encode() + row.tobytes() for step in steps for row in step.x}


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [True, False])
def test__stream__made_data__learns_no_test_row(name: str, quick: bool) -> None:
    stream = EXPERIMENTS[name](None, 0, quick)
    assert not rows_of(stream.steps) & rows_of(stream.tests)
    for step, test in zip(stream.steps, stream.tests, strict=True):
        assert step.task == test.task
        assert set(test.y.tolist()) <= set(step.y.tolist())
        assert len(step.x) == len(step.y) > 0


@pytest.mark.parametrize("name", EXPERIMENTS)
def test__stream__same_seed__is_the_same(name: str) -> None:
    first, again = (EXPERIMENTS[name](None, 1, True) for _ in range(2))
    for a, b in zip(first.steps + first.tests, again.steps + again.tests, strict=True):
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)


@pytest.mark.parametrize("name", ["synthetic", "pancan", "ici"])
def test__stream__other_seed__differs(name: str) -> None:
    first, other = (EXPERIMENTS[name](None, seed, True) for seed in (0, 1))
    assert rows_of(first.steps) != rows_of(other.steps)


def test__synthetic__full_form__has_the_papers_five_increments() -> None:
    stream = EXPERIMENTS["synthetic"](None, 0, False)
    assert [sorted(set(step.y.tolist())) for step in stream.steps] == [
        [1, 2],
        [1, 2, 3],
        [1, 2, 3, 4],
        [1, 2, 3],
        [4, 5],
    ]
    assert [len(step.y) for step in stream.steps[:3]] == [500, 500, 500]
    assert len(stream.steps[3].y) + len(stream.steps[4].y) == 500
    assert [len(test.y) for test in stream.tests[:3]] == [1000, 1000, 1000]
    assert stream.steps[0].x.shape[1] == 1000


def test__synthetic__many_rows__have_the_stated_mean_and_variance() -> None:
    step = synthetic.draw(np.random.default_rng(0), 3, 40000, 4)
    part = step.x[step.y == 1]
    angle = 2 * np.pi / 4
    expected = np.sqrt(3) * np.array([np.sin(angle), np.cos(angle)] * 2)
    np.testing.assert_allclose(part.mean(0), expected, atol=0.03)
    np.testing.assert_allclose(part.var(0), 0.5, atol=0.03)


def test__pancan__types__go_to_the_least_filled_batch_with_room() -> None:
    y = np.repeat(["a", "b", "c", "d", "e"], [10, 8, 8, 3, 1])
    assert pancan.batches_of_types(y, (3, 2)) == [["a", "d", "e"], ["b", "c"]]


def test__ici__made_data__tasks_by_count_without_the_unnamed() -> None:
    stream = EXPERIMENTS["ici"](None, 0, False)
    assert stream.tasks == ("Atezo", "Pembro", "Nivo", "Ipi", "Ipi+Pembro", "Ipi+Nivo")
    arrays = data.read("ici", None)
    assert stream.steps[0].x.shape[1] == 16
    expected = np.log(arrays["x_mean"][0].astype(float) + 0.01)
    rows = np.concatenate([step.x for step in stream.steps + stream.tests])
    assert np.isclose(rows[:, :8], expected, atol=1e-5).all(axis=1).any()


def test__split__each_stratum__rounded_share_is_the_test() -> None:
    strata = np.repeat(["a", "b", "c"], [10, 7, 1])
    train, test = split_stratified(strata, 0)
    assert np.unique(strata[train], return_counts=True)[1].tolist() == [8, 6, 1]
    assert sorted([*train, *test]) == list(range(18))


def test__validation_stream__rows__come_from_training_alone() -> None:
    stream = EXPERIMENTS["pancan"](None, 0, True)
    held = validation_stream(stream, 0)
    for whole, step, test in zip(stream.steps, held.steps, held.tests, strict=True):
        assert len(step.y) + len(test.y) == len(whole.y)
        assert set(step.y.tolist()) == set(whole.y.tolist())
    assert not rows_of(held.steps) & rows_of(held.tests)
    assert rows_of(held.tests) <= rows_of(stream.steps)


def test__validation_stream__class_of_one_row__still_trains() -> None:
    step = Step(np.arange(11.0)[:, None], np.array([0] * 10 + [1]), "a")
    held = validation_stream(Stream("s", (step,), (step,)), 0)
    assert set(held.steps[0].y.tolist()) == {0, 1}
    assert held.tests[0].y.tolist() == [0]


def test__thin__more_rows_than_asked__keeps_that_many_of_each_class() -> None:
    step = thin(Step(np.arange(9.0)[:, None], np.array([0] * 6 + [1] * 3), "a"), 4)
    assert np.bincount(step.y).tolist() == [4, 3]


def test__read__missing_file__is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(data.DataError, match=r"mnist\.npz"):
        data.read("mnist", tmp_path)


def test__read__missing_array__is_an_error_that_names_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "pancan.npz", x=np.zeros((2, 2)), y=np.array(["a", "b"]))
    with pytest.raises(data.DataError, match="feature"):
        data.read("pancan", tmp_path)


@pytest.mark.skipif(REAL is None, reason="CLBRUNO_DATA names no data folder")
def test__real_data__streams__have_the_protocols_sizes() -> None:
    sizes = {
        name: EXPERIMENTS[name](REAL, 0, False) for name in ("mnist", "cifar100", "pancan", "ici")
    }
    assert sum(len(step.y) for step in sizes["mnist"].steps) == 60000
    assert [len(step.y) for step in sizes["cifar100"].steps] == [5000] * 10
    assert [len(set(step.y.tolist())) for step in sizes["pancan"].steps] == [7, 5, 5, 5, 5, 5]
    assert sizes["ici"].tasks == ("Atezo", "Pembro", "Nivo", "Ipi", "Ipi+Pembro", "Ipi+Nivo")
    assert sizes["pancan"].stand_in
    assert sizes["ici"].stand_in
