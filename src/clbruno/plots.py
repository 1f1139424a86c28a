"""The report's pictures as functions for notebooks (extra `report`).

Each takes a taught model and a table, or what was already computed from them: an exam
(`clbruno.report.exam`) or a benchmark's record. Each draws on `ax`, or on axes of its own, and
returns them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.ticker import MaxNLocator

from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier
from clbruno.report import measures
from clbruno.report.exam import Exam, Floats, examine_arrays
from clbruno.report.facts import ALPHA
from clbruno.report.retention import Curves, of_log, of_record
from clbruno.report.style import GRID, HEAT, INK, MUTED, ON_HEAT, RC, SERIES, shortened

Source = CLBrunoClassifier | Exam | Mapping[str, Any]
Drawing = TypeVar("Drawing", bound=Callable[..., Axes])

NAMED = 30
"""Names along one axis; beyond it there is no room for them."""

WRITTEN = 12
"""Rows of a matrix whose cells have their figures written in."""

_MARKS = "osD^vP"


def _picture(draw: Drawing) -> Drawing:
    """Draw in the style of the report and leave matplotlib's settings as they were."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Axes:
        with rc_context(RC):
            return draw(*args, **kwargs)

    return cast(Drawing, drawn)


@_picture
def retention(
    source: Source, X: Any = None, y: Any = None, task: Any = None, *, ax: Axes | None = None
) -> Axes:
    """Accuracy on every task, label or batch after each update (the paper's Fig. 5).

    Args:
        source: a model, whose update log has the figures, or a benchmark's record.
        X: rows to add today's accuracy from, as diamonds.
        y: their labels.
        task: their tasks.
        ax: where to draw.
    """
    if isinstance(source, Mapping):
        return draw_retention(of_record(source), None, _axes(ax))
    if isinstance(source, Exam):
        raise InputError("retention needs a model or a benchmark's record: an exam has no past")
    exam = None if X is None else examine_arrays(source, X, y, task)
    return draw_retention(of_log(source.model_), exam, _axes(ax))


@_picture
def task_identity(
    source: Source, X: Any = None, task: Any = None, *, ax: Axes | None = None
) -> Axes:
    """Mean p(t | x) over the rows of each true task (the paper's Fig. 6a).

    Args:
        source: a model, an exam, or a benchmark's record.
        X: rows, where the source is a model.
        task: the true task of each row.
        ax: where to draw.
    """
    if isinstance(source, Mapping):
        _needs(source, "task_heat")
        names = source["tasks"]
        return _matrix(np.array(source["task_heat"]), names, names, _axes(ax), "task")
    exam = _exam(source, X, None, task)
    rows, mean = measures.heat(exam)
    if not rows:
        raise InputError("the true tasks are not told; give `task`, one name or one per row")
    names = [exam.tasks[at] for at in rows]
    return _matrix(mean, names, exam.tasks[: exam.known_tasks], _axes(ax), "task")


@_picture
def confusion(
    source: Source, X: Any = None, y: Any = None, task: Any = None, *, ax: Axes | None = None
) -> Axes:
    """Which labels are taken for which: each row of the matrix is one true label.

    Args:
        source: a model or an exam.
        X: rows, where the source is a model.
        y: their true labels.
        task: their tasks; the answers are those with the task not told.
        ax: where to draw.
    """
    exam = _labelled(source, X, y, task)
    counts = measures.confusion(exam)
    rows = np.flatnonzero(counts.sum(axis=1))
    columns = [at for at in range(exam.known_labels) if counts[:, at].any() or at in rows]
    share = counts[rows][:, columns] / counts[rows].sum(axis=1, keepdims=True)
    names = [exam.labels[at] for at in rows]
    return _matrix(share, names, [exam.labels[at] for at in columns], _axes(ax), "class")


@_picture
def reliability(
    source: Source, X: Any = None, y: Any = None, task: Any = None, *, ax: Axes | None = None
) -> Axes:
    """How often the model is right when it is so sure: on the diagonal it means what it says.

    Args:
        source: a model or an exam.
        X: rows, where the source is a model.
        y: their true labels.
        task: their tasks; the answers are those with the task not told.
        ax: where to draw.
    """
    found = measures.reliability(_labelled(source, X, y, task))
    ax = _axes(ax)
    low, high = measures.wilson(found.accuracy, found.count)
    size = 12 + 120 * found.count / found.count.max()
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    ax.annotate("as sure as right", (0.3, 0.3), (0.32, 0.26), color=MUTED, fontsize="small")
    ax.vlines(found.confidence, low, high, color=SERIES[0], linewidth=1.2, alpha=0.6)
    ax.scatter(found.confidence, found.accuracy, s=size, color=SERIES[0], zorder=3)
    ax.set(xlabel="how sure the model says it is", ylabel="how often it is right")
    ax.set(xlim=(-0.02, 1.04), ylim=(-0.02, 1.04))
    ax.grid(True)
    return ax


@_picture
def typicality(
    source: Source, X: Any = None, y: Any = None, task: Any = None, *, ax: Axes | None = None
) -> Axes:
    """How the p-values of the level-set test are spread: few are small for rows like those learned.

    Args:
        source: a model or an exam.
        X: rows, where the source is a model.
        y: their true labels, if known: labels that were never learned stand apart.
        task: their tasks, if known.
        ax: where to draw.
    """
    exam = _exam(source, X, y, task)
    ax = _axes(ax)
    strange = exam.truth >= exam.known_labels
    groups = [exam.typicality[~strange]] + ([exam.typicality[strange]] if strange.any() else [])
    colours = [SERIES[0], SERIES[1]][: len(groups)]
    names = ["labels that were learned", "labels that were never learned"]
    bins = [at / 20 for at in range(21)]
    ax.hist(groups, bins=bins, stacked=True, color=colours, label=names[: len(groups)], rwidth=0.9)
    ax.axvline(ALPHA, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    ax.set(xlabel="typicality (0: like nothing learned)", ylabel="rows", xlim=(0, 1))
    if len(groups) > 1:
        ax.legend(fontsize="small")
    return ax


@_picture
def generated(
    source: Source,
    X: Any = None,
    y: Any = None,
    task: Any = None,
    *,
    how: str = "pca",
    ax: Axes | None = None,
) -> Axes:
    """Generated rows over real ones, in two dimensions (the paper's Fig. 4).

    Args:
        source: a model, or a benchmark's record with rows of both.
        X: real rows, where the source is a model.
        y: their labels; the generated rows then have the same labels in the same numbers.
        task: their tasks.
        how: `"pca"`, the plane in which the real rows vary most, or `"tsne"`.
        ax: where to draw.
    """
    if isinstance(source, Mapping):
        _needs(source, "scatter")
        return _recorded_scatter(source["scatter"], _axes(ax))
    if not isinstance(source, CLBrunoClassifier) or X is None:
        raise InputError("generated needs a model and the real rows X")
    if how not in ("pca", "tsne"):
        raise InputError(f"how must be 'pca' or 'tsne', got {how!r}")
    pair = measures.pairing(source, examine_arrays(source, X, y, task))
    if len(pair.real) < 2:
        raise InputError("no two rows are of a label that the model knows")
    return draw_generated(pair, how, _axes(ax))


def draw_retention(curves: Curves, exam: Exam | None, ax: Axes) -> Axes:
    """The lines of `curves`; the worst ones named where there are many; diamonds for today."""
    if not curves.lines:
        raise InputError("the update log holds no accuracy: no update held back any row")
    named = _worst(curves)
    today = {} if exam is None else accuracy_by(exam, curves.kind)
    ends: list[tuple[str, float, str]] = []
    for name, points in curves.lines.items():
        x, values = zip(*points, strict=True)
        if name not in named:
            ax.plot(x, values, color=GRID, linewidth=1, zorder=1)
            continue
        at = named.index(name) % len(SERIES)
        last = values[-1]
        mark = _MARKS[at] if curves.updates <= 20 else ""
        ax.plot(x, values, color=SERIES[at], marker=mark, markersize=4, linewidth=1.8)
        if name in today:
            ax.plot((x[-1], curves.updates + 0.3), (last, today[name]), ":", color=SERIES[at])
            last = today[name]
            ax.plot(curves.updates + 0.3, last, "D", color=SERIES[at], markersize=6, clip_on=False)
        ends.append((name, last, SERIES[at]))
    _retention_axes(curves, ax, [*today.values()])
    if len(curves.lines) > 1:
        _name_ends(ax, ends, curves.updates + 0.5)
    return ax


def accuracy_by(exam: Exam, kind: str) -> dict[str, float]:
    """Accuracy of each task or label over the labelled rows, task not told."""
    if not exam.labelled.any():
        return {}
    if kind not in ("task", "label"):
        return {"rows held back from each update": exam.accuracy()}
    names = exam.tasks if kind == "task" else exam.labels
    codes = exam.true_task if kind == "task" else exam.truth
    found = {}
    for at, name in enumerate(names):
        here = exam.labelled & (codes == at)
        if here.any():
            found[str(name)] = float(exam.right[here].mean())
    return found


def draw_generated(pair: measures.Pairing, how: str, ax: Axes) -> Axes:
    """Real rows as dots and generated ones as crosses, in colours where the classes are few."""
    shown = np.random.default_rng(0).permutation(len(pair.real))[:400]
    some = measures.Pairing(pair.real[shown], pair.made[shown], pair.cell[shown], pair.names)
    real, made = measures.projected(some, how)
    cells = np.unique(some.cell)
    if 1 < len(cells) <= len(SERIES):
        for cell, colour in zip(cells, SERIES, strict=False):
            _cloud(ax, real[some.cell == cell], made[some.cell == cell], colour, colour)
        _legend(ax, [shortened(pair.names[cell]) for cell in cells])
    else:
        _cloud(ax, real, made, SERIES[0], SERIES[1])
    kind = {"pca": "principal direction", "tsne": "t-SNE axis"}[how]
    ax.set(xlabel=f"first {kind}", ylabel=f"second {kind}", xticks=[], yticks=[])
    _frame(ax, np.concatenate([real, made]))
    return ax


def draw_pull(pull: measures.Pull, features: Sequence[object], ax: Axes, most: int = 12) -> Axes:
    """The features that moved the log-odds most, to the right where they speak for the label."""
    order = np.argsort(-np.abs(pull.features))[:most][::-1]
    values = pull.features[order]
    colours = [SERIES[0] if value > 0 else SERIES[1] for value in values]
    ax.barh(range(len(order)), values, color=colours, height=0.7)
    ax.axvline(0, color=MUTED, linewidth=0.8)
    names = [shortened(features[at], 20) for at in order]
    ax.set_yticks(range(len(order)), names, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("change of the log-odds")
    ax.grid(True, axis="x")
    return ax


def _legend(ax: Axes, names: Sequence[str]) -> None:
    """Names beside the picture; given with their dots, because matplotlib hides `_names`."""
    dots = [ax.scatter([], [], color=SERIES[at % len(SERIES)], s=20) for at in range(len(names))]
    ax.legend(dots, names, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def _cloud(ax: Axes, real: Floats, made: Floats, first: str, second: str) -> None:
    ax.scatter(real[:, 0], real[:, 1], s=13, color=first, alpha=0.55, linewidths=0)
    ax.scatter(made[:, 0], made[:, 1], s=15, color=second, marker="x", linewidths=0.9)


def _frame(ax: Axes, points: Floats) -> None:
    """Limits that a few far points cannot blow up."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    pad = 0.08 * (high - low) + 1e-9
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))


def _recorded_scatter(tasks: Sequence[Mapping[str, Any]], ax: Axes) -> Axes:
    for at, task in enumerate(tasks):
        colour = SERIES[at % len(SERIES)]
        real, made = (np.array(task[kind])[:, :2] for kind in ("test", "generated"))
        _cloud(ax, real, made, colour, colour)
    _legend(ax, [f"task {shortened(task['task'])}" for task in tasks])
    ax.set(xlabel="first feature", ylabel="second feature")
    return ax


def _worst(curves: Curves) -> list[str]:
    """All lines where they can be told apart, else those that fell most or stand lowest."""
    if len(curves.lines) <= len(SERIES):
        return list(curves.lines)
    drop, last = curves.drops(), curves.last()
    order = sorted(curves.lines, key=lambda name: (-drop[name], last[name]))
    return order[: len(SERIES) - 1]


def _retention_axes(curves: Curves, ax: Axes, more: list[float]) -> None:
    values = [value for points in curves.lines.values() for _, value in points] + more
    floor = max(0.0, np.floor(10 * min(values) - 0.5) / 10)
    steps = np.arange(1, curves.updates + 1)
    every = int(np.ceil(len(steps) / 12))
    ax.set(xlabel="updates learned so far", ylabel="accuracy", ylim=(min(floor, 0.8), 1.02))
    ax.set_xticks(steps[::every], [str(step) for step in steps[::every]])
    ax.set_xlim(0.7, curves.updates + 0.5)
    ax.yaxis.set_major_formatter("{x:.2f}")
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.grid(True, axis="y")


def _name_ends(ax: Axes, ends: list[tuple[str, float, str]], x: float) -> None:
    """Each line's name at its right end, pushed apart where they would overlap."""
    low, high = ax.get_ylim()
    gap = 0.085 * (high - low)
    places: list[float] = []
    for _, value, _ in sorted(ends, key=lambda end: end[1]):
        places.append(max(value, places[-1] + gap) if places else value)
    over = max(0.0, places[-1] - high)
    for place, (name, _, colour) in zip(places, sorted(ends, key=lambda e: e[1]), strict=True):
        ax.annotate(
            shortened(name, 18),
            (x, place - over),
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize="small",
            annotation_clip=False,
        )


def _matrix(
    share: Floats, rows: Sequence[Any], columns: Sequence[Any], ax: Axes, what: str
) -> Axes:
    """Shares as depths of one colour over the paper, written in where there is room."""
    image = np.empty((*share.shape, 4))
    image[..., :3] = to_rgba(HEAT)[:3]
    image[..., 3] = share
    ax.imshow(image, interpolation="none", aspect="auto")
    if max(share.shape) <= WRITTEN:
        _write(share, ax)
    for names, axis, many in (
        (columns, ax.xaxis, f"{what} answered"),
        (rows, ax.yaxis, f"true {what}"),
    ):
        axis.set_label_text(many)
        if len(names) <= NAMED:
            axis.set_ticks(range(len(names)), [shortened(n, 16) for n in names], parse_math=False)
        else:
            axis.set_label_text(f"{many} (1 to {len(names)}, in the order learned)")
    if len(columns) <= NAMED:
        long = max(len(str(name)) for name in columns) * len(columns) > 40
        ax.tick_params(axis="x", rotation=90 if long else 0)
    size = 6.0 if 16 < max(len(rows), len(columns)) <= NAMED else 8.0
    ax.tick_params(length=0, labelsize=size)
    ax.spines[:].set_visible(True)
    return ax


def _write(share: Floats, ax: Axes) -> None:
    for row, column in np.argwhere(share >= 0.005):
        value = share[row, column]
        ax.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=7.5,
            color=ON_HEAT if value > 0.6 else INK,
        )


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot  # late: it chooses a backend for the whole process

    return pyplot.subplots(layout="constrained")[1]


def _exam(source: Source, X: Any, y: Any, task: Any) -> Exam:
    if isinstance(source, Exam):
        return source
    if isinstance(source, Mapping):
        raise InputError(
            "a benchmark's record has no rows for this picture; give a model and a table"
        )
    if X is None:
        raise InputError("give the rows X, or an exam of them")
    return examine_arrays(source, X, y, task)


def _labelled(source: Source, X: Any, y: Any, task: Any) -> Exam:
    exam = _exam(source, X, y, task)
    if not exam.labelled.any():
        raise InputError("the true labels are not told; give `y`, one label per row")
    return exam


def _needs(record: Mapping[str, Any], key: str) -> None:
    if key not in record:
        raise InputError(f"this benchmark's record has no {key!r}; it has {', '.join(record)}")
