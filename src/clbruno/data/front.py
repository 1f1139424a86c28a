"""A fixed front for images: what oriented filters see of them. Nothing in it is learned."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d, conv2d

ORIENTATIONS, SECOND = 8, 4
"""Orientations of the first filters, and of those that look at what the first ones saw."""

GRID, COARSE = 7, 4
"""Places along a side, at most, where the first and the second filters' answers are averaged."""

WIDTH, FREQUENCY, REACH = 1.6, 1.8, 3
"""Standard deviation, radians a pixel and half the size of a filter."""

SMALLEST = 8
"""Fewest pixels along a side."""

ROWS = 256
"""Images per pass; bounds the memory."""


@dataclass(frozen=True)
class ImageFront:
    """An image -> the square roots of local averages of oriented edges, at two scales and two deep.

        u_j  = |x * psi_j|,  v_j = |half(x) * psi_j|,  w_jk = |half(u_j) * psi_k|
        f(x) = sqrt( average of x, u_j, v_j on 7 x 7 places, of w_jk on 4 x 4 )

    with psi_j a complex Gabor wavelet of zero mean in orientation j, and half() an average over
    2 x 2 pixels: the first two layers of a scattering transform. Places stand at least 2 and 4
    pixels apart, so small images have fewer. Multiplying the image by a number multiplies f by its
    root: the unit of the pixels does not matter. Filters look at the mean of the channels; the
    averages of x are of each channel.

    Attributes:
        shape: (height, width) or (height, width, channels) of an image.

    >>> front = ImageFront((28, 28))
    >>> front.pixels, front.features, front(np.ones((2, 784))).shape
    (784, 1345, (2, 1345))
    """

    shape: tuple[int, ...]

    @property
    def pixels(self) -> int:
        """Numbers of an image."""
        return math.prod(self.shape)

    @property
    def features(self) -> int:
        """Numbers of what comes out."""
        channels = self.shape[2] if len(self.shape) == 3 else 1
        first, second = self.places
        return (channels + 2 * ORIENTATIONS) * first**2 + ORIENTATIONS * SECOND * second**2

    @property
    def places(self) -> tuple[int, int]:
        """Places along a side for the first and for the second filters."""
        side = min(self.shape[:2])
        return min(GRID, side // 2), min(COARSE, side // 4)

    def __call__(self, x: NDArray[np.generic]) -> NDArray[np.float32]:
        """The features of flattened images, rows by pixels."""
        found = np.empty((len(x), self.features), dtype=np.float32)
        for start in range(0, len(x), ROWS):
            rows = torch.from_numpy(np.array(x[start : start + ROWS], dtype=np.float32))
            found[start : start + ROWS] = self._features(rows).numpy()
        return found

    def _features(self, rows: Tensor) -> Tensor:
        height, width = self.shape[:2]
        image = rows.reshape(len(rows), height, width, -1).permute(0, 3, 1, 2).abs()
        light = image.mean(1, keepdim=True)
        first, first_half = _seen(light, ORIENTATIONS), _seen(_half(light), ORIENTATIONS)
        deeper = _half(first).flatten(0, 1)[:, None]
        second = _seen(deeper, SECOND).reshape(len(rows), -1, *deeper.shape[2:])
        fine, coarse = self.places
        parts = [adaptive_avg_pool2d(part, fine) for part in (image, first, first_half)]
        parts.append(adaptive_avg_pool2d(second, coarse))
        return torch.cat([part.flatten(1) for part in parts], dim=1).sqrt()


def _half(image: Tensor) -> Tensor:
    return avg_pool2d(image, 2, ceil_mode=True, count_include_pad=False)


def _seen(image: Tensor, orientations: int) -> Tensor:
    """|image * psi_j| for each orientation j."""
    answer = conv2d(image, _wavelets(orientations), padding=REACH)
    return (answer[:, 0::2].square() + answer[:, 1::2].square()).sqrt()


@cache
def _wavelets(orientations: int) -> Tensor:
    """Real and imaginary parts, in turn, of Gabor wavelets of zero mean and unit norm.

    psi(u, v) = exp(-(u^2 + v^2) / 2 sigma^2) (exp(i omega u) - beta),  u along the orientation
    """
    side = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    y, x = torch.meshgrid(side, side, indexing="ij")
    envelope = torch.exp(-(x**2 + y**2) / (2 * WIDTH**2))
    parts = []
    for at in range(orientations):
        angle = math.pi * at / orientations
        phase = FREQUENCY * (x * math.cos(angle) + y * math.sin(angle))
        real, imaginary = envelope * phase.cos(), envelope * phase.sin()
        real = real - envelope * (real.sum() / envelope.sum())
        norm = (real.square() + imaginary.square()).sum().sqrt()
        parts += [real / norm, imaginary / norm]
    return torch.stack(parts)[:, None].float()


def as_rows(x: object, shape: tuple[int, ...] | None) -> object:
    """Images in an array of their shape as flattened rows; anything else as it is."""
    if isinstance(x, np.ndarray) and x.shape[1:] == shape:
        return x.reshape(len(x), -1)
    return x
