"""Many runs: one after the other or several at a time; a run that fails stops no other."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from benchmarks import runner
from benchmarks.data import DataError
from benchmarks.report import TABLES
from benchmarks.runner import Order


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its main figure, or what went wrong."""

    order: Order
    figure: float | None
    seconds: float
    error: str = ""
    users: bool = False

    @property
    def line(self) -> str:
        """One line for the screen."""
        head = f"{self.order.experiment} {self.order.method} seed {self.order.seed}"
        if self.error:
            return f"error: {head}: {self.error}"
        return f"{head}: {main_figure(self.order)} {self.figure:.4f} ({self.seconds:.0f} s)"


def main_figure(order: Order) -> str:
    """The figure that stands first in the table of the run's experiment."""
    return TABLES[order.experiment].columns[0][0]


def attempt(order: Order, folder: Path | None) -> Outcome:
    """Run, write the record where there is a folder, and never raise."""
    began = time.perf_counter()
    try:
        record = runner.run(order)
        if folder is not None:
            runner.save(record, folder)
        figure = record["figures"][main_figure(order)]
        return Outcome(order, figure, time.perf_counter() - began)
    except DataError as error:
        return Outcome(order, None, time.perf_counter() - began, str(error), users=True)
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        return Outcome(order, None, time.perf_counter() - began, text)


def run_all(orders: list[Order], jobs: int, folder: Path | None) -> Iterator[Outcome]:
    """The outcomes as they come, ``jobs`` at a time, each in a process of its own from two on."""
    if jobs == 1:
        yield from (attempt(order, folder) for order in orders)
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        pending = {pool.submit(attempt, order, folder): order for order in orders}
        for done in as_completed(pending):
            yield _outcome(done, pending[done])


def _outcome(done: Future[Outcome], order: Order) -> Outcome:
    try:
        return done.result()
    except BrokenProcessPool:
        text = "a process was killed, most likely for memory; repeat with --missing and fewer jobs"
        return Outcome(order, None, 0.0, text)


def missing(orders: list[Order], folder: Path) -> list[Order]:
    """The orders that have no record in the folder yet."""

    def done(order: Order) -> Path:
        return folder / runner.file_name(order.experiment, order.method, order.seed)

    return [order for order in orders if not done(order).is_file()]


def summary(outcomes: list[Outcome]) -> list[str]:
    """Per experiment and method: how many seeds, the main figure, seconds, and what failed."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.order.experiment, outcome.order.method), []).append(outcome)
    lines = [f"{'experiment':18}{'method':20}{'done':>5}{'failed':>7}  {'figure':42}{'s a run':>8}"]
    for (experiment, method), runs in sorted(groups.items()):
        good = [run.figure for run in runs if run.figure is not None]
        words = f"{statistics.fmean(good):.4f} {main_figure(runs[0].order)}" if good else "-"
        seconds = statistics.fmean(run.seconds for run in runs)
        lines.append(
            f"{experiment:18}{method:20}{len(good):5}{len(runs) - len(good):7}  {words:42}"
            f"{seconds:8.0f}"
        )
    return lines


def run_and_tell(orders: list[Order], jobs: int, folder: Path | None) -> int:
    """Run everything, a line for each, then the summary; 2 for the user's mistakes, 1 for ours."""
    outcomes = []
    for outcome in run_all(orders, jobs, folder):
        outcomes.append(outcome)
        print(outcome.line, file=sys.stderr if outcome.error else sys.stdout, flush=True)
    if len(outcomes) > 1:
        print("\n".join(["", *summary(outcomes)]), flush=True)
    failed = [outcome for outcome in outcomes if outcome.error]
    return (2 if any(outcome.users for outcome in failed) else 1) if failed else 0
