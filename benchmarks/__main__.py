"""``python -m benchmarks NAME --data DIR``: run experiments, write JSON, make the tables."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import bulk, outliers, report, runner, scale, trust
from benchmarks.experiments import EXPERIMENTS
from benchmarks.methods import METHODS
from benchmarks.speed import command

NAMES = (*EXPERIMENTS, *runner.DATA_OF)
FIXED = ("cifar100", "mnist")
"""Experiments whose data are the same for every seed."""


def seeds_of(text: str) -> list[int]:
    """``0-4`` or ``0,2,5`` as a list of whole numbers."""
    seeds: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not low.isdigit() or (high and not high.isdigit()):
            raise argparse.ArgumentTypeError(f"seeds must look like 0-4 or 0,2,5, got {text!r}")
        seeds += range(int(low), int(high or low) + 1)
    return seeds


def names_of(text: str) -> list[str]:
    """Comma-separated experiments, ``all`` of them, or ``report``."""
    names = list(NAMES) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in NAMES and text != "report"]
    if unknown:
        known = ", ".join([*NAMES, "all", "report"])
        raise argparse.ArgumentTypeError(f"unknown experiment {unknown[0]!r}; known: {known}")
    return names


def methods_of(text: str) -> list[str]:
    """Comma-separated method names, each known."""
    names = text.split(",")
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        known = ", ".join(METHODS)
        raise argparse.ArgumentTypeError(f"unknown method {unknown[0]!r}; known: {known}")
    return names


def positive(text: str) -> int:
    """A whole number from one."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("name", type=names_of, nargs="?", default="all", help="such as pancan,ici")
    made.add_argument("--data", type=Path, help="folder of the data files; made data without it")
    made.add_argument("--seeds", type=seeds_of, default=[0, 1, 2, 3, 4], help="such as 0-4")
    made.add_argument("--device", default="cpu", help="cpu or cuda, for the trained methods")
    made.add_argument("--methods", type=methods_of, default=list(METHODS), help="such as lda,ewc")
    made.add_argument("--results", type=Path, help="where JSON goes instead of benchmarks/results")
    made.add_argument("--jobs", type=positive, default=1, help="runs at a time")
    made.add_argument("--seconds", type=positive, help="begin and run nothing after so long")
    made.add_argument("--missing", action="store_true", help="only what has no JSON yet")
    made.add_argument("--quick", action="store_true", help="a small form of everything, one seed")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 2 where the user has something to mend."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["speed"]:
        return command.main(words[1:])
    if words[:1] == ["trust"]:
        return trust.main(words[1:])
    if words[:1] == ["scale"]:
        return scale.main(words[1:])
    asked = parser().parse_args(words)
    if asked.name == ["report"]:
        report.write(asked.results or runner.RESULTS)
        return 0
    if asked.quick and asked.results is None:
        print("--quick makes no figures for the tables; nothing is written", file=sys.stderr)
    folder = asked.results or (None if asked.quick else runner.RESULTS)
    found = orders(asked)
    if asked.missing and folder is not None:
        found = bulk.missing(found, folder)
    return bulk.run_and_tell(found, asked.jobs, folder, asked.seconds or math.inf)


def orders(asked: argparse.Namespace) -> list[runner.Order]:
    """Every run asked for; methods and data without randomness run for the first seed only.

    First comes the first seed of everything, then the seeds that draw new splits of the data,
    then those that only train anew; among these the methods and experiments as they were named.
    """
    found = []
    for place, (method, name) in enumerate(itertools.product(asked.methods, asked.name)):
        spec = METHODS[method]
        data = runner.DATA_OF.get(name, name)
        if not spec.applies("cost" if name == "cost" else data):
            continue
        if name in outliers.FOUND_IN and not spec.density:
            continue
        fixed = data in FIXED
        seeds = asked.seeds[:1] if asked.quick or (fixed and not spec.seeded) else asked.seeds
        device = asked.device if spec.device else "cpu"
        for number, seed in enumerate(seeds):
            order = runner.Order(name, method, seed, asked.data, asked.quick, device, asked.jobs)
            found.append(((fixed and number > 0, number, place), order))
    return [order for _, order in sorted(found, key=lambda pair: pair[0])]


if __name__ == "__main__":
    sys.exit(main())
