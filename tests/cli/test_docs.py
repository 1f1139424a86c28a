"""Every block of code in the documentation and in the README runs as it stands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN = ("python", "sh")
SET_UP = re.compile(r"pip install|^make ")
"""Commands that change the machine; a fresh copy of the repository tries them."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of the blocks of a page, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test__docs__every_block__is_in_a_language_that_is_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert text.count("\n```") + text.startswith("```") == 2 * len(blocks(page))
    assert {language for language, _ in blocks(page)} <= set(RUN)


@pytest.mark.parametrize("page", WITH_CODE, ids=names(WITH_CODE))
def test__docs__code_of_a_page__runs_from_top_to_bottom(
    page: Path, clbruno: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, Any] = {"__name__": "page"}

    for language, content in blocks(page):
        if "torchrun" in content:
            continue  # tests/distributed/test_readme.py runs it, and looks at what it has made
        if language == "python":
            exec(compile(content, f"{page.name}", "exec"), namespace)
        else:
            for line in content.strip().splitlines():
                run(line, clbruno, tmp_path)


def run(line: str, clbruno: Any, folder: Path) -> None:
    """Run one line of a shell; the program itself in the process that has it loaded."""
    if SET_UP.search(line):
        return
    if line.startswith("clbruno "):
        ended = clbruno(*shlex.split(line)[1:], cwd=folder)
        assert ended.code == 0, ended.err
        return
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-e", "-c", line], cwd=folder, env={**os.environ, "PATH": programs}, check=True
    )
