"""What a row of the table is, and how two things are timed against each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """What the command line says to every row.

    Attributes:
        threads: of both sides.
        repeats: of both sides.
        folder: of the data files; made data without it.
    """

    threads: int = 1
    repeats: int = 5
    folder: Path | None = None


@dataclass(frozen=True)
class Row:
    """One figure beside its mark.

    Attributes:
        what: what was measured.
        against: what it is divided by or compared with.
        value: the figure.
        mark: what it should reach.
        unit: `"x"` for a ratio.
        at_least: the figure should be over the mark, not under it.
        checked: what was found equal before anything was timed.
        details: seconds of both sides and sizes.
    """

    what: str
    against: str
    value: float
    mark: float
    unit: str = "x"
    at_least: bool = False
    checked: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether the figure is at its mark."""
        return self.value >= self.mark if self.at_least else self.value <= self.mark


def race(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Median seconds of each side, wall-clock and of the processor.

    The sides take turns, so that what slows the machine slows both; the first turn is not
    counted. Processor seconds do not count the time that other programs took.
    """
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, work in sides.items():
            began, used = time.perf_counter(), time.process_time()
            work()
            if turn:
                wall[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - used)
    return {
        name: {"wall": statistics.median(wall[name]), "cpu": statistics.median(cpu[name])}
        for name in sides
    }


def ratio(seconds: Mapping[str, Mapping[str, float]], one: str, other: str, threads: int) -> float:
    """One side by another: processor seconds on one thread, wall-clock on several."""
    kind = "cpu" if threads == 1 else "wall"
    return seconds[one][kind] / seconds[other][kind]
