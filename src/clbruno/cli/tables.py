"""Tables of the command line in the terms of a model: its features in order, its kind of names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray

from clbruno.cli.console import watched
from clbruno.core.missing import separation
from clbruno.data.readers import Chunk, Columns, read
from clbruno.data.stream import Part, Stream, shared
from clbruno.data.table import Table, first_names, match_features, with_missing
from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier
from clbruno.registry import DEFAULT_TASK


@dataclass(frozen=True)
class Source:
    """A labelled table: where it is, and which of its columns are what."""

    path: str
    label: str
    task: str | None
    task_column: str | None
    ignore: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.label in (self.task_column, *self.ignore):
            raise InputError(f"the column {self.label!r} holds the labels; name it as that alone")
        if self.task == "":
            raise InputError("the name of the task is empty; leave --task out, or give it a name")

    @property
    def columns(self) -> Columns:
        """The columns that are no features."""
        kept = (self.label,) if self.task_column is None else (self.label, self.task_column)
        return Columns(text=kept, ignore=self.ignore)


@dataclass(frozen=True)
class Features:
    """The features that a table must have, by name where they have names."""

    names: tuple[str, ...] | None
    width: int


@dataclass(frozen=True)
class Labelled:
    """All rows of a labelled table."""

    x: NDArray[np.floating]
    names: tuple[str, ...] | None
    labels: list[Any]
    tasks: list[Any]

    @property
    def cells(self) -> list[tuple[Any, Any]]:
        """The (task, label) of each row."""
        return list(zip(self.tasks, self.labels, strict=True))


def read_labelled(
    source: Source, model: CLBrunoClassifier, like: Labelled | None = None
) -> Labelled:
    """Read a table whole, with its features in the order of the model, or of the table `like`."""
    expected = expected_features(model)
    if expected is None and like is not None:
        expected = Features(like.names, like.x.shape[1])
    chunks = list(watched(read(source.path, source.columns), "reading", lambda c: len(c.x)))
    parts = [_labelled(chunk, source, model, expected) for chunk in chunks]
    return Labelled(
        np.concatenate([part.x for part in parts]),
        chunks[0].names,
        [name for part in parts for name in part.labels],
        [name for part in parts for name in part.tasks],
    )


def stream_labelled(source: Source, model: CLBrunoClassifier, buffer: int | None) -> Stream:
    """The same rows, never whole in memory; the files of a folder in random order."""
    expected = expected_features(model)

    def pieces(
        rng: np.random.Generator, part: Part
    ) -> Iterator[tuple[Table, list[Any], list[Any]]]:
        for path, mine in shared(source.path, part, rng):
            chunks = mine(read(path, source.columns))
            for chunk in watched(chunks, f"learning {path}", lambda c: len(c.x)):
                rows = _labelled(chunk, source, model, expected)
                names = chunk.names if expected is None else expected.names
                yield Table(rows.x, names), rows.labels, rows.tasks

    return Stream.of(pieces, buffer=buffer)


def _labelled(
    chunk: Chunk, source: Source, model: CLBrunoClassifier, expected: Features | None
) -> Labelled:
    """A chunk in the terms of the model."""
    x = features_of(chunk, source.path, expected)
    labels = chunk.text[source.label].tolist()
    if source.task_column is None:
        tasks = [DEFAULT_TASK if source.task is None else source.task] * len(labels)
    else:
        tasks = chunk.text[source.task_column].tolist()
    if not hasattr(model, "model_"):
        return Labelled(x, chunk.names, labels, tasks)
    registry = model.model_.registry
    return Labelled(
        x,
        chunk.names,
        names_like(registry.labels[0], labels, "label"),
        names_like(registry.tasks[0], tasks, "task"),
    )


def expected_features(model: CLBrunoClassifier) -> Features | None:
    """The features that a model was learned from; None before it has learned any."""
    if not hasattr(model, "model_"):
        return None
    names = getattr(model, "feature_names_in_", None)
    return Features(None if names is None else tuple(names), model.n_features_in_)


def features_of(chunk: Chunk, path: str, expected: Features | None) -> NDArray[np.floating]:
    """The features of a chunk in the expected order."""
    if expected is None:
        return chunk.x
    table = Table(chunk.x, chunk.names)
    try:
        x = match_features(table, expected.names, expected.width, "the model")
    except InputError as error:
        raise InputError(
            f"{path}: {error} (a column that is no feature is left out with --ignore)"
        ) from None
    return np.ascontiguousarray(x)


def names_like(known: Any, names: Sequence[str], what: str) -> list[Any]:
    """Names from a text in the kind of the model's: a model made in Python may have numbers."""
    if isinstance(known, str):
        return list(names)
    kind = {"True": True, "False": False}.__getitem__ if type(known) is bool else type(known)
    try:
        values = {name: kind(name) for name in dict.fromkeys(names)}
    except (ValueError, KeyError):
        raise InputError(
            f"the model's {what}s are of another kind, such as {known!r}, than {names[0]!r}"
        ) from None
    return [values[name] for name in names]


def chunks_of_features(
    path: str, columns: Columns, model: CLBrunoClassifier
) -> Iterator[tuple[Chunk, NDArray[np.floating]]]:
    """The rows of a table, chunk by chunk, with their features in the model's order."""
    expected = expected_features(model)
    assert expected is not None
    for number, chunk in enumerate(watched(read(path, columns), "reading", lambda c: len(c.x))):
        report = coverage(model, chunk.names) if number == 0 else None
        if report and columns.missing:
            click.echo(f"{path}: {report}", err=True)
        try:
            if columns.missing:
                table = with_missing(Table(chunk.x, chunk.names), expected.names)
                yield (
                    chunk,
                    features_of(replace(chunk, x=table.x, names=table.names), path, expected),
                )
            else:
                yield chunk, features_of(chunk, path, expected)
        except InputError as error:
            if report is None:
                raise
            raise InputError(f"{error}. {report}; --missing marginal answers from them") from None


def coverage(model: CLBrunoClassifier, names: Sequence[str] | None) -> str | None:
    """Which features of the model a table has, and what they carry; None if it has all of them."""
    learned = getattr(model, "feature_names_in_", None)
    if learned is None or names is None or set(learned) <= set(names):
        return None
    there = [at for at, name in enumerate(learned) if name in set(names)]
    gone = [str(name) for name in learned if name not in set(names)]
    share = separation(model.model_, torch.tensor(there, dtype=torch.long))
    return (
        f"{len(there)} of {len(learned)} features are there, and carry {share:.0%} of the "
        f"separation of the classes; missing: {first_names(gone)}"
    )
