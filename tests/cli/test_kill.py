"""`clbruno learn` is killed, interrupted and starved; the model is the old or the new one."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clbruno.persist import container

UPDATE = ("--label", "diagnosis", "--task", "Oslo")
CLOCK = ("time", "seconds", "fingerprint")


def content(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """What is in a file, but for the clock and the random key of the log."""
    header, tensors = container.read(path)
    for record in header["log"]:
        for name in CLOCK:
            del record[name]
    return header, tensors


def same(one: Path, other: Path) -> bool:
    """Whether two files hold the same model to the bit."""
    (header, tensors), (other_header, other_tensors) = content(one), content(other)
    return (
        header == other_header
        and tensors.keys() == other_tensors.keys()
        and all(
            tensors[name].numpy().tobytes() == other_tensors[name].numpy().tobytes()
            for name in tensors
        )
    )


@pytest.fixture(scope="module")
def updated(clbruno: Any, world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model after an update that nothing disturbed."""
    path = world.copy(tmp_path_factory.mktemp("updated"))
    ended = clbruno("learn", path, world.oslo, *UPDATE)
    assert ended.code == 0, ended.err
    return path


def _check(clbruno: Any, world: Any, updated: Path, path: Path, code: int) -> None:
    """Old or new, bit for bit; then the update is run again and gives the undisturbed model."""
    if path.read_bytes() == world.model.read_bytes():
        assert code != 0
        ended = clbruno("learn", path, world.oslo, *UPDATE)
        assert ended.code == 0, ended.err
    assert same(path, updated)


def _seconds(clbruno: Any, world: Any, folder: Path) -> float:
    """How long an update takes when nothing else runs."""
    taken = []
    for _ in range(3):
        path = world.copy(folder)
        began = time.monotonic()
        clbruno("learn", path, world.oslo, *UPDATE)
        taken.append(time.monotonic() - began)
    return min(taken)


def _kill_at_random(clbruno: Any, world: Any, updated: Path, folder: Path, times: int) -> None:
    path = folder / "m.clb"
    takes = _seconds(clbruno, world, folder)
    rng = np.random.default_rng(times)
    killed = 0
    for moment in rng.uniform(0, takes, times):
        world.copy(folder)
        ended = clbruno("learn", path, world.oslo, *UPDATE, signal_after=moment)
        killed += ended.code == -signal.SIGKILL
        _check(clbruno, world, updated, path, ended.code)
    assert killed > times / 4
    clbruno("learn", world.copy(folder), world.oslo, *UPDATE)
    assert [p.name for p in folder.iterdir()] == ["m.clb"]


def test__learn__killed_at_20_random_moments__leaves_the_old_or_the_new(
    clbruno: Any, world: Any, updated: Path, tmp_path: Path
) -> None:
    _kill_at_random(clbruno, world, updated, tmp_path, 20)


@pytest.mark.nightly
def test__learn__killed_at_200_random_moments__leaves_the_old_or_the_new(
    clbruno: Any, world: Any, updated: Path, tmp_path: Path
) -> None:
    _kill_at_random(clbruno, world, updated, tmp_path, 200)


def test__learn__killed_before_every_call_to_the_disk__leaves_the_old_or_the_new(
    clbruno: Any, world: Any, updated: Path, tmp_path: Path
) -> None:
    path, moment, codes = world.copy(tmp_path), 0, []
    while not codes or codes[-1] != 0:
        world.copy(tmp_path)
        codes.append(clbruno("learn", path, world.oslo, *UPDATE, die_at=moment).code)
        _check(clbruno, world, updated, path, codes[-1])
        moment += 1
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) > 8
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


def test__learn__first_update_killed__leaves_no_file_or_a_whole_one(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.clb"
    command = ("learn", path, world.boston, "--label", "diagnosis", "--task", "Boston")
    quick = ("--set", "max_epochs=1", "--set", "hidden=8")
    code, moment = -1, 0
    while code != 0:
        path.unlink(missing_ok=True)
        code = clbruno(*command, *quick, die_at=moment).code
        assert not path.exists() or same(path, world.model)
        moment += 3


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test__learn__ctrl_c__leaves_the_old_file_and_says_so(
    clbruno: Any, world: Any, tmp_path: Path, part: float
) -> None:
    moment = part * _seconds(clbruno, world, tmp_path)
    path = world.copy(tmp_path)
    ended = clbruno("learn", path, world.oslo, *UPDATE, signal_after=moment, number=signal.SIGINT)
    if ended.code == 0:
        assert path.read_bytes() != world.model.read_bytes()
    else:
        assert ended.code == 130
        assert ended.err.strip().endswith("Stopped. What was there before is unchanged.")
        assert "Traceback" not in ended.err
        assert path.read_bytes() == world.model.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


def test__learn__no_room_for_the_file__leaves_the_old_one(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = world.copy(tmp_path)
    for limit in range(0, world.model.stat().st_size, 8000):
        ended = clbruno("learn", path, world.oslo, *UPDATE, limit=max(limit, 1000))
        assert ended.code == 2
        assert "File too large" in ended.err
        assert path.read_bytes() == world.model.read_bytes()
        assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


def test__learn__twice_at_once__one_is_told_to_wait(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    from clbruno.persist import atomic

    path = world.copy(tmp_path)
    with atomic.writing(path):
        for command in (("learn", path, world.oslo, *UPDATE), ("forget", path, "--label", "LUAD")):
            ended = clbruno(*command)
            assert ended.code == 2
            assert "is being written by process" in ended.err
        # Reading needs no lock.
        assert clbruno("verify", path).code == 0
    assert path.read_bytes() == world.model.read_bytes()


def test__learn__while_another_waits_for_its_data__is_told_so_and_nothing_is_lost(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = world.copy(tmp_path)
    program = str(Path(sys.executable).with_name("clbruno"))
    command = [program, "learn", str(path), "-", "--label", "diagnosis", "--task", "Oslo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as waiting:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / ".m.clb.lock").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
            ended = clbruno("learn", path, world.boston, "--label", "diagnosis", "--task", "third")
            assert ended.code == 2
            assert f"is being written by process {waiting.pid}" in ended.err
            waiting.communicate(world.oslo.read_bytes())
        finally:
            waiting.kill()
    assert waiting.returncode == 0
    assert clbruno("inspect", path, "--json").json()["tasks"] == ["Boston", "Oslo"]
