"""The container, the strict JSON and the atomic writer, on their own."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from clbruno.errors import InputError, LockedFileError, ModelFileError
from clbruno.persist import atomic, container, strict

HEADER: dict[str, Any] = {
    "name": "Zürich \u2028",
    "numbers": [1, -2.5, None, True],
    "deep": {"a": {}},
}


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "weights": torch.randn(7, 5, generator=generator),
        "wide": torch.randn(3, 2, 2, generator=generator, dtype=torch.float64),
        "whole": torch.tensor([2**62, -1]),
        "scalar": torch.tensor(-0.0),
        "empty": torch.zeros(0, 4),
        "view": torch.randn(6, 6, generator=generator).T[1:3],
    }


def test__read__after_write__gives_back_every_bit(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    container.write(path, HEADER, tensors())
    header, read = container.read(path)
    assert header == HEADER
    assert read.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert read[name].dtype == tensor.dtype
        assert read[name].shape == tensor.shape
        assert read[name].numpy().tobytes() == tensor.contiguous().numpy().tobytes()
        assert read[name].data_ptr() % 64 == torch.empty(4).data_ptr() % 64


def test__write__twice__gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        container.write(tmp_path / name, HEADER, tensors())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test__payload__read_by_safetensors__is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    container.write(path, HEADER, tensors())
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[12:16], "little")
    read = safetensors.torch.load(data[24 + header_bytes : -32])
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors().items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test__write__not_finite__is_refused_and_leaves_nothing(tmp_path: Path, bad: float) -> None:
    weights = torch.zeros(3, 3)
    weights[1, 1] = bad
    with pytest.raises(ModelFileError, match="'w' holds a NaN or an infinity"):
        container.write(tmp_path / "m.clb", {}, {"w": weights})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("header", [{"a": float("nan")}, {"a": {1, 2}}, {1: "a"}, {"a": "\ud800"}])
def test__write__header_that_json_cannot_hold__is_refused(
    tmp_path: Path, header: dict[str, Any]
) -> None:
    with pytest.raises(ModelFileError, match="header cannot be written"):
        container.write(tmp_path / "m.clb", header, {})
    assert list(tmp_path.iterdir()) == []


def test__write__type_outside_the_list__is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"'w' has the type torch\.int8"):
        container.write(tmp_path / "m.clb", {}, {"w": torch.zeros(2, dtype=torch.int8)})


def test__read__newer_protocol__names_both(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    container.write(path, HEADER, tensors())
    data = bytearray(path.read_bytes())
    data[8:12] = (7).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"protocol 7, .* reads protocol 1"):
        container.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x89CL", "was cut off"),
        (b"PK\x03\x04" + b"\0" * 100, "looks like a ZIP archive"),
        (b"\x80\x04\x95" + b"\0" * 100, "looks like an object dump"),
        (b"\x1f\x8b" + b"\0" * 100, "looks like a gzip file"),
        (b"\x89CLB\n\x1a\n" + b"\0" * 100, "not a clbruno model file"),
        (b"label,x\n1,2\n", "not a clbruno model file"),
        (container.MAGIC + b"\0" * 100, "protocol 0 does not exist"),
    ],
)
def test__read__foreign_file__says_what_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.clb"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=message) as caught:
        container.read(path)
    assert str(caught.value).startswith(str(path))


def test__read__what_is_no_file__is_an_input_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in [("none", "no such file"), ("pipe", "a pipe"), (".", "a folder")]:
        with pytest.raises(InputError, match=message):
            container.read(tmp_path / name)
    with pytest.raises(InputError, match="a device"):
        container.read("/dev/zero")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a":1,"a":2}', "stands there twice"),
        (b'{"a":{"b":1,"b":1}}', "stands there twice"),
        (b'{"":0,%s"z":1,"z":1}' % b"".join(b'"%x":1,' % i for i in range(10**5)), "'z' stands"),
        (b'{"a":NaN}', "NaN is not"),
        (b'{"a":-Infinity}', "-Infinity is not"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"a":1}{', "brackets differ"),
        (b'{"a":1} 2', "not valid JSON"),
        (b'{"a":"\xff"}', "not valid JSON"),
        (b'{"a":' + b"[" * 17 + b"]" * 17 + b"}", "deeper than 16"),
        (b'{"a":' + b"[" * 10**6, "deeper than 16"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"", "not valid JSON"),
        (b" " * (strict.MAX_BYTES + 1), "larger than"),
    ],
)
def test__parse__what_json_leaves_open__is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        strict.parse(text, "the header")


def test__parse__brackets_inside_texts__do_not_count() -> None:
    text = b'{"a":"' + b"[" * 1000 + b'\\"{","b":["]"]}'
    assert strict.parse(text, "x") == {"a": "[" * 1000 + '"{', "b": ["]"]}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test__replace__new_file__follows_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        container.write(tmp_path / "m.clb", {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.clb").stat().st_mode) == 0o666 & ~umask


def test__replace__old_file__keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    container.write(path, {}, {})
    path.chmod(0o640)
    container.write(path, {"new": 1}, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert container.read(path)[0] == {"new": 1}


def test__replace__symbolic_link__replaces_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "real.clb", tmp_path / "link.clb"
    container.write(target, {"old": 1}, {})
    link.symlink_to(target)
    container.write(link, {"new": 1}, {})
    assert link.is_symlink()
    assert container.read(target)[0] == {"new": 1}


def test__writing__left_over_temporaries__are_swept_and_others_stay(tmp_path: Path) -> None:
    left = tmp_path / ".m.clb.0123456789abcdef.tmp"
    others = [
        tmp_path / name
        for name in (".m.clb.notes.tmp", ".other.clb.0123456789abcdef.tmp", "m.clb.tmp")
    ]
    for path in (left, *others):
        path.write_text("x")
    container.write(tmp_path / "m.clb", {}, {})
    assert not left.exists()
    assert all(path.exists() for path in others)


def test__writing__second_writer__is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    with atomic.writing(path):
        with pytest.raises(LockedFileError, match=f"process {os.getpid()} on "):
            container.write(path, {}, {})
        container.write(tmp_path / "other.clb", {}, {})
    container.write(path, {}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.clb", "other.clb"]


def test__writing__lock_of_a_killed_process__does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    script = (
        "import os, sys; from clbruno.persist import atomic\n"
        "with atomic.writing(sys.argv[1]): print(1, flush=True); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], stdout=subprocess.PIPE, check=False)
    assert (tmp_path / ".m.clb.lock").exists()
    container.write(path, {}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


def test__writing__lock_that_is_a_link__is_refused_and_its_target_stays(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("something dear")
    (tmp_path / ".m.clb.lock").symlink_to(victim)
    with pytest.raises(InputError, match=r"\.m\.clb\.lock is a symbolic link"):
        container.write(tmp_path / "m.clb", {}, {})
    assert victim.read_text() == "something dear"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".m.clb.lock", "victim"]


def test__writing__lock_file_removed_while_it_is_being_locked__is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock, calls = tmp_path / "m.clb", atomic.fcntl.flock, []

    def after_the_last_holder_left(descriptor: int, operation: int) -> None:
        if not calls:
            (tmp_path / ".m.clb.lock").unlink()
        calls.append(operation)
        flock(descriptor, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", after_the_last_holder_left)
    with atomic.writing(path), pytest.raises(LockedFileError):
        container.write(path, {}, {})
    assert len(calls) == 3


def test__writing__eight_threads_at_once__never_two_in_and_a_whole_file(tmp_path: Path) -> None:
    path, inside, worst, done = tmp_path / "m.clb", [], [], []

    def work(number: int) -> None:
        for _ in range(25):
            try:
                with atomic.writing(path) as target:
                    inside.append(number)
                    worst.append(len(inside))
                    container.write(target, {"by": number}, tensors())
                    inside.remove(number)
                    done.append(number)
            except LockedFileError:
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(worst) == 1
    assert container.read(path)[0] == {"by": done[-1]}
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "parent"])
def test__writing__place_that_cannot_be_replaced__is_an_input_error(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "m.clb"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "no" / "m.clb"
    with pytest.raises(InputError, match=r"is a folder|not a regular file|there is no folder"):
        container.write(path, {}, {})


def test__replace__error_or_interruption_while_writing__leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.clb"
    path.write_bytes(b"old")
    for error in (KeyboardInterrupt(), ValueError("x"), OSError(errno.EIO, "Input/output error")):

        def fail(file: Any, error: BaseException = error) -> None:
            file.write(b"new")
            raise error

        expected = ModelFileError if isinstance(error, OSError) else type(error)
        with atomic.writing(path) as target, pytest.raises(expected):
            target.replace(fail)
        assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.clb"]
