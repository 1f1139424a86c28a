"""Learning what does not fit into memory: the results of memory, bounded, all or nothing."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from clbruno import CLBrunoClassifier, InputError, SmallClassWarning, Stream
from clbruno.core.cells import ClassLatent
from clbruno.core.moments import Moments

BUFFER = 60


def pieces(x: NDArray[Any], y: NDArray[Any], size: int = 17) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def mixed(blobs: Any, classes: int = 3, n: int = 80, seed: int = 0) -> tuple[Any, Any]:
    x, y = blobs(classes, n, 6, seed=seed)
    order = np.random.default_rng(seed).permutation(len(x))
    return x[order], y[order]


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__partial_fit__stream__equals_the_same_blocks_in_memory(
    blobs: Any, answers: Any, same: Any, settings: Any, recipe: str
) -> None:
    x, y = mixed(blobs)
    more, labels = mixed(blobs, classes=4, seed=1)
    known = CLBrunoClassifier(random_state=3, **settings[recipe]).fit(x, y)
    streamed = CLBrunoClassifier(random_state=3, **settings[recipe]).fit(x, y)

    streamed.partial_fit(Stream(pieces(more, labels), buffer=BUFFER))
    for block in Stream(pieces(more, labels), buffer=BUFFER).blocks([known.model_.seed, 1]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallClassWarning)
            known.partial_fit(block.table.x, block.labels, block.tasks)

    found, expected = answers(streamed, more), answers(known, more)
    assert int(found.pop("n_updates_")) == 2
    assert int(expected.pop("n_updates_")) > 10
    same(found, expected)


def test__partial_fit__stream__keeps_the_statistics_of_one_batch(blobs: Any) -> None:
    x, y = mixed(blobs)
    more, labels = mixed(blobs, classes=4, seed=1)
    whole = CLBrunoClassifier(random_state=0, couplings=0).fit(x, y).partial_fit(more, labels)
    streamed = CLBrunoClassifier(random_state=0, couplings=0).fit(x, y)

    streamed.partial_fit(Stream(pieces(more, labels), buffer=BUFFER))

    found, expected = streamed.model_.latent, whole.model_.latent
    assert isinstance(found, ClassLatent)
    assert isinstance(expected, ClassLatent)
    assert streamed.model_.registry.counts == whole.model_.registry.counts
    torch.testing.assert_close(found.within, expected.within, rtol=1e-12, atol=1e-10)
    for one, other in zip(found.moments, expected.moments, strict=True):
        assert isinstance(one, Moments)
        assert isinstance(other, Moments)
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(one.scatter, other.scatter, rtol=1e-11, atol=1e-10)


def test__partial_fit__stream__is_one_update_in_the_log(blobs: Any) -> None:
    x, y = mixed(blobs)

    model = CLBrunoClassifier(random_state=0).partial_fit(Stream(pieces(x, y), buffer=BUFFER))

    (record,) = model.model_.log
    assert record.number == 1
    assert {label: n for _, label, n in record.counts} == {f"class {at}": 80 for at in range(3)}
    assert len(record.fingerprint) == 64


@pytest.mark.parametrize("size", [1, 7, 60, 500])
def test__blocks__any_pieces__every_row_once_and_no_block_over_the_buffer(size: int) -> None:
    x, y = np.arange(237.0)[:, None], [f"{at}" for at in range(237)]

    blocks = list(Stream(pieces(x, np.array(y), size), buffer=BUFFER).blocks(0))

    rows = [
        (float(row[0]), name) for b in blocks for row, name in zip(b.table.x, b.labels, strict=True)
    ]
    assert sorted(rows) == [(float(at), f"{at}") for at in range(237)]
    assert max(map(len, blocks)) <= BUFFER
    assert min(map(len, blocks)) > 1
    assert [row for row, _ in rows] != sorted(row for row, _ in rows)


def test__blocks__fewer_rows_than_half_the_buffer__are_one_block(blobs: Any) -> None:
    x, y = mixed(blobs, n=10)

    (block,) = Stream(pieces(x, y), buffer=BUFFER).blocks(0)

    assert sorted(block.table.x[:, 0]) == sorted(x[:, 0])


def test__blocks__a_seed__repeats_and_another_does_not(blobs: Any) -> None:
    x, y = mixed(blobs)

    def order(seed: int) -> list[float]:
        return [
            v for b in Stream.of_arrays(x, y, buffer=BUFFER).blocks(seed) for v in b.table.x[:, 0]
        ]

    assert order(0) == order(0)
    assert order(0) != order(1)


def test__of_arrays__sorted_memory_map__slices_are_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clbruno.data.stream.PIECE_NUMBERS", 50)
    x = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(1000, 5))
    x[:] = np.arange(1000)[:, None]
    y = np.repeat(["a", "b"], 500)

    blocks = list(Stream.of_arrays(x, y, buffer=100).blocks(0))

    assert sum(map(len, blocks)) == 1000
    assert all(set(block.labels) == {"a", "b"} for block in blocks[:10])
    assert all(
        label == ("a" if row[0] < 500 else "b")
        for block in blocks
        for row, label in zip(block.table.x, block.labels, strict=True)
    )


def folder_of(tmp_path: Path, x: NDArray[Any], y: NDArray[Any], files: int = 4) -> Path:
    """A folder of Parquet files, each with its columns in another order."""
    folder = tmp_path / "cohort"
    for at, rows in enumerate(np.array_split(np.arange(len(x)), files)):
        columns = {f"g{d}": x[rows, d] for d in np.roll(np.arange(x.shape[1]), at)}
        (folder / f"part={at % 2}").mkdir(parents=True, exist_ok=True)
        table = pa.table({**columns, "diagnosis": y[rows]})
        pq.write_table(table, folder / f"part={at % 2}" / f"{at}.parquet")
    return folder


def test__partial_fit__folder_of_parquet__is_learned_by_name(blobs: Any, tmp_path: Path) -> None:
    x, y = mixed(blobs)
    folder = folder_of(tmp_path, x, y)

    model = CLBrunoClassifier(random_state=0).partial_fit(folder, "diagnosis", task="Boston")

    assert model.tasks_.tolist() == ["Boston"]
    assert sorted(model.feature_names_in_) == [f"g{d}" for d in range(6)]
    assert sorted(zip(model.classes_.tolist(), model.class_count_.tolist(), strict=True)) == [
        (f"class {at}", 80) for at in range(3)
    ]
    order = [int(name[1:]) for name in model.feature_names_in_]
    assert float((model.predict(x[:, order]) == y).mean()) > 0.95


class Broken(Exception):
    """What the middle of a stream raises."""


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test__partial_fit__stream_that_breaks__leaves_the_estimator_as_it_was(
    blobs: Any, answers: Any, same: Any, error: type[BaseException]
) -> None:
    x, y = mixed(blobs)
    model = CLBrunoClassifier(random_state=0).fit(x, y)
    fresh = CLBrunoClassifier(random_state=0)
    before, state = answers(model, x), dict(vars(fresh))

    def breaking() -> Iterator[tuple[Any, Any]]:
        yield from pieces(x, y)
        raise error

    for learner in (model, fresh):
        with pytest.raises(error):
            learner.partial_fit(breaking())
        with pytest.raises(error):
            learner.partial_fit(Stream(breaking(), buffer=BUFFER))

    same(answers(model, x), before)
    assert vars(fresh) == state


def test__partial_fit__class_small_in_a_block_only__brings_no_warning(blobs: Any) -> None:
    x, y = mixed(blobs, classes=2)
    rare = np.concatenate([np.full(4, "rare"), y, np.full(4, "rare")])
    rows = np.concatenate([x[:4] + 9, x, x[:4] + 9])

    with warnings.catch_warnings():
        warnings.simplefilter("error", SmallClassWarning)
        CLBrunoClassifier(random_state=0).partial_fit(Stream(pieces(rows, rare), buffer=BUFFER))
    with pytest.warns(SmallClassWarning, match="rare"):
        CLBrunoClassifier(random_state=0).partial_fit(
            Stream(pieces(rows[:-4], rare[:-4]), buffer=BUFFER)
        )


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (lambda x, y: iter([]), "no piece"),
        (lambda x, y: iter([x]), r"a tuple \(X, y\)"),
        (lambda x, y: iter([(x, y), (x[:, :2], y)]), "2 features"),
        (lambda x, y: iter([(x, y[:3])]), "inconsistent numbers of samples"),
        (lambda x, y: iter([(x * np.nan, y)]), "NaN"),
        (lambda x, y: Stream.of_arrays(x, y[:3]), "not one label"),
        (lambda x, y: Stream.of_arrays(x, y, ["t"]), "not one label"),
        (lambda x, y: Stream.of_tables("none.parquet", label="y"), "no such file"),
    ],
)
def test__partial_fit__bad_stream__input_error(blobs: Any, stream: Any, message: str) -> None:
    x, y = mixed(blobs)

    with pytest.raises(InputError, match=message):
        CLBrunoClassifier(random_state=0).partial_fit(stream(x, y))


def test__stream__bad_arguments__input_error(blobs: Any) -> None:
    x, y = mixed(blobs)

    for buffer in (1, True, 2.5, "8"):
        with pytest.raises(InputError, match="whole number of at least 2"):
            Stream(iter([]), buffer=buffer)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not both"):
        Stream.of_tables("x", label="y", task="a", task_column="b")
    with pytest.raises(InputError, match="which of its columns"):
        CLBrunoClassifier().partial_fit(Path("x"))
    with pytest.raises(InputError, match="comes with every batch"):
        CLBrunoClassifier().partial_fit(iter([(x, y)]), y)


PEAK = """
import resource, sys
import numpy as np
import torch
from clbruno import CLBrunoClassifier, Stream
torch.set_num_threads(1)

def pieces(rows):
    rng = np.random.default_rng(0)
    for _ in range(rows // 5000):
        y = rng.integers(0, 5, 5000)
        yield (rng.normal(size=(5000, 50)) + y[:, None]).astype(np.float32), y

def learn(rows):
    model = CLBrunoClassifier(random_state=0).partial_fit(Stream(pieces(rows), buffer=10_000))
    assert model.class_count_.sum() == rows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

print(learn(40_000), learn(160_000))
"""


def test__partial_fit__four_times_the_rows__the_same_peak_memory() -> None:
    ended = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    few, many = map(int, ended.stdout.split())

    # The rows that came on top are 24 MB in float32.
    assert many < few + 8e6
