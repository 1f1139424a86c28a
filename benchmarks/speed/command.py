"""``python -m benchmarks speed``: every row of the table of speed, or some of them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch

from benchmarks import machine
from benchmarks.runner import RESULTS
from benchmarks.speed.clock import Options

ROWS = ("likelihood", "flows", "steps", "predict", "growth", "first", "memory", "starting")


def names_of(text: str) -> list[str]:
    """Comma-separated groups of rows, each known."""
    names = text.split(",")
    unknown = [name for name in names if name not in (*ROWS, "gpu")]
    if unknown:
        known = ", ".join((*ROWS, "gpu"))
        raise argparse.ArgumentTypeError(f"unknown rows {unknown[0]!r}; known: {known}")
    return names


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(prog="python -m benchmarks speed", description=__doc__)
    made.add_argument("--only", type=names_of, default=list(ROWS), help="such as flows,memory; gpu")
    made.add_argument("--data", type=Path, help="folder of the data files; made data without it")
    made.add_argument("--device", default="cpu", help="cpu or cuda, of the rows named gpu")
    made.add_argument("--threads", type=int, default=1, help="of both sides")
    made.add_argument("--repeats", type=int, default=5, help="of both sides")
    made.add_argument("--results", type=Path, default=RESULTS / "speed", help="where JSON goes")
    made.add_argument("--quick", action="store_true", help="a small form of the rows named gpu")
    return made


def main(arguments: Sequence[str]) -> int:
    """Measure what the command line asks for."""
    asked = parser().parse_args(arguments)
    if asked.only == ["gpu"]:
        from benchmarks.speed import gpu

        return gpu.main(asked.data, asked.device, asked.results, asked.quick)
    torch.set_num_threads(asked.threads)
    options = Options(asked.threads, asked.repeats, asked.data)
    asked.results.mkdir(parents=True, exist_ok=True)
    for name in asked.only:
        rows = import_module(f"benchmarks.speed.{name}").rows(options)
        record = {
            "experiment": "speed",
            "method": name,
            "quick": False,
            "made_data": False,
            "rows": [dataclasses.asdict(row) | {"reached": row.reached} for row in rows],
            "threads": asked.threads,
            "repeats": asked.repeats,
            "versions": machine.versions(),
            "hardware": machine.hardware("cpu"),
            "command": f"python -m benchmarks speed --only {name} --threads {asked.threads}"
            + f" --repeats {asked.repeats}"
            + (" --data DIR" if asked.data else ""),
        }
        text = json.dumps(record, indent=1) + "\n"
        (asked.results / f"{name}.json").write_text(text, encoding="utf-8")
        for row in rows:
            print(f"{row.what}: {row.value:.3g}{row.unit}, mark {row.mark:g}", file=sys.stdout)
    return 0
