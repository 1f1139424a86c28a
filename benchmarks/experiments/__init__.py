"""One file per table or figure: each builds the stream of one experiment for a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.experiments import cifar100, ici, mnist, pancan, synthetic
from benchmarks.stream import Stream

Build = Callable[[Path | None, int, bool], Stream]

EXPERIMENTS: dict[str, Build] = {
    "synthetic": synthetic.build,
    "cifar100": cifar100.build,
    "cifar100-images": cifar100.build_from_images,
    "mnist": mnist.build,
    "pancan": pancan.build,
    "ici": ici.build,
}
