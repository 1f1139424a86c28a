"""The demonstration: five tasks of handwritten digits learned one after another, none forgotten."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from clbruno.persist import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        model: what was learned in the five steps.
        test: the rows that were never learned, and their digits.
    """

    matrix: NDArray[np.float64]
    sgd: NDArray[np.float64]
    final: float
    joint: float
    sgd_final: float
    model: CLBrunoClassifier
    test: tuple[NDArray[np.float64], NDArray[np.int64]]


def run(report: str = "clbruno-demo.html", seeds: int = SEEDS) -> None:
    """Learn, print a table of what is known after every step, and write a report on it.

    Args:
        report: where the report goes, if the extra `report` is installed.
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
    _report(runs, Path(report), console)


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
        model.partial_fit(x_train[here], y_train[here], task=_name(digits))
        scaler = StandardScaler().fit(x_train[here]) if scaler is None else scaler
        sgd.partial_fit(scaler.transform(x_train[here]), y_train[here], classes=range(10))
        answers, guesses = model.predict(x_test), sgd.predict(scaler.transform(x_test))
        for past in range(step + 1):
            asked = np.isin(y_test, TASKS[past])
            matrix[step, past] = np.mean(answers[asked] == y_test[asked])
            forgetful[step, past] = np.mean(guesses[asked] == y_test[asked])
        _note(model, matrix[step])
        advance()
    assert scaler is not None
    joint = CLBrunoClassifier(random_state=seed).fit(x_train, y_train)
    return Run(
        matrix,
        forgetful,
        final=float(np.mean(model.predict(x_test) == y_test)),
        joint=float(np.mean(joint.predict(x_test) == y_test)),
        sgd_final=float(np.mean(sgd.predict(scaler.transform(x_test)) == y_test)),
        model=model,
        test=(x_test, y_test),
    )


def _name(digits: tuple[int, int]) -> str:
    return f"digits {digits[0]}, {digits[1]}"


def _note(model: CLBrunoClassifier, figures: NDArray[np.float64]) -> None:
    """Add the accuracies to the log, as `clbruno learn --validation` does."""
    log = model.model_.log
    found = {
        f"validation accuracy, task {_name(digits)}": float(figure)
        for digits, figure in zip(TASKS, figures, strict=True)
        if not np.isnan(figure)
    }
    model.model_ = replace(model.model_, log=(*log[:-1], log[-1].noting({}, found)))


def _table(matrix: NDArray[np.float64]) -> Table:
    table = Table(title="accuracy on each task's digits after every step, mean over seeds")
    table.add_column("after learning")
    for digits in TASKS:
        table.add_column(f"{digits[0]}, {digits[1]}", justify="right")
    for step, row in enumerate(matrix):
        shown = ["" if np.isnan(value) else f"{value:.3f}" for value in row]
        table.add_row(f"{TASKS[step][0]}, {TASKS[step][1]}", *shown)
    return table


def _report(runs: list[Run], path: Path, console: Console) -> None:
    """The report of the first seed's model, opening on the picture of all seeds."""
    try:
        from clbruno.report.exam import examine_arrays
        from clbruno.report.page import Subject
        from clbruno.report.page import report as render
    except ImportError:
        console.print("for the report, install its extra: pip install 'clbruno\\[report]'")
        return
    model, (x, y) = runs[0].model, runs[0].test
    exam = examine_arrays(model, x, y, [_name(TASKS[digit // 2]) for digit in y.tolist()])
    page = render(Subject(model, "Handwritten digits", exam=exam, opening=opening(runs)))
    with atomic.writing(path) as target:
        target.replace(lambda file: _put(file, page.encode()))
    console.print(f"report: {path.resolve()}", soft_wrap=True)


def _put(file: Any, content: bytes) -> None:
    file.write(content)


def opening(runs: list[Run]) -> Any:
    """The picture that explains the project in ten seconds (`clbruno.report.page.Picture`)."""
    from clbruno.report.page import picture

    ours, theirs = _seen([run.matrix for run in runs]), _seen([run.sgd for run in runs])
    return picture(
        "opening",
        "Five lessons, and what is left of them",
        lambda ax: draw_opening(ours, theirs, ax),
        shows="Pairs of digits arrive one after another; each is learned once and then deleted. "
        "After every pair both models are asked about all digits so far, the task not told.",
        bad="The orange line: learning the newest pair overwrites the older ones.",
        here=f"After five pairs, clbruno is right for {ours[-1]:.0%} of the digits, scikit-learn's "
        f"SGDClassifier.partial_fit for {theirs[-1]:.0%}. Mean of {len(runs)} seeds.",
        size=(5.7, 3.6),
    )


def draw_opening(ours: NDArray[np.float64], theirs: NDArray[np.float64], ax: "Axes") -> None:
    """Accuracy on all digits so far, under the digits that arrive."""
    from matplotlib.colors import to_rgba

    from clbruno.report.style import HEAT, INK, MUTED, SERIES

    digits = load_digits()
    steps = np.arange(1, len(TASKS) + 1)
    for step, pair in zip(steps, TASKS, strict=True):
        for side, digit in enumerate(pair):
            image = np.empty((8, 8, 4))
            image[..., :3] = to_rgba(HEAT)[:3]
            image[..., 3] = digits.images[np.flatnonzero(digits.target == digit)[0]] / 16
            left = step - 0.33 + 0.34 * side
            extent = (left, left + 0.32, 1.2, 1.39)
            ax.imshow(image, extent=extent, aspect="auto", interpolation="none")
        ax.annotate("", (step, 1.04), (step, 1.17), arrowprops={"arrowstyle": "->", "color": MUTED})
    ax.text(0.62, 1.46, "arrive, are learned once, and are deleted", color=MUTED, fontsize=9)
    for line, colour, mark, name in (
        (ours, SERIES[0], "o", "clbruno"),
        (theirs, SERIES[1], "s", "SGDClassifier\n.partial_fit"),
    ):
        ax.plot(steps, line, color=colour, marker=mark, linewidth=2.4, markersize=6)
        ax.text(5.15, line[-1], f"{name}\n{line[-1]:.0%} right", color=colour, va="center")
    ax.set(xlim=(0.6, 6.5), ylim=(0, 1.54), ylabel="right, of all digits so far")
    ax.yaxis.set_label_coords(-0.1, 0.33)
    ax.set_xticks(steps, [f"{step}" for step in steps])
    ax.set_xlabel("pairs of digits learned", x=0.405)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ax.hlines([0.25, 0.5, 0.75, 1], 0.6, 5.05, color=INK, alpha=0.12, linewidth=0.8, zorder=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)


def _seen(matrices: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean accuracy over the tasks learned so far, after every step, over the seeds."""
    found: NDArray[np.float64] = np.nanmean(np.mean(matrices, axis=0), axis=1)
    return found
