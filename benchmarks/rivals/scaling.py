"""Scaling of the inputs, fixed by the first batch."""

from __future__ import annotations

from typing import Literal

import numpy as np

from benchmarks.stream import FloatArray

Scale = Literal["none", "standard", "sqrt"]


class Scaler:
    """Inputs in float64; ``standard`` divides by sd + sd_mean / 10 of the first batch only."""

    def __init__(self, kind: Scale) -> None:
        self.kind = kind
        self.shift: FloatArray | None = None
        self.width: FloatArray | None = None

    def __call__(self, x: FloatArray) -> FloatArray:
        """The scaled rows; the first call fixes the numbers."""
        x = np.asarray(x, dtype=np.float64)
        if self.kind == "sqrt":
            return np.sign(x) * np.sqrt(np.abs(x))
        if self.kind == "none":
            return x
        if self.shift is None:
            sd = x.std(axis=0)
            self.shift, self.width = x.mean(axis=0), sd + 0.1 * sd.mean() + 1e-12
        return (x - self.shift) / self.width
