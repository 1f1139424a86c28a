"""What a run used: seconds, peak memory, versions, and the machine in general words."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

import clbruno

PACKAGES = ("numpy", "torch")
STATUS, REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def versions() -> dict[str, str]:
    """Python and the packages that a figure may depend on."""
    found = {"python": platform.python_version(), "clbruno": clbruno.__version__}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def hardware(device: str, together: int = 1) -> str:
    """Cores, threads, memory and accelerator, without names or addresses."""
    words = f"{os.cpu_count()} CPU cores ({platform.machine()})"
    words += f", threads used: {torch.get_num_threads()}"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        words += f", {memory / 2**30:.0f} GiB"
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        words += f"; GPU {properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return words if together == 1 else f"{words}; {together} runs at a time"


class Meter:
    """Seconds and peak memory of a block; the peak is above what the process held before.

    The peak of the main memory is known on Linux only and None elsewhere; on a GPU it is the
    peak that torch allocated.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds = 0.0
        self.peak_mib: float | None = None

    def __enter__(self) -> Self:
        if self.device.startswith("cuda"):
            torch.cuda.init()
            torch.cuda.reset_peak_memory_stats(self.device)
        self.held = _reset_peak()
        self.start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self.start
        if self.device.startswith("cuda"):
            self.peak_mib = torch.cuda.max_memory_allocated(self.device) / 2**20
        elif self.held is not None:
            self.peak_mib = max(0.0, (_status("VmHWM") - self.held) / 1024)


def peak_mib_of_process() -> float:
    """The most memory that this process ever had, in MiB."""
    return round(_status("VmHWM") / 1024, 1)


def _reset_peak() -> float | None:
    """Forget the process's peak memory; what it holds now in KiB, or None where unknown."""
    try:
        REFS.write_text("5")
        return _status("VmRSS")
    except OSError:
        return None


def _status(field: str) -> float:
    line = next(row for row in STATUS.read_text().splitlines() if row.startswith(field))
    return float(line.split()[1])
