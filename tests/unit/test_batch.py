"""A batch of rows: nothing is lost, nothing is copied, small classes keep what they have."""

import numpy as np
import pytest
import torch

from clbruno.data.scaling import Scaler
from clbruno.learn import batch as batch_module
from clbruno.learn.batch import Batch

SIZES = {0: 100, 1: 12, 2: 9, 3: 1, 4: 40}


@pytest.fixture
def batch() -> Batch:
    rng = np.random.default_rng(0)
    cell = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    x = rng.normal(3, 2, (len(cell), 4)).astype(np.float32)
    x.flags.writeable = False
    return Batch(x, cell, np.arange(len(cell)), Scaler.fit(x, common=False))


def test__take__rows__are_scaled_in_float64(batch: Batch) -> None:
    at = np.array([5, 2, 150])

    x, cell = batch.take(at)
    raw, same_cell = batch.raw(at)

    assert x.dtype == raw.dtype == torch.float64
    assert torch.equal(x, batch.scaler.forward(torch.from_numpy(batch.x[at].astype(np.float64))))
    assert raw.numpy().tolist() == batch.x[at].astype(np.float64).tolist()
    assert cell.tolist() == same_cell.tolist() == batch.cell[at].tolist()


def test__raw__is_a_copy(batch: Batch) -> None:
    batch.raw(np.arange(3))[0].zero_()

    assert (batch.x[:3] != 0).all()


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test__of_cell__any_chunks__exactly_its_rows_in_order(
    batch: Batch, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_module, "ROWS", chunk)
    assert batch.cells == list(SIZES)

    for cell, size in SIZES.items():
        parts = list(batch.of_cell(cell))
        assert max(map(len, parts)) <= chunk
        rows = torch.cat(parts)
        assert len(rows) == size
        assert torch.equal(rows, batch.take(np.flatnonzero(batch.cell == cell))[0])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.9])
def test__split__every_row_once__a_share_of_every_cell_with_a_floor(
    batch: Batch, share: float
) -> None:
    new, held = batch.split(share, np.random.default_rng(1))

    assert sorted([*new.rows, *held.rows]) == list(range(len(batch)))
    assert (np.diff(new.rows) > 0).all()
    assert (np.diff(held.rows) > 0).all()
    counts = np.bincount(batch.cell[held.rows], minlength=5).tolist()
    expected = [
        0 if size < 10 or share == 0 else max(2, round(share * size)) for size in SIZES.values()
    ]
    assert counts == expected


def test__split__of_a_part__stays_within_it(batch: Batch) -> None:
    new, _ = batch.split(0.5, np.random.default_rng(0))

    inner, held = new.split(0.5, np.random.default_rng(1))

    assert sorted([*inner.rows, *held.rows]) == new.rows.tolist()


def test__split__same_generator__same_rows(batch: Batch) -> None:
    one, two, other = (batch.split(0.3, np.random.default_rng(seed))[1].rows for seed in (1, 1, 2))

    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
