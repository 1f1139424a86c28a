"""The examples and the README's commands run as they stand, with no more than they ask for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
README = (ROOT / "README.md").read_text(encoding="utf-8")

NOT_INSTALLED = ("anndata", "hypothesis", "pandas", "polars", "pyarrow", "zuko")
"""What the extra `report` does not bring."""

ACCURACIES = {
    "anndata_example.py": (1, 0.99),
    "class_incremental.py": (4, 0.97),
    "multi_site.py": (2, 0.93),
    "task_incremental.py": (9, 0.97),
}
"""How many accuracies each example prints, and what each is at least."""


def run(folder: Path, *command: str, without: tuple[str, ...] = ()) -> str:
    """What a command prints in a folder, where some packages are not installed."""
    (folder / "missing").mkdir(exist_ok=True)
    for name in without:
        text = f"raise ModuleNotFoundError('there is no {name}', name='{name}')\n"
        (folder / "missing" / f"{name}.py").write_text(text)
    path = os.pathsep.join(filter(None, [str(folder / "missing"), os.environ.get("PYTHONPATH")]))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PATH": programs, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def block(language: str, containing: str) -> str:
    """The one block of code of the README that contains a text."""
    found = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    (one,) = [code for code in found if containing in code]
    return str(one)


def test__examples__all__are_named_by_a_test_and_short() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    tests += README  # whose commands the tests run
    files = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}

    assert [name for name in files if name.removesuffix(".py") not in tests] == []
    assert all(len(files[name].splitlines()) < 40 for name in ACCURACIES)


@pytest.mark.parametrize("name", ACCURACIES)
def test__example__run__is_as_accurate_as_it_should_be(name: str, tmp_path: Path) -> None:
    times, least = ACCURACIES[name]

    out = run(tmp_path, sys.executable, "-W", "error", str(EXAMPLES / name))

    found = [float(value) for value in re.findall(r"(?:accuracy:?|known|told) (\d\.\d+)", out)]
    assert len(found) == times
    assert min(found) >= least
    assert "False" not in out


def test__readme__python__runs_with_the_core_alone(tmp_path: Path) -> None:
    code = block("python", "partial_fit")

    run(
        tmp_path,
        sys.executable,
        "-W",
        "error",
        "-c",
        code,
        without=(*NOT_INSTALLED, "jinja2", "matplotlib"),
    )


def test__readme__five_commands__go_from_nothing_to_predictions(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    install, *commands = block("sh", "make_cohort").strip().splitlines()
    assert "pip install" in install
    assert len(commands) == 4

    for command in commands:
        run(tmp_path, "sh", "-c", command, without=NOT_INSTALLED)

    header, *rows = (tmp_path / "answers.csv").read_text(encoding="utf-8").splitlines()
    assert header == "patient,label,probability,task,task_probability,typicality"
    assert len(rows) == 119
    assert {row.split(",")[1] for row in rows} == {"malignant", "benign"}


def test__readme__first_commands__are_targets_of_the_makefile() -> None:
    first = re.findall(r"^    make (\w+)$", README.split("\n## ")[0], flags=re.MULTILINE)

    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert first == ["demo", "test"]
    assert set(first) <= set(targets)
