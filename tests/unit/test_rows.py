"""Rows as training takes them: kept or read again, every one once, in the asked precision."""

import numpy as np
import pytest
import torch

from clbruno.config import recipe
from clbruno.core.moments import Moments
from clbruno.data.scaling import Scaler
from clbruno.learn import rows as rows_module
from clbruno.learn.batch import Batch
from clbruno.learn.rows import Rows
from clbruno.learn.student import Student
from clbruno.registry import Registry

SIZES = (60, 25, 15)


@pytest.fixture(params=["kept", "read again"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rows:
    rng = np.random.default_rng(0)
    cell = rng.permutation(np.repeat(range(3), SIZES))
    x = rng.normal(3, 2, (100, 4)).astype(np.float32)
    batch = Batch(x, cell, np.arange(100), Scaler.fit(x, common=False))
    monkeypatch.setattr(rows_module, "ROWS", 32)
    if request.param == "read again":
        monkeypatch.setattr(rows_module, "KEPT", 0)
    return Rows(batch, torch.zeros(()))


def test__take__any_order__those_rows_in_that_order(rows: Rows) -> None:
    at = np.array([50, 3, 99, 0])

    x, cell = rows.take(at)

    assert x.dtype == torch.float32
    assert torch.equal(x, rows.batch.take(at)[0].float())
    assert cell.tolist() == rows.batch.cell[at].tolist()


@pytest.mark.parametrize("size", [1, 7, 16, 99, 100, 1000])
def test__shuffled__one_pass__equal_lengths_and_no_row_twice(rows: Rows, size: int) -> None:
    parts = list(rows.shuffled(size, np.random.default_rng(0)))

    lengths = {len(x) for x, _ in parts}
    assert len(lengths) == 1
    assert max(lengths) <= size
    taken = torch.cat([x for x, _ in parts])
    everything = rows.batch.take(np.arange(100))[0].float()
    assert 100 - len(taken) < len(parts)
    found = set(map(tuple, taken.tolist()))
    assert len(found) == len(taken)
    assert found <= set(map(tuple, everything.tolist()))
    again = torch.cat([x for x, _ in rows.shuffled(size, np.random.default_rng(0))])
    other = torch.cat([x for x, _ in rows.shuffled(size, np.random.default_rng(1))])
    assert torch.equal(again, taken)
    assert not torch.equal(other, taken)


def test__shuffled__rows_keep_their_cells(rows: Rows) -> None:
    cell_of = dict(
        zip(map(tuple, rows.take(np.arange(100))[0].tolist()), rows.batch.cell, strict=True)
    )

    for x, cell in rows.shuffled(16, np.random.default_rng(0)):
        assert [cell_of[row] for row in map(tuple, x.tolist())] == cell.tolist()


def test__moments__in_pieces__are_those_of_each_cell(rows: Rows) -> None:
    names = Registry().extended("t", ["a", "b", "c"], list(SIZES))
    numbers = recipe("paper", hidden=4, context_dim=2)
    student = Student.start(4, numbers, names, torch.Generator().manual_seed(0))

    with torch.no_grad():
        found = rows.moments(student)

    x, cell = rows.take(np.arange(100))
    assert sorted(found) == [0, 1, 2]
    for each, seen in found.items():
        truth = Moments.of(x[cell == each].double(), full=False)
        assert seen.count == truth.count == SIZES[each]
        assert torch.allclose(seen.mean, truth.mean, atol=1e-6)
        assert torch.allclose(seen.scatter, truth.scatter, rtol=1e-5)
