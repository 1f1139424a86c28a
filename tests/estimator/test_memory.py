"""Memory: answers in chunks, models that do not leak, inputs that are never written to."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier, save

PREDICT = """
import resource, sys
import numpy as np
import torch
from clbruno import CLBrunoClassifier
torch.set_num_threads(1)
path, rows, dim, method = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
x = np.memmap(path, dtype=np.float32, mode="r", shape=(rows, dim))
model = CLBrunoClassifier(random_state=0).fit(np.array(x[:600]), np.repeat(list("abc"), 200))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for task in (None, "default"):
    found = getattr(model, method)(x, **({} if task is None else {"task": task}))
    assert len(found) == rows
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def peak(tmp_path: Path, rows: int, dim: int, method: str) -> tuple[int, int]:
    """What answering adds to the peak of a process that has learned, and the size of its input."""
    path = tmp_path / "rows"
    rng = np.random.default_rng(0)
    block = rng.normal(size=(2000, dim)).astype(np.float32)
    with path.open("wb") as file:
        for _ in range(rows // len(block)):
            file.write(block.tobytes())
    ended = subprocess.run(
        [sys.executable, "-c", PREDICT, str(path), str(rows), str(dim), method],
        capture_output=True,
        text=True,
        check=True,
    )
    path.unlink()
    return int(ended.stdout), rows * dim * 4


@pytest.mark.parametrize(
    ("rows", "dim", "method"),
    [(300_000, 128, "predict_proba"), (76_000, 512, "score_samples")],
)
def test__answers__rows_of_a_memory_map__no_copy_is_made(
    tmp_path: Path, rows: int, dim: int, method: str
) -> None:
    found, size = peak(tmp_path, rows=rows, dim=dim, method=method)

    # The pages of the map itself count as resident.
    assert found < size + 150e6


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["predict", "score_samples"])
def test__answers__a_million_rows_of_512__peak_under_one_and_a_half_inputs_and_300_mb(
    tmp_path: Path, method: str
) -> None:
    found, size = peak(tmp_path, rows=1_000_000, dim=512, method=method)

    assert found < 1.5 * size + 300e6


def bytes_of_tensors() -> int:
    """Bytes of all tensors and arrays that are alive."""
    gc.collect()
    alive = [each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]
    return sum(each.untyped_storage().nbytes() for each in alive)


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__fifty_tasks__objects_tensors_and_file__grow_in_line(
    blobs: Any, settings: Any, recipe: str, tmp_path: Path
) -> None:
    x, y = blobs(2, 20, 8)
    model = CLBrunoClassifier(random_state=0, **{**settings[recipe], "max_epochs": 1})
    found = []
    for task in range(50):
        model.partial_fit(x + task, y, task=f"task {task:02}")
        if task % 10 == 9:
            model.predict_proba(x)
            save(model, tmp_path / "m.clb")
            size = (tmp_path / "m.clb").stat().st_size
            found.append((bytes_of_tensors(), len(gc.get_objects()), size))

    growth = np.diff(np.array(found), axis=0) / 10
    for each in growth.T:
        assert each.min() > 0 or recipe == "default"
        assert each[-1] < 1.25 * each[0] + 100
    assert growth[:, 0].max() < 20_000
    assert len(model.tasks_) == 50


def test__more_samples__of_the_same_classes__leave_the_size_alone(
    blobs: Any, tmp_path: Path
) -> None:
    x, y = blobs(3, 40, 8)
    model = CLBrunoClassifier(random_state=0).fit(x, y)
    save(model, tmp_path / "small.clb")
    model.fit(np.repeat(x, 50, axis=0), np.repeat(y, 50))
    save(model, tmp_path / "large.clb")

    small, large = ((tmp_path / f"{name}.clb").stat().st_size for name in ("small", "large"))

    assert abs(large - small) < 100


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test__inputs__read_only__work_and_are_never_changed(
    blobs: Any, answers: Any, settings: Any, recipe: str, dtype: type
) -> None:
    x, y = blobs(3, 24, 4)
    x, task = (10 * x).astype(dtype), np.repeat(["A", "B"], 36)
    kept = x.tobytes(), y.tobytes(), task.tobytes()
    for column in (x, y, task):
        column.flags.writeable = False

    model = CLBrunoClassifier(random_state=0, **settings[recipe])
    model.fit(x, y, task=task).partial_fit(x, y, task=task)
    answers(model, x)
    model.predict(x, task=task)

    assert (x.tobytes(), y.tobytes(), task.tobytes()) == kept


def test__inputs__writable__are_never_changed(blobs: Any, answers: Any) -> None:
    x, y = blobs(3, 24, 4)
    kept = x.copy()

    answers(CLBrunoClassifier(random_state=0).fit(x, y), x)

    assert np.array_equal(x, kept)


def test__model__does_not_share_memory_with_its_input(blobs: Any, answers: Any, same: Any) -> None:
    x, y = blobs(3, 1, 4)
    asked = blobs(3, 5, 4)[0]
    model = CLBrunoClassifier(random_state=0, min_class_size=1).fit(x, y)
    before = answers(model, asked)

    x[:] = 1e6

    same(answers(model, asked), before)
