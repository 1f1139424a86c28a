"""Seconds until the package is there."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from benchmarks.speed.clock import Options, Row

NOTHING = "pass"
LIBRARIES = "import torch, sklearn.base, sklearn.utils.validation"
IMPORT = "from clbruno import CLBrunoClassifier"
HELP = "import sys; sys.argv = ['clbruno', '--help']; import clbruno.cli; clbruno.cli.main()"


def rows(options: Options) -> list[Row]:
    """Processor seconds of fresh interpreters, above those of an empty one."""
    programs = {"nothing": NOTHING, "libraries": LIBRARIES, "import": IMPORT, "help": HELP}
    for program in programs.values():
        seconds_of(program)
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(options.repeats):
        for name, program in programs.items():
            taken[name].append(seconds_of(program))
    median = {name: statistics.median(values) for name, values in taken.items()}
    details = {"processor seconds": median}
    return [
        Row(
            "`from clbruno import CLBrunoClassifier`, above the import of torch and scikit-learn",
            "-",
            median["import"] - median["libraries"],
            0.3,
            unit="s",
            details=details,
        ),
        Row("`clbruno --help`", "-", median["help"], 0.3, unit="s", details=details),
    ]


def seconds_of(program: str) -> float:
    """Processor seconds of one interpreter that runs a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
