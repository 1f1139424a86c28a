"""`clbruno report` and `clbruno card`: what a person reads about a model file."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from clbruno.cli.console import say
from clbruno.cli.tables import chunks_of_features, names_like
from clbruno.data.readers import Columns
from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier
from clbruno.persist import atomic, load

if TYPE_CHECKING:
    from clbruno.report.exam import Exam, Piece


@dataclass(frozen=True)
class Tables:
    """The tables that a model is asked about, and which of their columns are what."""

    paths: tuple[str, ...]
    label: str | None
    tasks: tuple[str, ...]
    task_column: str | None
    id_column: str | None
    ignore: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.paths and (self.label or self.tasks or self.task_column or self.id_column):
            raise InputError("--label, --task, --task-column and --id need --data")
        if self.tasks and self.task_column is not None:
            raise InputError("give --task for all rows, or --task-column for one per row, not both")
        if len(self.tasks) > 1 and len(self.tasks) != len(self.paths):
            raise InputError(
                f"give --task once for all files, or once per --data: there are {len(self.tasks)} "
                f"and {len(self.paths)}"
            )

    @property
    def columns(self) -> Columns:
        """The columns that are no features."""
        text = tuple(n for n in (self.label, self.task_column, self.id_column) if n is not None)
        return Columns(text=tuple(dict.fromkeys(text)), ignore=self.ignore)


def report(
    model: str,
    data: tuple[str, ...],
    label: str | None,
    task: tuple[str, ...],
    task_column: str | None,
    id_column: str | None,
    explain: tuple[str, ...],
    ignore: tuple[str, ...],
    output: str,
) -> None:
    """Write the report of a model as one HTML file."""
    tables = Tables(data, label, task, task_column, id_column, ignore)
    if explain and not data:
        raise InputError("--explain names rows of --data; give it too")
    _spare(output, model, *data)
    try:
        from clbruno.report.page import Subject
        from clbruno.report.page import report as render
    except ImportError as error:
        raise _without_extra(error) from None
    reader = load(model)
    exam = _exam(reader, tables, explain)
    subject = Subject(reader, Path(model).name, os.path.getsize(model), exam, explain)
    _write(output, render(subject))


def card(
    model: str,
    data: tuple[str, ...],
    label: str | None,
    task: tuple[str, ...],
    task_column: str | None,
    ignore: tuple[str, ...],
    output: str,
) -> None:
    """Write the card of a model as one Markdown file."""
    tables = Tables(data, label, task, task_column, None, ignore)
    if data and label is None:
        raise InputError("a card measures performance on --data; name the labels' --label")
    _spare(output, model, *data)
    try:
        from clbruno.report.card import render
    except ImportError as error:
        raise _without_extra(error) from None
    reader = load(model)
    _write(output, render(reader, Path(model), _exam(reader, tables, ())))


def _exam(model: CLBrunoClassifier, tables: Tables, wanted: tuple[str, ...]) -> "Exam | None":
    from clbruno.report.exam import examine

    return examine(model, _pieces(model, tables), wanted) if tables.paths else None


def _pieces(model: CLBrunoClassifier, tables: Tables) -> Iterator["Piece"]:
    """The rows of all files in the terms of the model, chunk by chunk."""
    from clbruno.report.exam import Piece

    registry = model.model_.registry
    for number, path in enumerate(tables.paths):
        task = None if not tables.tasks else tables.tasks[number % len(tables.tasks)]
        for chunk, x in chunks_of_features(path, tables.columns, model):
            labels, tasks = None, None
            if tables.label is not None:
                labels = names_like(registry.labels[0], chunk.text[tables.label].tolist(), "label")
            if tables.task_column is not None:
                tasks = chunk.text[tables.task_column].tolist()
            elif task is not None:
                tasks = [task] * len(x)
            if tasks is not None:
                tasks = names_like(registry.tasks[0], tasks, "task")
            if tables.id_column is not None:
                names = chunk.text[tables.id_column].tolist()
            else:
                start = f"{Path(path).name}, row " if len(tables.paths) > 1 else "row "
                names = [f"{start}{chunk.first + at}" for at in range(len(x))]
            yield Piece(x, names, labels, tasks)


def _spare(output: str, *inputs: str) -> None:
    """Refuse to write over what is read."""
    for path in inputs:
        if os.path.exists(output) and os.path.exists(path) and os.path.samefile(output, path):
            raise InputError(f"{output} is read here; write the result to another file with -o")


def _write(path: str, text: str) -> None:
    with atomic.writing(path) as target:
        # A name may hold half of a character pair, which no encoding can write.
        target.replace(lambda file: _put(file, text.encode("utf-8", "replace")))
    say(f"Wrote {Path(path).resolve()}")


def _put(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _without_extra(error: ImportError) -> InputError:
    return InputError(
        f"{error.name} is not installed, and this needs it: pip install 'clbruno[report]'"
    )
