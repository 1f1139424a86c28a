"""Many runs: one after the other or several at a time; a run that fails stops no other."""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from benchmarks import runner
from benchmarks.data import DataError
from benchmarks.report import TABLES
from benchmarks.runner import Order


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its main figure, or what went wrong, or that there was no time for it."""

    order: Order
    figure: float | None
    seconds: float
    error: str = ""
    users: bool = False
    left: bool = False
    trace: str = ""

    @property
    def line(self) -> str:
        """One line for the screen."""
        head = f"{self.order.experiment} {self.order.method} seed {self.order.seed}"
        if self.error:
            return f"error: {head}: {self.error}"
        if self.left:
            return f"{head}: no time left"
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
        text, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
        return Outcome(order, None, time.perf_counter() - began, text, trace=trace)


def run_all(
    orders: list[Order], jobs: int, folder: Path | None, seconds: float = math.inf
) -> Iterator[Outcome]:
    """The outcomes as they come, ``jobs`` at a time, each in a process of its own from two on.

    When the seconds are over, what still runs is ended and what waits is not begun.
    """
    if jobs == 1 and seconds == math.inf:
        yield from (attempt(order, folder) for order in orders)
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    until, waiting = time.monotonic() + seconds, deque(orders)
    workers = [Worker(folder) for _ in orders[:jobs]]
    try:
        for worker in workers:
            worker.take(waiting)
        while busy := {worker.line: worker for worker in workers if worker.order}:
            ready = wait(list(busy), None if seconds == math.inf else until - time.monotonic())
            if not ready:
                break
            for worker in [busy[line] for line in busy if line in ready]:
                yield worker.outcome()
                worker.take(waiting)
        left = [worker.order for worker in workers if worker.order] + list(waiting)
    finally:
        for worker in workers:
            worker.end()
    yield from (Outcome(order, None, 0.0, left=True) for order in left)


class Worker:
    """A process that runs one order after the other, and a new one when a run has failed.

    After an error on a GPU no more can be computed in that process.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.order: Order | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.folder), daemon=True)
        self.process.start()
        theirs.close()

    def take(self, waiting: deque[Order]) -> None:
        """Begin the next order, if there is one."""
        self.order = waiting.popleft() if waiting else None
        if self.order:
            self.line.send(self.order)

    def outcome(self) -> Outcome:
        """The outcome that has come over the line; an error where the process has gone."""
        assert self.order is not None
        try:
            found: Outcome = self.line.recv()
        except (EOFError, ConnectionError):
            text = "the process was killed, most likely for memory; repeat with fewer jobs"
            found = Outcome(self.order, None, 0.0, text)
        if found.error:
            self.end()
            self._start()
        return found

    def end(self) -> None:
        """Kill the process, whatever it does: a record is written whole or not at all."""
        self.process.kill()
        self.process.join()
        self.line.close()


def serve(line: Connection, folder: Path | None) -> None:
    """Run the orders that come over the line."""
    while True:
        try:
            order = line.recv()
        except EOFError:
            return
        line.send(attempt(order, folder))


def missing(orders: list[Order], folder: Path) -> list[Order]:
    """The orders that have no record in the folder yet."""

    def done(order: Order) -> Path:
        return folder / runner.file_name(order.experiment, order.method, order.seed)

    return [order for order in orders if not done(order).is_file()]


def summary(outcomes: list[Outcome]) -> list[str]:
    """Per experiment and method: seeds done, failed, left; the main figure; seconds a run."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.order.experiment, outcome.order.method), []).append(outcome)
    heads = f"{'experiment':18}{'method':22}{'done':>5}{'failed':>7}{'left':>5}"
    lines = [f"{heads}  {'figure':42}{'s a run':>8}"]
    for (experiment, method), runs in sorted(groups.items()):
        good = [run for run in runs if run.figure is not None]
        mean = statistics.fmean(run.figure for run in good if run.figure is not None) if good else 0
        words = f"{mean:.4f} {main_figure(runs[0].order)}" if good else "-"
        seconds = statistics.fmean(run.seconds for run in good) if good else 0.0
        failed, left = sum(bool(run.error) for run in runs), sum(run.left for run in runs)
        counts = f"{len(good):5}{failed:7}{left:5}"
        lines.append(f"{experiment:18}{method:22}{counts}  {words:42}{seconds:8.0f}")
    return lines


def run_and_tell(
    orders: list[Order], jobs: int, folder: Path | None, seconds: float = math.inf
) -> int:
    """Run everything, a line for each, then the summary; 2 for the user's mistakes, 1 for ours.

    Errors stand in ``errors.txt`` in the folder of the results too.
    """
    outcomes = []
    for outcome in run_all(orders, jobs, folder, seconds):
        outcomes.append(outcome)
        print(outcome.line, file=sys.stderr if outcome.error else sys.stdout, flush=True)
        if outcome.error and folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "errors.txt").open("a", encoding="utf-8") as file:
                file.write(f"{outcome.line}\n{outcome.trace}\n")
    if len(outcomes) > 1:
        print("\n".join(["", *summary(outcomes)]), flush=True)
    failed = [outcome for outcome in outcomes if outcome.error]
    return (2 if any(outcome.users for outcome in failed) else 1) if failed else 0
