"""The scale of the inputs, fixed at the first batch: later data do not exist yet."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Scaler:
    """x -> (x - center) / scale, per feature.

    A feature that hardly varied in the first batch is divided by a floor and not by its own
    spread: a pixel that was always black may be lit in a later batch.

    Attributes:
        center: mean of each feature in the first batch, shape `(D,)`.
        scale: its standard deviation, with the floor, shape `(D,)`.
    """

    center: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: NDArray[np.floating], chunk: int = 8192) -> "Scaler":
        """Mean and standard deviation of the columns, in one streaming pass each."""
        n = x.shape[0]
        center = sum(
            np.sum(x[at : at + chunk], axis=0, dtype=np.float64) for at in range(0, n, chunk)
        )
        center = center / n
        square = sum(
            np.square(x[at : at + chunk] - center).sum(axis=0) for at in range(0, n, chunk)
        )
        spread = np.sqrt(square / n)
        typical = float(np.sqrt(np.mean(np.square(spread))))
        floor = 0.1 * typical if typical > 0 else 1.0
        return cls(torch.from_numpy(center), torch.from_numpy(np.maximum(spread, floor)))

    def forward(self, x: Tensor) -> Tensor:
        """Scale the rows of `x`."""
        return (x - self.center) / self.scale

    def inverse(self, x: Tensor) -> Tensor:
        """Undo the scaling."""
        return x * self.scale + self.center

    @property
    def ladj(self) -> float:
        """log|det| of the scaling, - sum_d log scale_d."""
        return -float(self.scale.log().sum())
