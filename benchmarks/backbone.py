"""CIFAR-100 from images: a ResNet-18 learns the first ten classes, is frozen, and gives features.

``python -m benchmarks.backbone --archive cifar-100-python.tar.gz --data DIR`` writes the file that
``python -m benchmarks cifar100-images --data DIR`` reads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from benchmarks import originals
from benchmarks.data import Arrays, DataError
from benchmarks.resnet import WIDTHS, ResNet18

FIRST = 10
"""Classes of the first batch: those below this label."""


@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent with momentum; the rate falls to 0 along half a cosine."""

    epochs: int = 100
    batch: int = 128
    rate: float = 0.1
    decay: float = 5e-4
    widths: tuple[int, ...] = WIDTHS


def file_name(seed: int) -> str:
    """Name, without its ending, of the file of features."""
    return f"cifar100_images_seed{seed}"


def frozen_features(images: Arrays, seed: int, device: str, training: Training) -> Arrays:
    """Features of every image by a network that saw the training images of the first classes."""
    first = images["y_train"] < FIRST
    x, y = images["x_train"][first], images["y_train"][first]
    scale = pixel_scale(x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = train(prepared(x, scale), torch.as_tensor(y).long(), device, training)
    found = {f"y_{part}": images[f"y_{part}"] for part in ("train", "test")}
    for part in ("train", "test"):
        found[f"x_{part}"] = features(net, images[f"x_{part}"], scale, device)
    return found


def pixel_scale(images: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel, of these images alone."""
    values = torch.as_tensor(images).double() / 255
    return values.mean(dim=(0, 1, 2)), values.std(dim=(0, 1, 2)) + 1e-6


def prepared(images: NDArray[np.uint8], scale: tuple[Tensor, Tensor]) -> Tensor:
    """Scaled pixels, channels first, in float32."""
    mean, sd = scale
    values = (torch.as_tensor(images).double() / 255 - mean) / sd
    return values.permute(0, 3, 1, 2).float().contiguous()


def train(x: Tensor, y: Tensor, device: str, training: Training) -> ResNet18:
    """Cross-entropy over the first classes, on images mirrored and shifted at random."""
    net = ResNet18(FIRST, training.widths).to(device)
    solver = torch.optim.SGD(
        net.parameters(),
        lr=training.rate,
        momentum=0.9,
        weight_decay=training.decay,
        nesterov=True,
    )
    steps = training.epochs * -(-len(x) // training.batch)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(solver, steps)
    x, y = x.to(device), y.to(device)
    net.train()
    for _ in range(training.epochs):
        for part in torch.randperm(len(x)).split(training.batch):
            solver.zero_grad()
            cross_entropy(net(varied(x[part.to(device)])), y[part.to(device)]).backward()
            solver.step()
            falling.step()
    return net.eval().requires_grad_(False)


def varied(x: Tensor) -> Tensor:
    """Each image mirrored with probability 1/2 and moved by up to four pixels, zeros coming in."""
    n, _, height, width = x.shape
    x = torch.where((torch.rand(n) < 0.5).to(x.device)[:, None, None, None], x.flip(3), x)
    wide = pad(x, (4, 4, 4, 4))
    top, left = torch.randint(0, 9, (2, n)).to(x.device)
    rows = top[:, None] + torch.arange(height, device=x.device)
    columns = left[:, None] + torch.arange(width, device=x.device)
    image = torch.arange(n, device=x.device)[:, None, None]
    return wide.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def features(
    net: ResNet18, images: NDArray[np.uint8], scale: tuple[Tensor, Tensor], device: str
) -> NDArray[np.float16]:
    """The frozen network's features, in float16."""
    parts = [
        net.features(prepared(images[start : start + 500], scale).to(device)).cpu()
        for start in range(0, len(images), 500)
    ]
    return torch.cat(parts).numpy().astype(np.float16)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the archive, train, write the file; 2 where the archive is not what it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backbone", description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="cifar-100-python.tar.gz")
    parser.add_argument("--data", type=Path, required=True, help="folder for the features")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=Training.epochs)
    parser.add_argument("--widths", type=int, nargs=4, default=WIDTHS, help="of the four stages")
    asked = parser.parse_args(arguments)
    training = Training(epochs=asked.epochs, widths=tuple(asked.widths))
    try:
        images = originals.cifar100(asked.archive)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    made = frozen_features(images, asked.seed, asked.device, training)
    asked.data.mkdir(parents=True, exist_ok=True)
    np.savez(asked.data / f"{file_name(asked.seed)}.npz", **made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
