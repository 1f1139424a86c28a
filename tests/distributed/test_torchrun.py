"""`clbruno learn` as torchrun starts it, and the file when one of its processes is killed."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clbruno import CLBrunoClassifier, load, save
from tests.distributed.scenarios import cohort


def table(path: Path, n: int, seed: int = 0) -> Path:
    """A CSV file of three classes."""
    x, y = cohort(3, n, 4, seed)
    lines = [
        f"{label},{','.join(map(repr, row.tolist()))}" for row, label in zip(x, y, strict=True)
    ]
    path.write_text("\n".join(["diagnosis,a,b,c,d", *lines]) + "\n")
    return path


def start(rank: int, size: int, port: int, *arguments: Any) -> "subprocess.Popen[str]":
    """One process with the environment that torchrun gives it, without an agent that watches it."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    environment = {**os.environ, **{name: str(value) for name, value in told.items()}}
    environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "clbruno", "learn", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("victim", [0, 1])
def test__learn__one_process_killed__the_other_ends_and_the_old_file_stays(
    tmp_path: Path, victim: int
) -> None:
    model = tmp_path / "m.clb"
    x, y = cohort(3, 200, 4)
    settings = {"couplings": 2, "hidden": 8, "batch_size": 20, "max_epochs": 1, "patience": 10**6}
    old = CLBrunoClassifier(random_state=0, **settings).fit(
        pd.DataFrame(x, columns=list("abcd")), y
    )
    endless = old.model_.recipe.with_overrides(max_epochs=10**6)
    old.model_ = dataclasses.replace(old.model_, recipe=endless)
    save(old, model)
    before, port = model.read_bytes(), free_port()
    command = (model, table(tmp_path / "more.csv", 300, seed=1), "--label", "diagnosis")

    ranks = [start(rank, 2, port, *command) for rank in range(2)]
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / ".m.clb.lock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(3)  # into the training
        assert [rank.poll() for rank in ranks] == [None, None]
        ranks[victim].send_signal(signal.SIGKILL)
        out, err = ranks[1 - victim].communicate(timeout=60)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()

    assert ranks[1 - victim].returncode == 2
    assert err.startswith("Error: another process of the group has ended"), err
    assert "Traceback" not in err
    assert out == ""
    assert model.read_bytes() == before
    assert load(model).predict(x).shape == (200,)


def test__learn__table_in_memory__two_processes_write_the_statistics_of_one(tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", 301)
    for size in (1, 2):
        port = free_port()
        asked = ("--label", "diagnosis", "--validation", data, "--set", "couplings=0")
        command = (tmp_path / f"{size}.clb", data, *asked)
        ranks = [start(rank, size, port, *command) for rank in range(size)]
        told = [rank.communicate(timeout=120) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * size, told
        assert told[0][0].startswith("Accuracy on the validation file")
        assert all(out == "" for out, _ in told[1:])

    one, two = load(tmp_path / "1.clb").model_, load(tmp_path / "2.clb").model_
    assert one.registry == two.registry
    for mine, other in zip(one.latent.moments, two.latent.moments, strict=True):
        assert mine.count == other.count
        for name in ("mean", "scatter"):
            values = [getattr(seen, name).numpy().tobytes() for seen in (mine, other)]
            assert values[0] == values[1], name
    assert np.array_equal(one.latent.within.numpy(), two.latent.within.numpy())
