"""What a model answers on a table, in one value that every picture and every table is made from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clbruno.data.table import read_labels, read_table, read_tasks
from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEPT = 1500
"""Rows whose features are kept for the pictures that need them, spread evenly over the data."""

UNKNOWN = -1
"""Code of a label or a task that was not told."""


@dataclass(frozen=True)
class Piece:
    """Some rows to be asked about, with what is known of them."""

    x: Any
    names: Sequence[str]
    labels: Sequence[Any] | None = None
    tasks: Sequence[Any] | None = None


@dataclass(frozen=True)
class Exam:
    """Answers and, where they are known, truths; one entry per row.

    Attributes:
        labels: what `truth` and `label` count: the model's labels, then those it never learned.
        tasks: what `true_task` and `task` count, in the same way.
        known_labels: how many of `labels` the model knows.
        known_tasks: how many of `tasks` the model knows.
        names: of the rows.
        truth: true label, -1 where it is not told.
        true_task: true task, -1 where it is not told.
        label: most probable label, task not told.
        probability: p(y | x) of it.
        runner_up: the second most probable label; the first where there is one only.
        runner_up_probability: p(y | x) of it.
        label_in_task: most probable label in the true task, -1 where no known task is told.
        task: most probable task.
        task_proba: p(t | x), one column per known task.
        typicality: p-value of the level-set test.
        log_density: log p(x), which orders rows of equal typicality.
        at: positions of the rows whose features are kept.
        x: their features.
        named: features of the rows that were asked for by name.
    """

    labels: tuple[Any, ...]
    tasks: tuple[Any, ...]
    known_labels: int
    known_tasks: int
    names: tuple[str, ...]
    truth: Ints
    true_task: Ints
    label: Ints
    probability: Floats
    runner_up: Ints
    runner_up_probability: Floats
    label_in_task: Ints
    task: Ints
    task_proba: Floats
    typicality: Floats
    log_density: Floats
    at: Ints
    x: Floats
    named: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Rows whose label is told."""
        return np.not_equal(self.truth, UNKNOWN)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Rows whose label is told and was found."""
        found: NDArray[np.bool_] = self.labelled & (self.label == self.truth)
        return found

    def accuracy(self) -> float:
        """Share of the labelled rows that are right, task not told."""
        return float(self.right[self.labelled].mean())


def examine(model: CLBrunoClassifier, pieces: Iterable[Piece], wanted: Sequence[str] = ()) -> Exam:
    """Ask the model about every row; a piece at a time, so that it may be a long table.

    Args:
        model: a taught estimator.
        pieces: the rows.
        wanted: names of rows whose features are to be kept.
    """
    labels, tasks = _Codes(model.classes_.tolist()), _Codes(model.tasks_.tolist())
    answers: dict[str, list[NDArray[Any]]] = {}
    names: list[str] = []
    kept, named = _Kept(), {}
    for piece in pieces:
        x = model._input(piece.x)
        names += piece.names
        for name, values in _answers(model, x, piece, labels, tasks).items():
            answers.setdefault(name, []).append(values)
        kept.add(x)
        for name in set(wanted).intersection(piece.names):
            named[name] = np.array(x[list(piece.names).index(name)], dtype=np.float64)
    if not names:
        raise InputError("there is no row to examine")
    missing = [name for name in wanted if name not in named]
    if missing:
        raise InputError(f"there is no row called {missing[0]!r}; there is {names[0]!r}, say")
    at, x = kept.rows()
    return Exam(
        labels=tuple(labels.names),
        tasks=tuple(tasks.names),
        known_labels=labels.known,
        known_tasks=tasks.known,
        names=tuple(names),
        **{name: np.concatenate(parts) for name, parts in answers.items()},
        at=at,
        x=x,
        named=named,
    )


def examine_arrays(model: CLBrunoClassifier, x: Any, y: Any = None, task: Any = None) -> Exam:
    """The exam of one table in memory, with `y` and `task` as in `partial_fit`, if known."""
    rows = len(read_table(x, type(model).__name__).x)
    labels = None if y is None else read_labels(y, rows)
    tasks = None if task is None else read_tasks(task, rows)
    return examine(model, [Piece(x, [f"row {at + 1}" for at in range(rows)], labels, tasks)])


def _answers(
    model: CLBrunoClassifier, x: NDArray[Any], piece: Piece, labels: "_Codes", tasks: "_Codes"
) -> dict[str, NDArray[Any]]:
    rows = np.arange(len(x))
    proba, task_proba = model.predict_proba(x), model.predict_task_proba(x)
    best = np.argsort(-proba, axis=1, kind="stable")[:, :2]
    first, second = best[:, 0], best[:, -1]
    true_task = tasks.of(piece.tasks, len(rows))
    return {
        "truth": labels.of(piece.labels, len(rows)),
        "true_task": true_task,
        "label": first,
        "probability": proba[rows, first],
        "runner_up": second,
        "runner_up_probability": proba[rows, second],
        "label_in_task": _in_task(model, x, true_task),
        "task": task_proba.argmax(axis=1),
        "task_proba": task_proba,
        "typicality": model.typicality(x),
        "log_density": model.score_samples(x),
    }


def _in_task(model: CLBrunoClassifier, x: NDArray[Any], task: Ints) -> Ints:
    """The most probable label of each row in its own task, where the model knows it."""
    found = np.full(len(task), UNKNOWN)
    known = np.flatnonzero((task >= 0) & (task < len(model.tasks_)))
    if len(known):
        names = model.tasks_[task[known]].tolist()
        found[known] = model.predict_proba(x[known], names).argmax(axis=1)
    return found


class _Codes:
    """Names to positions; a name that is new gets the next one."""

    def __init__(self, known: list[Any]) -> None:
        self.names, self.known = list(known), len(known)
        self._place = {name: at for at, name in enumerate(known)}

    def of(self, names: Sequence[Any] | None, rows: int) -> Ints:
        if names is None:
            return np.full(rows, UNKNOWN)
        for name in names:
            if name not in self._place:
                self._place[name] = len(self.names)
                self.names.append(name)
        return np.array([self._place[name] for name in names], dtype=np.int64)


class _Kept:
    """Every 2^k-th row, with k just large enough for at most `KEPT` of them."""

    def __init__(self) -> None:
        self._step, self._seen = 1, 0
        self._at = np.empty(0, dtype=np.int64)
        self._x: Floats | None = None

    def add(self, x: NDArray[Any]) -> None:
        here = np.arange(-self._seen % self._step, len(x), self._step)
        more = np.array(x[here], dtype=np.float64)
        self._at = np.concatenate([self._at, self._seen + here])
        self._x = more if self._x is None else np.concatenate([self._x, more])
        self._seen += len(x)
        while len(self._at) > KEPT:
            self._step *= 2
            left = self._at % self._step == 0
            self._at, self._x = self._at[left], self._x[left]

    def rows(self) -> tuple[Ints, Floats]:
        assert self._x is not None
        return self._at, self._x
