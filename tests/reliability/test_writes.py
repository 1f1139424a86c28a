"""A disk that is full or broken at any point of a save leaves the old file, and says so."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from clbruno import ModelFileError, load, save
from clbruno.persist import atomic

PIECE = 4096


class Failing:
    """A file whose writes happen in pieces, the k-th of which fails halfway."""

    def __init__(self, file: BinaryIO, k: int) -> None:
        self._file, self._left = file, k

    def write(self, data: Any) -> int:
        for start in range(0, len(data), PIECE):
            piece = bytes(data[start : start + PIECE])
            if self._left == 0:
                self._file.write(piece[: len(piece) // 2])
                raise OSError(errno.EIO, "Input/output error")
            self._left -= 1
            self._file.write(piece)
        return len(data)


class FailingTarget(atomic.Target):
    """A target whose k-th write fails."""

    k = 0

    def replace(self, write: Callable[[BinaryIO], None]) -> None:
        super().replace(lambda file: write(Failing(file, self.k)))  # type: ignore[arg-type]


def test__save__io_error_at_every_write__leaves_the_old_file(learned: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    path.write_bytes(b"old")
    failures = 0
    while path.read_bytes() == b"old":
        FailingTarget.k = failures
        target = FailingTarget(path)
        if failures <= learned.path.stat().st_size // PIECE:
            with pytest.raises(ModelFileError, match=r"Input/output error; .* is unchanged"):
                save(learned.model, target)
            assert path.read_bytes() == b"old"
        else:
            with contextlib.suppress(ModelFileError):
                save(learned.model, target)
        failures += 1
        assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]
    assert path.read_bytes() == learned.path.read_bytes()


@pytest.mark.parametrize("call", ["fsync", "replace", "open", "fchmod"])
def test__save__io_error_of_the_system__leaves_the_old_file(
    learned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "m.clb"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with atomic.writing(path) as target:
        monkeypatch.setattr(atomic.os, call, fail)
        with pytest.raises(ModelFileError, match="Input/output error"):
            save(learned.model, target)
        monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


def test__save__folder_not_confirmed__says_that_the_new_file_is_there(
    learned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "m.clb", os.fsync

    def fail_on_folder(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", fail_on_folder)
    with pytest.raises(ModelFileError, match="the new file is in place, but"):
        save(learned.model, path)
    load(path)


# Both programs save a model where there is room for ever more bytes until it fits, and check after
# each failure that the old file is there, whole and alone.
LIMITED = """
import resource, sys
from pathlib import Path
from clbruno import ModelFileError, load, save
model, path, step = load(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
whole, failures = Path(sys.argv[1]).read_bytes(), 0
path.write_bytes(b"old")
while path.read_bytes() == b"old":
    resource.setrlimit(resource.RLIMIT_FSIZE, (failures * step, resource.RLIM_INFINITY))
    try:
        save(model, path)
    except ModelFileError as error:
        assert "File too large" in str(error) and "unchanged" in str(error), error
        failures += 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]
assert path.read_bytes() == whole
print(failures)
"""

FULL = """
import os, subprocess, sys
from pathlib import Path
from clbruno import ModelFileError, load, save
model, folder = load(sys.argv[1]), Path(sys.argv[2])
whole, path, ballast = Path(sys.argv[1]).read_bytes(), folder / "m.clb", folder / "ballast"
path.write_bytes(b"old")
with ballast.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
failures = 0
while path.read_bytes() == b"old":
    try:
        save(model, path)
    except ModelFileError as error:
        assert "No space left" in str(error) and "unchanged" in str(error), error
        failures += 1
        os.truncate(ballast, ballast.stat().st_size - 4096)
    assert sorted(p.name for p in folder.iterdir()) == ["ballast", "m.clb"]
assert path.read_bytes() == whole
print(failures)
"""


def _run(*command: Any) -> int:
    run = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize("learned", ["paper"], indirect=True)
def test__save__no_room_for_every_kth_piece__leaves_the_old_file(
    learned: Any, tmp_path: Path
) -> None:
    step = 1000
    failures = _run(sys.executable, "-c", LIMITED, learned.path, tmp_path / "m.clb", step)
    assert failures == -(-learned.path.stat().st_size // step)


def _may_mount(folder: Path) -> bool:
    unshare = shutil.which("unshare")
    command = [unshare or "false", "-rm", "mount", "-t", "tmpfs", "tmpfs", folder]
    return unshare is not None and subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize("learned", ["paper"], indirect=True)
def test__save__disk_full_at_every_page__leaves_the_old_file(learned: Any, tmp_path: Path) -> None:
    if not _may_mount(tmp_path):
        pytest.skip("this system lets nobody mount a small disk; the limit on sizes was tested")
    # A namespace of its own: the small disk is gone with the process.
    shell = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
    failures = _run(
        "unshare",
        "-rm",
        "sh",
        "-c",
        shell,
        tmp_path,
        sys.executable,
        "-c",
        FULL,
        learned.path,
        tmp_path,
    )
    assert failures >= learned.path.stat().st_size // PIECE
