"""What is installed: the wheel holds the templates and the marker for types."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test__wheel__built__holds_every_file_of_the_package(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)

    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "dist", "."],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )

    (wheel,) = (tmp_path / "dist").glob("*.whl")
    there = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.*")}
    wanted = {name for name in there if "__pycache__" not in name and ".egg-info" not in name}
    assert {"clbruno/report/templates/report.html", "clbruno/py.typed"} <= wanted
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
