"""Read the benchmark data from a folder that the user names, or make small data like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]
FILES = {
    "mnist": ("x_train", "y_train", "x_test", "y_test"),
    "cifar100_resnet18": ("x_train", "y_train", "x_test", "y_test"),
    "pancan": ("x", "y", "feature"),
    "ici": ("x_mean", "x_ssgsea", "cancer_type", "therapy", "response"),
}
THERAPIES = ("Atezo", "Pembro", "Nivo", "Ipi", "Ipi+Pembro", "Ipi+Nivo", "Uknow", "Other")


class DataError(ValueError):
    """The data folder lacks a file or an array that an experiment needs."""


def read(name: str, folder: Path | None, seed: int = 0) -> Arrays:
    """The arrays of data set ``name`` from ``folder``; small made ones where no folder is given."""
    if folder is None:
        return MADE[name](np.random.default_rng(seed))
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise DataError(
            f"no file {path.name} in the data folder {folder}; see benchmarks/README.md"
        )
    with np.load(path, allow_pickle=False) as file:
        wanted = FILES.get(name, FILES["cifar100_resnet18"])
        missing = [key for key in wanted if key not in file.files]
        if missing:
            raise DataError(f"{path.name} has no array named {', '.join(missing)}")
        return {key: file[key] for key in wanted}


def _blobs(
    rng: np.random.Generator, codes: NDArray[np.intp], dim: int, spread: float
) -> NDArray[np.floating]:
    """Gaussian classes around class means whose coordinates have standard deviation ``spread``."""
    means = spread * rng.standard_normal((int(codes.max()) + 1, dim))
    return means[codes] + rng.standard_normal((len(codes), dim))


def _made_mnist(rng: np.random.Generator) -> Arrays:
    codes = np.repeat(np.arange(10), 40)
    pixels = np.clip(120 + 25 * _blobs(rng, codes, 64, 1.5), 0, 255).astype(np.uint8)
    test = np.tile(np.arange(40) >= 30, 10)
    images, labels = pixels.reshape(-1, 8, 8), codes.astype(np.uint8)
    return {
        "x_train": images[~test],
        "y_train": labels[~test],
        "x_test": images[test],
        "y_test": labels[test],
    }


def _made_cifar(rng: np.random.Generator) -> Arrays:
    codes = np.repeat(np.arange(100), 16)
    features = np.abs(_blobs(rng, codes, 24, 1.5)).astype(np.float16)
    test = np.tile(np.arange(16) >= 12, 100)
    labels = codes.astype(np.uint8)
    return {
        "x_train": features[~test],
        "y_train": labels[~test],
        "x_test": features[test],
        "y_test": labels[test],
    }


def _made_pancan(rng: np.random.Generator) -> Arrays:
    codes = np.repeat(np.arange(32), 12 + 2 * np.arange(32))
    names = np.array([f"T{code:02d}" for code in range(32)])
    return {
        "x": (6 + _blobs(rng, codes, 20, 2.0)).astype(np.float16),
        "y": names[codes],
        "feature": np.array([f"g{d}" for d in range(20)]),
    }


def _made_ici(rng: np.random.Generator) -> Arrays:
    therapy = np.repeat(np.array(THERAPIES), [60, 50, 40, 20, 16, 14, 12, 10])
    cancer = np.array(["BLCA", "KIRC", "SKCM"])[rng.integers(0, 3, len(therapy))]
    codes = np.unique(np.char.add(therapy, cancer), return_inverse=True)[1]
    x = _blobs(rng, codes, 16, 1.5)
    return {
        "x_mean": np.exp(0.3 * x[:, :8]).astype(np.float32),
        "x_ssgsea": x[:, 8:].astype(np.float32),
        "cancer_type": cancer,
        "therapy": therapy,
        "response": np.array(["NR", "R"])[rng.integers(0, 2, len(therapy))],
    }


MADE: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "mnist": _made_mnist,
    "cifar100_resnet18": _made_cifar,
    "pancan": _made_pancan,
    "ici": _made_ici,
}


def made_images(seed: int, each: int = 16) -> Arrays:
    """Images in the form of CIFAR-100's: each class a colour and a stripe of its own, and noise."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(100), each)
    colour = np.random.default_rng(0).integers(40, 216, (100, 3))[codes]
    images = colour[:, None, None, :] + rng.normal(0, 20, (len(codes), 32, 32, 3))
    images[np.arange(len(codes)), codes % 32] += 60
    pixels = np.clip(images, 0, 255).astype(np.uint8)
    test = np.tile(np.arange(each) >= 3 * each // 4, 100)
    return {
        "x_train": pixels[~test],
        "y_train": codes[~test],
        "x_test": pixels[test],
        "y_test": codes[test],
    }
