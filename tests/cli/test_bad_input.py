"""Bad input to every command: one line that says what, where and what to do; exit code 2."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest

HEADER = "diagnosis,g0,g1,g2,g3\n"
NOBODY = 65534


def table(*lines: str, header: str = HEADER) -> bytes:
    """A CSV file with a few good rows before the given ones."""
    good = "".join(f"LUAD,{at},1,2,3\nLUSC,{at},5,6,7\n" for at in range(5))
    return (header + good + "".join(lines)).encode()


# What the file holds, what is added to the command, and what the error says.
TABLES: dict[str, tuple[bytes, tuple[str, ...], str]] = {
    "empty": (b"", (), "is empty"),
    "only blank lines": (b"\n\n\n", (), "is empty"),
    "only a header": (HEADER.encode(), (), "no row of data"),
    "binary junk": (bytes(range(256)) * 20, (), "not text in UTF-8"),
    "zeros": (bytes(5000), (), "not a table in text form"),
    "UTF-16": (table().decode().encode("utf-16"), (), "not text in UTF-8"),
    "Latin-1": (table("Zürich,1,2,3,4\n").decode().encode("latin-1"), (), "not text in UTF-8"),
    "a line without an end": (
        HEADER.encode() + b"1" * (2**24 + 9),
        (),
        "a line of over 16,777,216",
    ),
    "a header without an end": (b"diagnosis," * 2**21, (), "a line of over 16,777,216"),
    "a bomb of one line": (gzip.compress(bytes(2**28), 1), (), "a line of over 16,777,216"),
    "cut gzip": (gzip.compress(table() * 100)[:60], (), "damaged gzip"),
    "gzip with a changed byte": (gzip.compress(table())[:-6] + b"\0" * 6, (), "damaged gzip"),
    "no header": (
        table(header="").replace(b"LUAD", b"1").replace(b"LUSC", b"2"),
        (),
        "numbers only",
    ),
    "label column missing": (
        table(header="x,g0,g1,g2,g3\n"),
        (),
        "no column 'diagnosis'; it has 'x'",
    ),
    "column twice": (table(header="diagnosis,g0,g0,g2,g3\n"), (), "'g0' stands in the header more"),
    "ragged row": (table("LUAD,1,2\n"), (), "line 12 has 3 cells, and the header has 5"),
    "long row": (table("LUAD,1,2,3,4,5\n"), (), "line 12 has 6 cells"),
    "text in a feature": (table("LUAD,1,x,3,4\n"), (), "row 11 (line 12), column 'g1' holds 'x'"),
    "empty cell": (table("LUAD,1,,3,4\n"), (), "row 11 (line 12), column 'g1' is empty"),
    "NaN": (table("LUAD,1,nan,3,4\n"), (), "row 11 (line 12), column 'g1' holds nan"),
    "infinity": (table("LUAD,1,-inf,3,4\n"), (), "row 11 (line 12), column 'g1' holds -inf"),
    "decimal comma": (table('LUAD,"1,5",2,3,4\n'), (), "column 'g0' holds '1,5'; write decimals"),
    "underscore": (table("LUAD,1_0,2,3,4\n"), (), "column 'g0' holds '1_0', which is not"),
    "empty label": (table(" ,1,2,3,4\n"), (), "row 11 (line 12): column 'diagnosis' is empty"),
    "open quote": (table('"LUAD,1,2,3,4\n'), (), "line 12: unexpected end of data; is a quotation"),
    "cell after a quoted newline": (
        table('"LU\nAD",1,2,3,4\nLUAD,1,2,3,?\n'),
        (),
        "row 12 (line 14), column 'g3' holds '?'",
    ),
    "cell after blank lines": (
        table("\n", "\r\n", "LUAD,1,2,3,?\n"),
        (),
        "row 11 (line 14), column 'g3' holds '?'",
    ),
    "column to ignore missing": (table(), ("--ignore", "age"), "no column 'age'"),
    "task column missing": (table(), ("--task-column", "site"), "no column 'site'"),
    "all columns ignored": (
        table(),
        ("--ignore", "g0", "--ignore", "g1", "--ignore", "g2", "--ignore", "g3"),
        "no column is left to serve as a feature",
    ),
    "feature missing": (table(), ("--ignore", "g3"), "missing: 'g3'"),
    "feature too many": (
        table(header="diagnosis,g0,g1,g2,age\n"),
        (),
        "missing: 'g3'; not learned from: 'age'",
    ),
    "one row": (
        b"diagnosis,g0,g1,g2,g3\nLUAD,1,2,3,4\n",
        ("--task", "X"),
        "fewer than 5 samples: 'LUAD' (1)",
    ),
    "two tasks": (table(), ("--task", "a", "--task-column", "b"), "not both"),
    "labels as tasks": (table(), ("--task-column", "diagnosis"), "'diagnosis' holds the labels"),
    "labels ignored": (table(), ("--ignore", "diagnosis"), "'diagnosis' holds the labels"),
    "task without a name": (table(), ("--task", ""), "the name of the task is empty"),
    "settings of an old model": (table(), ("--set", "max_epochs=2"), "--set are for a new model"),
    "recipe of an old model": (table(), ("--recipe", "paper"), "are for a new model"),
    "unknown device": (table(), ("--device", "abacus"), "device 'abacus' cannot be used"),
    "validation file missing": (
        table(),
        ("--validation", "none.csv"),
        "none.csv: there is no such",
    ),
}


def _clean(ended: Any, message: str) -> None:
    """One error without a traceback."""
    assert ended.code == 2, ended.err
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert ended.err.startswith(("Error: ", "Usage: "))
    assert ended.out == ""


@pytest.mark.parametrize("name", list(TABLES))
def test__learn__bad_table__is_a_clean_error_and_the_model_stays(
    clbruno: Any, world: Any, tmp_path: Path, name: str
) -> None:
    content, more, message = TABLES[name]
    model, data = world.copy(tmp_path), tmp_path / "bad.csv"
    data.write_bytes(content)
    _clean(clbruno("learn", model, data, "--label", "diagnosis", *more, cwd=tmp_path), message)
    assert model.read_bytes() == world.model.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "m.clb"]
    # The same with a new model: nothing is left behind.
    if not any(word in message for word in ("new model", "missing: ")):
        _clean(
            clbruno("learn", "new.clb", data, "--label", "diagnosis", *more, cwd=tmp_path), message
        )
        assert not (tmp_path / "new.clb").exists()


ABOUT_LABELS = ("empty label", "label column missing", "one row", "feature too many")


@pytest.mark.parametrize(
    "name", [name for name, (_, more, _) in TABLES.items() if not more and name not in ABOUT_LABELS]
)
def test__predict__bad_table__is_a_clean_error_and_leaves_no_output(
    clbruno: Any, world: Any, tmp_path: Path, name: str
) -> None:
    content, _, message = TABLES[name]
    data = tmp_path / "bad.csv"
    data.write_bytes(content)
    command = ("predict", world.model, data, "--id", "diagnosis", "-o", tmp_path / "out.csv")
    _clean(clbruno(*command), message)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


GOOD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "BOM": (lambda data: b"\xef\xbb\xbf" + data, ""),
    "Windows line ends": (lambda data: data.replace(b"\n", b"\r\n"), ""),
    "old Macintosh line ends": (lambda data: data.replace(b"\n", b"\r"), ""),
    "semicolons": (lambda data: data.replace(b",", b";"), ""),
    "tabs in a .csv": (lambda data: data.replace(b",", b"\t"), ""),
    "blank lines": (lambda data: data.replace(b"\n", b"\n\n"), ""),
    "no line end at the end": (lambda data: data.rstrip(b"\n"), ""),
    "spaces around cells": (lambda data: data.replace(b",", b" , "), ""),
    "quotes": (lambda data: data.replace(b"diagnosis", b'"diagnosis"'), ""),
    "gzip without the suffix": (gzip.compress, ""),
}


@pytest.mark.parametrize("name", list(GOOD))
def test__predict__odd_but_good_table__is_read_like_the_plain_one(
    clbruno: Any, world: Any, tmp_path: Path, name: str
) -> None:
    data = tmp_path / "odd.csv"
    data.write_bytes(GOOD[name][0](world.boston.read_bytes()))
    expected = clbruno("predict", world.model, world.boston, "--id", "diagnosis")
    ended = clbruno("predict", world.model, data, "--id", "diagnosis")
    assert ended.code == 0, ended.err
    assert ended.out == expected.out


def test__learn__label_with_a_newline__is_kept(clbruno: Any, tmp_path: Path) -> None:
    content = table(*['"two\nlines",9,9,9,9\n'] * 5)
    (tmp_path / "d.csv").write_bytes(content)
    command = ("learn", "m.clb", "d.csv", "--label", "diagnosis", "--set", "max_epochs=1")
    assert clbruno(*command, cwd=tmp_path).code == 0
    labels = clbruno("inspect", "m.clb", "--json", cwd=tmp_path).json()["labels"]
    assert labels == ["LUAD", "LUSC", "two\nlines"]


READING = ("predict", "sample", "inspect", "log", "verify", "forget", "learn")


def _command(name: str, model: Any, data: Path) -> tuple[Any, ...]:
    more = {
        "predict": (data,),
        "learn": (data, "--label", "diagnosis"),
        "forget": ("--label", "LUSC"),
    }.get(name, ())
    return (name, model, *more)


@pytest.mark.parametrize("name", READING)
def test__every_command__model_that_is_none__is_a_clean_error(
    clbruno: Any, world: Any, tmp_path: Path, name: str
) -> None:
    junk, folder, pipe = tmp_path / "junk.clb", tmp_path / "folder.clb", tmp_path / "pipe.clb"
    junk.write_bytes(os.urandom(5000))
    folder.mkdir()
    os.mkfifo(pipe)
    cut = tmp_path / "cut.clb"
    cut.write_bytes(world.model.read_bytes()[:-1])
    cases: list[tuple[Any, str]] = [
        (junk, "not a clbruno model file"),
        (cut, "it was cut off"),
        (folder, "is a folder"),
        (pipe, "pipe"),
        (world.boston, "not a clbruno model file"),
    ]
    if name != "learn":
        cases.append((tmp_path / "none.clb", "there is no such file"))
    for model, message in cases:
        ended = clbruno(*_command(name, model, world.new))
        assert ended.code == 2, ended.err
        assert ended.err.startswith("Error: ")
        assert message in ended.err or "not a regular file" in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "m.clb", "none.csv"), "none.csv: there is no such file"),
        (("predict", "m.clb", "folder.csv"), "folder.csv is a folder without a Parquet file"),
        (("predict", "m.clb", "d.xlsx"), "unknown format '.xlsx'; known are .csv"),
        (("predict", "m.clb", "junk.parquet"), "not a readable Parquet file"),
        (("predict", "m.clb", "junk.npz"), "not a readable NPZ file"),
        (("predict", "m.clb", "junk.h5ad"), "not a readable h5ad file"),
        (("predict", "m.clb", "none.parquet"), "there is no such file"),
        (("predict", "m.clb", "none.npz"), "there is no such file"),
        (("predict", "m.clb", "none.h5ad"), "there is no such file"),
        (("predict", "m.clb", "object.npz"), "X must be a matrix of numbers; it is object"),
        (("predict", "m.clb", "vector.npz"), "X must be a matrix of numbers"),
        (("predict", "m.clb", "other.npz"), "there is no array 'X'; it has ['y']"),
        (("predict", "m.clb", "wide.npz"), "5 features"),
        (("predict", "m.clb", "good.npz", "--ignore", "g5"), "good.npz: there is no column 'g5'"),
        (("predict", "m.clb", "good.h5ad", "--ignore", "g5"), "good.h5ad: there is no column 'g5'"),
        (("predict", "m.clb", "good.npz", "--task", "Oslo"), "unknown task 'Oslo'"),
        (("predict", "m.clb", "good.csv", "--id", "none"), "no column 'none'"),
        (("predict", "m.clb", "good.csv", "-o", "out.doc"), "unknown output format"),
        (("predict", "m.clb", "good.csv", "-o", "none/out.csv"), "there is no folder"),
        (("predict", "m.clb", "good.csv", "-o", "folder.csv"), "is a folder"),
        (("sample", "m.clb", "--label", "none"), "unknown label 'none'"),
        (("sample", "m.clb", "--task", "none"), "unknown task 'none'"),
        (("sample", "m.clb", "-n", "0"), "Invalid value for '-n'"),
        (("sample", "m.clb", "-o", "out.xyz"), "unknown output format"),
        (("forget", "m.clb"), "say what to forget"),
        (("forget", "m.clb", "--label", "none"), "unknown label 'none'"),
        (("forget", "m.clb", "--task", "Boston"), "nothing would be left"),
        (("learn", "none/m.clb", "good.csv", "--label", "y"), "there is no folder"),
        (("learn", "new.clb", "good.csv", "--label", "y", "--set", "gold=1"), "--set gold=1"),
        (("learn", "new.clb", "good.csv", "--label", "y", "--recipe", "gold"), "unknown recipe"),
        (("learn", "new.clb", "good.csv", "--label", "y", "--max-drop", "2"), "--max-drop"),
        (("learn", "new.clb", "good.csv"), "Missing option '--label'"),
        (("unlearn", "m.clb"), "No such command 'unlearn'"),
        (("predict", "m.clb"), "Missing argument 'DATA'"),
    ],
)
def test__command__bad_argument__is_a_clean_error(
    clbruno: Any, world: Any, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    world.copy(tmp_path)
    (tmp_path / "good.csv").write_bytes(world.new.read_bytes().replace(b"patient", b"g4"))
    (tmp_path / "folder.csv").mkdir()
    for name in ("d.xlsx", "junk.parquet", "junk.npz", "junk.h5ad"):
        (tmp_path / name).write_bytes(os.urandom(3000))
    np.savez(tmp_path / "object.npz", X=np.array([[{}]], dtype=object))
    np.savez(tmp_path / "vector.npz", X=np.zeros(4))
    np.savez(tmp_path / "other.npz", y=np.zeros(4))
    np.savez(tmp_path / "wide.npz", X=np.zeros((2, 5)))
    names = [f"g{at}" for at in range(4)]
    np.savez(tmp_path / "good.npz", X=np.zeros((2, 4)), feature_names=names)
    data = anndata.AnnData(np.zeros((2, 4)))
    data.var_names = names
    data.write_h5ad(tmp_path / "good.h5ad")
    before = {path.name for path in tmp_path.iterdir()}
    ended = clbruno(*arguments, cwd=tmp_path)
    assert ended.code == 2, ended.err
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "m.clb").read_bytes() == world.model.read_bytes()


def test__predict__error_in_a_late_chunk__keeps_the_old_output(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    header, *lines = world.new.read_text().splitlines()
    data, out = tmp_path / "long.csv", tmp_path / "out.csv"
    data.write_text("\n".join([header, *lines * 8000, "p,1,2,3,x"]) + "\n")
    out.write_text("old")
    ended = clbruno("predict", world.model, data, "--id", "patient", "-o", out)
    _clean(ended, "row 240001 (line 240002), column 'g3' holds 'x'")
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.csv", "out.csv"]


@pytest.mark.skipif(os.getuid() != 0, reason="another user is needed, and only root can be one")
def test__learn__no_permission__is_a_clean_error(clbruno: Any, world: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, data = world.copy(folder), folder / "d.csv"
        data.write_bytes(world.oslo.read_bytes())
        command = ("learn", model, data, "--label", "diagnosis", "--task", "Oslo")
        folder.chmod(0o755)
        model.chmod(0o666)
        _clean(clbruno(*command, user=NOBODY), "no permission to write in")
        folder.chmod(0o777)
        model.chmod(0o444)
        _clean(clbruno(*command, user=NOBODY), "no permission to write it")
        model.chmod(0o600)
        _clean(clbruno("predict", model, data, user=NOBODY), "no permission to read it")
        model.chmod(0o644)
        data.chmod(0o600)
        _clean(clbruno("predict", model, data, user=NOBODY), "no permission to read it")
        assert model.read_bytes() == world.model.read_bytes()
        assert sorted(path.name for path in folder.iterdir()) == ["d.csv", "m.clb"]


def test__debug__error__shows_where(clbruno: Any, world: Any) -> None:
    ended = clbruno("predict", world.model, "none.csv", "--debug")
    assert ended.code == 2
    assert "Traceback (most recent call last)" in ended.err
    assert "InputError" in ended.err


def test__unforeseen_error__ends_with_code_1_and_a_hint(tmp_path: Path) -> None:
    script = (
        "import sys, clbruno.cli.showing as showing; from clbruno.cli import main\n"
        "def broken(**_): raise RuntimeError('a bug')\n"
        "showing.verify = broken; sys.argv = ['clbruno', 'verify', 'm.clb']; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr == (
        "Unforeseen error: RuntimeError: a bug; run it again with --debug to see where\n"
    )


def test__installed__bad_input__is_a_clean_error(
    installed: Any, world: Any, tmp_path: Path
) -> None:
    _clean(installed("predict", world.model, tmp_path / "none.csv"), "there is no such file")
