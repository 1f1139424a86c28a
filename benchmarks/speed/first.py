"""The first training, against scikit-learn's MLP of as many parameters."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.ours import count_numbers
from benchmarks.speed.clock import Options, Row

N, DIM, CLASSES = 10_000, 512, 10

EPOCHS = 12
"""Of the MLP: no early stop comes before the eleventh, so its whole training takes no less."""


def rows(options: Options) -> list[Row]:
    """Ours whole, the MLP for the fewest epochs to its early stop; each once."""
    from sklearn.neural_network import MLPClassifier

    from clbruno import CLBrunoClassifier

    x, y = classes_of_their_own(2 * N)
    train, test = (x[:N], y[:N]), (x[N:], y[N:])
    model = CLBrunoClassifier(random_state=0)
    ours = _timed(lambda: model.fit(*train))
    numbers = count_numbers(model.model_.latent)  # type: ignore[attr-defined]
    hidden = round(numbers / (DIM + CLASSES + 1))
    net = MLPClassifier((hidden,), early_stopping=True, max_iter=EPOCHS, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the most epochs reached
        theirs = _timed(lambda: net.fit(*train))
    accuracy = {"clbruno": model.score(*test), "MLP": net.score(*test)}
    kind = "cpu" if options.threads == 1 else "wall"
    details = {
        "seconds": {"clbruno": ours, "MLP": theirs},
        "accuracy": accuracy,
        "numbers": {
            "clbruno": numbers,
            "MLP": sum(w.size for w in (*net.coefs_, *net.intercepts_)),
        },
        "hidden units": hidden,
        "epochs of the MLP": net.n_iter_,
    }
    return [
        Row(
            f"first training of {N:,} x {DIM}, {CLASSES} classes, default recipe",
            f"MLPClassifier of as many numbers, its first {net.n_iter_} epochs",
            ours[kind] / theirs[kind],
            1.0,
            checked=f"accuracy {accuracy['clbruno']:.3f} against {accuracy['MLP']:.3f}",
            details=details,
        )
    ]


def classes_of_their_own(n: int) -> tuple[Any, Any]:
    """Gaussian classes with close means and covariances of their own."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=n)
    x = rng.normal(size=(n, DIM))
    for each in range(CLASSES):
        here = y == each
        own = rng.normal(size=(16, DIM)) / 16
        x[here] += 0.08 * rng.normal(size=DIM) + rng.normal(size=(int(here.sum()), 16)) @ own * 1.5
    return x.astype(np.float32), y


def _timed(work: Any) -> dict[str, float]:
    began, used = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - used}
