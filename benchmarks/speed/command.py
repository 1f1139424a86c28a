"""``python -m benchmarks speed``: every row of the table of speed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runner import RESULTS


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    made.add_argument("--only", default="gpu", help="gpu")
    made.add_argument("--data", type=Path, help="folder of the data files; made data without it")
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--results", type=Path, default=RESULTS / "speed", help="where JSON goes")
    made.add_argument("--quick", action="store_true", help="a small form")
    return made


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for."""
    asked = parser().parse_args(arguments)
    from benchmarks.speed import gpu

    return gpu.main(asked.data, asked.device, asked.results, asked.quick)
