"""`clbruno predict` and `clbruno sample`."""

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from clbruno.answers import COLUMNS, answers
from clbruno.cli.console import say, show_table, watched
from clbruno.cli.tables import chunks_of_features, names_like
from clbruno.core.model import chunks_of
from clbruno.data.readers import CHUNK_CELLS, Columns
from clbruno.data.writers import Rows, write, write_csv, write_json_lines, writer_for
from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier
from clbruno.persist import load

_SHOWN = 20
_ANSWERS = (*COLUMNS, "set")


def predict(
    model: str,
    data: str,
    task: str | None,
    id_column: str | None,
    missing: str,
    coverage: float | None,
    abstain: float | None,
    ignore: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> None:
    """Predict every row of a table, a chunk at a time."""
    if id_column in _ANSWERS:
        raise InputError(f"the id column cannot be called {id_column!r}: the output has one too")
    if output is not None:
        writer_for(output)
    reader = load(model).set_params(missing=missing)
    text = () if id_column is None else (id_column,)
    columns = Columns(text=text, ignore=ignore, missing=missing == "marginal")
    _emit(_answers(reader, data, columns, task, coverage, abstain), output, as_json)


def _answers(
    model: CLBrunoClassifier,
    data: str,
    columns: Columns,
    task: str | None,
    coverage: float | None,
    abstain: float | None,
) -> Iterator[Rows]:
    registry = model.model_.registry
    known = None if task is None else names_like(registry.tasks[0], [task], "task")[0]
    for chunk, x in chunks_of_features(data, columns, model):
        found = answers(model, x, known)
        if abstain is not None:
            sure = model.predict(x, known, abstain=abstain)
            found["label"] = np.array(["" if answer is None else str(answer) for answer in sure])
        if coverage is not None:
            inside = model.predict_set(x, coverage, known)
            found["set"] = np.array(["|".join(map(str, model.classes_[row])) for row in inside])
        yield Rows({**chunk.text, **found})


def sample(
    model: str,
    count: int,
    task: str | None,
    label: str | None,
    seed: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Draw samples and write them as a table that `clbruno learn` reads."""
    if output is not None:
        writer_for(output)
    maker = load(model)
    registry = maker.model_.registry
    task_name = None if task is None else names_like(registry.tasks[0], [task], "task")[0]
    label_name = None if label is None else names_like(registry.labels[0], [label], "label")[0]
    width = maker.n_features_in_
    names = tuple(getattr(maker, "feature_names_in_", [f"x{at}" for at in range(width)]))
    clash = {"label"} | ({"task"} if task is not None else set())
    clash &= set(names)
    if clash:
        raise InputError(f"the model has a feature called {clash.pop()!r}: the output has one too")

    def made() -> Iterator[Rows]:
        state = np.random.RandomState(seed)
        for rows in chunks_of(count, max(1, CHUNK_CELLS // width)):
            n = rows.stop - rows.start
            x, labels = maker.sample(n, task_name, label_name, random_state=state)
            columns = {"label": labels}
            if task is not None:
                columns["task"] = np.full(n, task)
            yield Rows(columns, names, x)

    _emit(watched(made(), "sampling", lambda part: len(part.columns["label"])), output, as_json)


def _emit(rows: Iterable[Rows], output: str | None, as_json: bool) -> None:
    if output is not None:
        counted = _Counted(rows)
        write(output, counted)
        say(f"Wrote {counted.count:,} rows to {output}.")
    elif as_json:
        write_json_lines(sys.stdout.buffer, rows)
    elif sys.stdout.isatty():
        _show(rows)
    else:
        write_csv(sys.stdout.buffer, rows)


class _Counted:
    """Rows that are counted while they pass."""

    def __init__(self, rows: Iterable[Rows]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Rows]:
        for part in self._rows:
            self.count += len(next(iter(part.columns.values())))
            yield part


def _show(rows: Iterable[Rows]) -> None:
    """The first rows as a table, and how often each label comes."""
    first: list[tuple[object, ...]] = []
    labels: Counter[str] = Counter()
    names: tuple[str, ...] = ()
    for part in rows:
        columns = part.flat()
        names = tuple(columns)
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        first += itertools.islice(values, _SHOWN - len(first))
        labels.update(map(str, part.columns["label"].tolist()))
    show_table(names, first)
    rest = labels.total() - len(first)
    if rest:
        say(f"... and {rest:,} more rows; -o FILE writes them all.")
    say(", ".join(f"{name}: {count:,}" for name, count in labels.most_common(10)))
