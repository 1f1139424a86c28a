"""The README's section for more than one machine, run as it is written on a local cluster."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clbruno import load

ROOT = Path(__file__).resolve().parents[2]
SECTION = "## When one machine is not enough"


def commands() -> list[str]:
    """The lines of the section's shell block."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split(SECTION)[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block.group(1).strip().splitlines()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after all commands but the installation, which `make test` has done."""
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(ROOT / "examples", folder / "examples")
    install, *lines = commands()
    assert install == "pip install -c constraints.txt '.[parquet,ray]'"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    environment["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    for line in lines:
        ended = subprocess.run(
            ["bash", "-e", "-c", line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return folder


def test__readme__torchrun__learns_what_one_process_learns(cluster: Path) -> None:
    one, two = load(cluster / "start.clb"), load(cluster / "both.clb")

    assert sorted(zip(one.classes_, one.class_count_, strict=True)) == sorted(
        zip(two.classes_, two.class_count_, strict=True)
    )
    assert sorted(one.feature_names_in_) == sorted(two.feature_names_in_)
    answers = pd.concat(pd.read_parquet(path) for path in sorted((cluster / "new").iterdir()))
    x = answers.drop(columns="patient")
    order = [one.classes_.tolist().index(name) for name in two.classes_]
    np.testing.assert_allclose(two.predict_proba(x), one.predict_proba(x)[:, order], atol=0.2)


def test__readme__ray__answers_as_the_command_line_does(cluster: Path) -> None:
    subprocess.run(
        [
            *(str(Path(sys.executable).with_name("clbruno")), "predict", "rays.clb", "new"),
            *("--id", "patient", "-o", "told.parquet"),
        ],
        cwd=cluster,
        check=True,
        capture_output=True,
    )
    told = pd.read_parquet(cluster / "told.parquet").sort_values("patient", ignore_index=True)
    found = pd.read_parquet(cluster / "answers").sort_values("patient", ignore_index=True)

    assert len(found) == 119
    pd.testing.assert_frame_equal(found, told, check_dtype=False, rtol=1e-9, atol=1e-12)
    assert load(cluster / "rays.clb").class_count_.sum() == 450


def test__readme__merge__has_learned_at_both_sites(cluster: Path) -> None:
    model = load(cluster / "merged.clb")

    assert model.tasks_.tolist() == ["default", "Oslo", "Bergen"]
    assert model.class_count_.sum() == 450 + 90 + 90
