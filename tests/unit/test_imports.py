"""Who imports whom, and what an import does to the process: nothing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clbruno

PACKAGE = Path(clbruno.__file__).resolve().parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = ("clbruno", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """Absolute names of everything that a module imports, anywhere in it."""
    found: set[str] = set()
    inside = name_of(path).split(".")[: None if path.name == "__init__.py" else -1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found.update({source, *(f"{source}.{alias.name}" for alias in node.names)})
    return found


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ("clbruno.core", "clbruno.learn"),
        ("clbruno.core", "clbruno.estimator"),
        ("clbruno.core", "clbruno.persist"),
        ("clbruno.learn", "clbruno.estimator"),
        ("clbruno.learn", "clbruno.persist"),
    ],
)
def test__layers__inner__never_imports_the_outer(inner: str, outer: str) -> None:
    checked = [path for path in MODULES if is_within(name_of(path), inner)]

    assert len(checked) > 1
    for path in checked:
        wrong = [name for name in imported(path) if is_within(name, outer)]
        assert not wrong, f"{name_of(path)} imports {wrong}"


def test__layers__cli__is_imported_by_itself_alone() -> None:
    for path in MODULES:
        if not is_within(name_of(path), "clbruno.cli") and path.name != "__main__.py":
            wrong = [name for name in imported(path) if is_within(name, "clbruno.cli")]
            assert not wrong, f"{name_of(path)} imports {wrong}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test__module__any__uses_no_way_to_run_what_a_file_says(path: Path) -> None:
    banned = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
    tree = ast.parse(path.read_text(encoding="utf-8"))

    names = {name.split(".")[0] for name in imported(path)}
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    attributes = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    pickles = [
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
    ]

    assert not names & banned
    assert set(pickles) <= {"False"}
    assert not calls & {"eval", "exec", "compile", "__import__", "print"}
    assert not attributes & {"torch.load", "torch.save", "np.load", "numpy.load"}


def in_a_fresh_interpreter(code: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr


GLOBAL_STATE = """
import logging, random, signal, sys, warnings
import numpy, sklearn, torch
import rich.progress  # draws from the random module when it is imported

def state():
    return {
        "torch generator": torch.random.get_rng_state().tolist(),
        "numpy generator": repr(numpy.random.get_state()),
        "python generator": random.getstate(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "validation": torch.distributions.Distribution._validate_args,
        "matmul precision": torch.get_float32_matmul_precision(),
        "tensor printing": repr(vars(torch._tensor_str.PRINT_OPTS)),
        "numpy printing": repr(numpy.get_printoptions()),
        "numpy errors": numpy.geterr(),
        "sklearn": sklearn.get_config(),
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, list(logging.root.handlers)),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": (sys.excepthook, sys.displayhook),
    }

before = state()
import clbruno
clbruno.CLBrunoClassifier
after = state()
changed = [name for name in before if before[name] != after[name]]
assert not changed, changed
"""


def test__import__fresh_interpreter__changes_no_global_state() -> None:
    in_a_fresh_interpreter(GLOBAL_STATE)


NO_TRACE = """
import os, sys
import numpy, scipy.linalg, scipy.stats, sklearn.base, sklearn.utils.validation, torch
import safetensors.torch

seen = []

def hook(event, arguments):
    if event.startswith("socket.") or event in {
        "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink",
        "os.putenv", "os.unsetenv", "subprocess.Popen", "os.system", "os.fork", "urllib.Request",
    }:
        seen.append((event, arguments))
    if event == "open":
        path, mode, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            seen.append((event, arguments))

sys.addaudithook(hook)
import clbruno
clbruno.CLBrunoClassifier
import clbruno.persist, clbruno.checks
assert not seen, seen
"""


def test__import__fresh_interpreter__opens_no_socket_and_writes_no_file() -> None:
    in_a_fresh_interpreter(NO_TRACE)


CLI = """
import sys
import clbruno.cli
clbruno.cli.main
heavy = sorted({"torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy"} & set(sys.modules))
assert not heavy, heavy
"""


def test__import__cli__leaves_torch_and_the_rest_alone() -> None:
    in_a_fresh_interpreter(CLI)
