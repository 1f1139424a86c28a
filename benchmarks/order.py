"""``python -m benchmarks.order``: how much the order of the batches changes what a model says.

Digits arrive in five tasks; the first is always 0 and 1, the others come in both directions.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.machine import versions
from clbruno import CLBrunoClassifier

RESULT = Path(__file__).with_name("order.json")

SETTINGS: dict[str, dict[str, Any]] = {
    "default recipe, frozen after the first batch": {"frozen": True},
    "default recipe": {},
    "default recipe, no couplings": {"couplings": 0},
    "paper's recipe": {"recipe": "paper"},
}


def learned(x: Any, y: Any, tasks: list[int], settings: dict[str, Any]) -> CLBrunoClassifier:
    """A model that learned digits 0 and 1, then pairs of digits in the order of `tasks`."""
    model = CLBrunoClassifier(random_state=0, **{**settings, "frozen": False})
    for task in (0, *tasks):
        here = y // 2 == task
        model.partial_fit(x[here], y[here], task=f"{2 * task} and {2 * task + 1}")
        model.set_params(frozen=settings.get("frozen", False))
    return model


def compared(settings: dict[str, Any]) -> dict[str, float]:
    """The accuracies of both orders, and how far apart their p(y | x) are on the test rows."""
    x, y = load_digits(return_X_y=True)
    x, test, y, truth = train_test_split(x, y, test_size=0.3, stratify=y, random_state=0)
    began = time.perf_counter()
    models = [learned(x, y, tasks, settings) for tasks in ([1, 2, 3, 4], [4, 3, 2, 1])]
    answers = [model.predict_proba(test)[:, np.argsort(model.classes_)] for model in models]
    apart = np.abs(answers[0] - answers[1])
    labels = [answer.argmax(axis=1) for answer in answers]
    accuracy = [float(np.mean(label == truth)) for label in labels]
    return {
        "accuracy, rising": round(accuracy[0], 4),
        "accuracy, falling": round(accuracy[1], 4),
        "labels that differ": round(float(np.mean(labels[0] != labels[1])), 4),
        "mean total variation": float(f"{apart.sum(axis=1).mean() / 2:.2g}"),
        "largest difference": float(f"{apart.max():.2g}"),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Measure every setting and write the JSON file."""
    figures = {name: compared(settings) for name, settings in SETTINGS.items()}
    record = {"command": "python -m benchmarks.order", "versions": versions(), "figures": figures}
    RESULT.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
