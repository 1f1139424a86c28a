"""The program, started for real or from a process that has it loaded, and tables to feed it."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(sys.executable).with_name("clbruno")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
FEATURES = [f"g{at}" for at in range(4)]
QUICK = ("--set", "max_epochs=1", "--set", "hidden=8")


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The standard output as one JSON document."""
        return json.loads(self.out)


class Server:
    """Runs of the program, each in a fork of one process that has imported everything."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process, self._folder = process, folder

    def __call__(
        self,
        *arguments: Any,
        cwd: Path | None = None,
        stdin: Path | str = os.devnull,
        limit: int | None = None,
        die_at: int | None = None,
        user: int | None = None,
        signal_after: float | None = None,
        number: int = signal.SIGKILL,
    ) -> Ended:
        """Run once; after `signal_after` seconds send the run a signal."""
        out, err = self._folder / "out", self._folder / "err"
        request = {
            "arguments": [str(part) for part in arguments],
            "cwd": str(cwd or self._folder),
            "stdin": str(stdin),
            "stdout": str(out),
            "stderr": str(err),
            "limit": limit,
            "die_at": die_at,
            "user": user,
            "signal_after": signal_after,
            "signal": number,
        }
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        assert self._process.stdout is not None
        code = int(self._process.stdout.readline())
        return Ended(code, out.read_text(), err.read_text())


@pytest.fixture(scope="session")
def clbruno(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The program, run again and again without loading torch each time."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with process:
        yield Server(process, tmp_path_factory.mktemp("server"))
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def installed() -> Callable[..., Ended]:
    """The program as it is installed, in a process of its own."""

    def run(*arguments: Any, **options: Any) -> Ended:
        ended = subprocess.run(
            [str(PROGRAM), *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT,
            **options,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


def table(labels: list[str], n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`n` rows of labels in turn, each label around its own mean."""
    rng = np.random.default_rng(seed)
    means = {"LUAD": 0.0, "LUSC": 4.0, "BRCA": 8.0, "KIRC": 12.0}
    y = np.array([labels[at % len(labels)] for at in range(n)])
    return rng.normal([[means[name]] for name in y], 1.0, (n, len(FEATURES))), y


def write_csv(path: Path, x: np.ndarray, columns: dict[str, Any], delimiter: str = ",") -> Path:
    """A CSV file with text columns first."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow([*columns, *FEATURES])
        writer.writerows(
            [*row[:-1], *row[-1]] for row in zip(*columns.values(), x.tolist(), strict=True)
        )
    return path


@dataclass(frozen=True)
class World:
    """A folder with the tables of a small study, and a model that learned the first."""

    folder: Path
    boston: Path
    oslo: Path
    new: Path
    model: Path

    def copy(self, folder: Path) -> Path:
        """The model, to be changed."""
        (folder / "m.clb").write_bytes(self.model.read_bytes())
        return folder / "m.clb"


@pytest.fixture(scope="session")
def world(clbruno: Server, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Boston has LUAD and LUSC, Oslo LUAD and BRCA, and `new` has no labels."""
    folder = tmp_path_factory.mktemp("world")
    paths = {}
    for name, labels, n in [("boston", ["LUAD", "LUSC"], 80), ("oslo", ["LUAD", "BRCA"], 60)]:
        x, y = table(labels, n, seed=len(paths))
        paths[name] = write_csv(folder / f"{name}.csv", x, {"diagnosis": y})
    x, _ = table(["LUAD", "LUSC", "BRCA"], 30, seed=9)
    paths["new"] = write_csv(folder / "new.csv", x, {"patient": [f"p{at}" for at in range(30)]})
    model = folder / "m.clb"
    ended = clbruno(
        "learn", model, paths["boston"], "--label", "diagnosis", "--task", "Boston", *QUICK
    )
    assert ended.code == 0, ended.err
    return World(folder, paths["boston"], paths["oslo"], paths["new"], model)
