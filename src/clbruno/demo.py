"""The demonstration: five tasks of handwritten digits learned one after another, none forgotten."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from clbruno.estimator import CLBrunoClassifier

TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
SEEDS = 5


@dataclass(frozen=True)
class Run:
    """Accuracies of one seed.

    Attributes:
        matrix: accuracy on each task's digits (columns) after each step (rows), NaN before it;
            the task is never told, all ten digits compete.
        sgd: the same for scikit-learn's `SGDClassifier.partial_fit`.
        final: accuracy over all ten digits after the last step.
        joint: the same for the model that saw all digits at once.
        sgd_final: the same for scikit-learn's `SGDClassifier.partial_fit` on the same steps.
    """

    matrix: NDArray[np.float64]
    sgd: NDArray[np.float64]
    final: float
    joint: float
    sgd_final: float


def run(picture: str = "clbruno-demo.png", seeds: int = SEEDS) -> None:
    """Learn, print a table of what is known after every step, and draw a picture of it.

    Args:
        picture: where the picture goes, if matplotlib is installed.
        seeds: how many times to repeat on other splits.
    """
    console = Console()
    console.print(
        "Five tasks of two digits each, learned one after another from sklearn's load_digits. "
        "No sample is kept, and the task is never told: all digits seen so far compete."
    )
    began = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("learning", total=seeds * len(TASKS))
        runs = [one_run(seed, lambda: progress.advance(bar)) for seed in range(seeds)]
    seconds = time.perf_counter() - began
    matrix = np.mean([each.matrix for each in runs], axis=0)
    console.print(_table(matrix))
    for name, figures in (
        ("learned in five steps", [each.final for each in runs]),
        ("learned all at once", [each.joint for each in runs]),
        ("scikit-learn's SGDClassifier in the same five steps", [each.sgd_final for each in runs]),
    ):
        console.print(
            f"{name}: {np.mean(figures):.4f} +- {np.std(figures):.4f} over all ten digits"
        )
    console.print(f"{seeds} seeds in {seconds:.1f} s")
    _draw(matrix, np.mean([each.sgd for each in runs], axis=0), Path(picture), console)


def one_run(seed: int, advance: Any = lambda: None) -> Run:
    """Learn the five tasks in turn on one split, and all at once beside it."""
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=0.3, stratify=y, random_state=seed
    )
    model = CLBrunoClassifier(random_state=seed)
    sgd = SGDClassifier(random_state=seed)
    scaler: StandardScaler | None = None
    matrix, forgetful = np.full((2, len(TASKS), len(TASKS)), np.nan)
    for step, digits in enumerate(TASKS):
        here = np.isin(y_train, digits)
        model.partial_fit(x_train[here], y_train[here], task=f"digits {digits[0]}, {digits[1]}")
        scaler = StandardScaler().fit(x_train[here]) if scaler is None else scaler
        sgd.partial_fit(scaler.transform(x_train[here]), y_train[here], classes=range(10))
        answers, guesses = model.predict(x_test), sgd.predict(scaler.transform(x_test))
        for past in range(step + 1):
            asked = np.isin(y_test, TASKS[past])
            matrix[step, past] = np.mean(answers[asked] == y_test[asked])
            forgetful[step, past] = np.mean(guesses[asked] == y_test[asked])
        advance()
    assert scaler is not None
    joint = CLBrunoClassifier(random_state=seed).fit(x_train, y_train)
    return Run(
        matrix,
        forgetful,
        final=float(np.mean(model.predict(x_test) == y_test)),
        joint=float(np.mean(joint.predict(x_test) == y_test)),
        sgd_final=float(np.mean(sgd.predict(scaler.transform(x_test)) == y_test)),
    )


def _table(matrix: NDArray[np.float64]) -> Table:
    table = Table(title="accuracy on each task's digits after every step, mean over seeds")
    table.add_column("after learning")
    for digits in TASKS:
        table.add_column(f"{digits[0]}, {digits[1]}", justify="right")
    for step, row in enumerate(matrix):
        shown = ["" if np.isnan(value) else f"{value:.3f}" for value in row]
        table.add_row(f"{TASKS[step][0]}, {TASKS[step][1]}", *shown)
    return table


def _draw(
    matrix: NDArray[np.float64], sgd: NDArray[np.float64], path: Path, console: Console
) -> None:
    """Retention curves, as in the paper's Fig. 5, ours and those of a model that forgets."""
    try:
        import matplotlib
    except ImportError:
        console.print("for the picture, install matplotlib: pip install 'clbruno\\[report]'")
        return
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    steps = np.arange(1, len(TASKS) + 1)
    for side, curves, title in (
        (axes[0], matrix, "clbruno keeps what it learned"),
        (axes[1], sgd, "SGDClassifier.partial_fit forgets it"),
    ):
        for task, digits in enumerate(TASKS):
            side.plot(steps, curves[:, task], "o-", label=f"digits {digits[0]} and {digits[1]}")
        side.set(title=title, xlabel="tasks learned so far", xticks=steps, ylim=(-0.03, 1.03))
        side.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy on each task, task not told")
    axes[0].legend(loc="lower left", fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    console.print(f"picture: {path.resolve()}", soft_wrap=True)
