"""Labelled rows larger than memory: read in pieces, shuffled through a bounded buffer."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clbruno.data.readers import Columns, read, tables_of
from clbruno.data.table import Table, match_features, read_labels, read_table, read_tasks
from clbruno.errors import InputError
from clbruno.registry import DEFAULT_TASK

BUFFER_NUMBERS = 2**23
"""Numbers in the buffer where no number of rows is given; at least `LEAST_ROWS` rows."""

LEAST_ROWS = 4096

PIECE_NUMBERS = 2**20
"""Numbers of an array that are read at a time."""

Part = tuple[int, int]
"""`(k, n)`: the k-th of n readers that share what there is to read."""

Pieces = Callable[[np.random.Generator, Part], Iterable[Any]]
"""What yields `(X, y)` or `(X, y, task)`; it may use the generator to choose an order."""


@dataclass(frozen=True)
class Block:
    """Rows that left the buffer together.

    Attributes:
        table: the features.
        labels: label of each row.
        tasks: task of each row.
    """

    table: Table
    labels: list[Any]
    tasks: list[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def taken(self, at: Any) -> "Block":
        """Some of the rows."""
        table = Table(self.table.x[at], self.table.names)
        return Block(table, [self.labels[i] for i in at], [self.tasks[i] for i in at])


class Stream:
    """Labelled rows for `partial_fit` that need not fit into memory.

    A full buffer gives half of its rows, drawn at random, as one block; blocks are learned one
    after another, as if each were handed to `partial_fit`, and count as one update. What is in
    memory at a time is one buffer, whatever the number of rows.

    Args:
        pieces: an iterable of `(X, y)` or `(X, y, task)`, read once and in its order.
        buffer: rows that are shuffled together; None fits them to 8 million numbers.

    Examples:
        >>> import numpy as np
        >>> rows = np.arange(10.0)[:, None]
        >>> stream = Stream(((rows, ["a", "b"] * 5) for _ in range(3)), buffer=16)
        >>> [len(block) for block in stream.blocks(seed=0)]
        [8, 8, 7, 7]
    """

    def __init__(self, pieces: Iterable[Any], *, buffer: int | None = None) -> None:
        self._pieces: Pieces = lambda *_: pieces
        self._buffer = _checked(buffer)

    @classmethod
    def of(cls, pieces: Pieces, *, buffer: int | None = None) -> "Stream":
        """A stream whose pieces are made anew, in an order of their own, for each pass."""
        stream = cls((), buffer=buffer)
        stream._pieces = pieces
        return stream

    @classmethod
    def of_arrays(
        cls, x: Any, y: Any, task: Any = DEFAULT_TASK, *, buffer: int | None = None
    ) -> "Stream":
        """The rows of an array or a memory map, its slices in random order.

        Args:
            x: rows by features; only a slice of it is read at a time.
            y: one label per row.
            task: one name for all rows, or one per row.
            buffer: rows that are shuffled together.
        """
        if not hasattr(x, "shape") or len(x.shape) != 2 or not hasattr(y, "__len__"):
            raise InputError("a stream of arrays needs X of rows by features and one y per row")
        if len(y) != len(x) or (_is_column(task) and len(task) != len(x)):
            raise InputError(f"X has {len(x)} rows, and there is not one label and task for each")
        size = max(1, PIECE_NUMBERS // max(x.shape[1], 1))

        def pieces(rng: np.random.Generator, _: Part) -> Iterator[Any]:
            for start in rng.permutation(np.arange(0, len(x), size)):
                rows = slice(start, start + size)
                yield x[rows], y[rows], task[rows] if _is_column(task) else task

        return cls.of(pieces, buffer=buffer)

    @classmethod
    def of_tables(
        cls,
        path: str | os.PathLike[str],
        *,
        label: str,
        task: str | None = None,
        task_column: str | None = None,
        ignore: tuple[str, ...] = (),
        buffer: int | None = None,
    ) -> "Stream":
        """The rows of a table, or of a folder of Parquet files in random order.

        Labels and tasks are texts, as on the command line. The ranks of a process group share the
        files of a folder, or the pieces of a single table.

        Args:
            path: a table that `clbruno learn` reads, or a folder of Parquet files.
            label: the column with the labels.
            task: the task of all rows.
            task_column: the column with the task of each row.
            ignore: columns that are no features.
            buffer: rows that are shuffled together.
        """
        if task is not None and task_column is not None:
            raise InputError("give task for all rows, or task_column for one per row, not both")
        text = (label,) if task_column is None else (label, task_column)
        columns = Columns(text=text, ignore=tuple(ignore))

        def pieces(rng: np.random.Generator, part: Part) -> Iterator[Any]:
            for file, mine in shared(os.fspath(path), part, rng):
                for chunk in mine(read(file, columns)):
                    tasks = task if task_column is None else chunk.text[task_column]
                    y = chunk.text[label]
                    yield Table(chunk.x, chunk.names), y, DEFAULT_TASK if tasks is None else tasks

        return cls.of(pieces, buffer=buffer)

    def blocks(self, seed: int | list[int], part: Part = (0, 1)) -> Iterator[Block]:
        """The blocks in the order in which they are learned; there may be none in a part."""
        rng = np.random.default_rng(seed)
        held: list[Block] = []
        rows = size = 0
        first: Table | None = None
        for piece in self._pieces(rng, part):
            block = _block(piece, first)
            if first is None:
                first = block.table
                size = self._buffer or max(LEAST_ROWS, BUFFER_NUMBERS // first.x.shape[1])
            for cut in _cut(block, size):
                held, rows = [*held, cut], rows + len(cut)
                while rows >= size:
                    full = _joined(held)
                    order = rng.permutation(rows)
                    yield full.taken(order[: size // 2])
                    held, rows = [full.taken(order[size // 2 :])], rows - size // 2
                    del full
        if first is None and part[1] > 1:
            return
        if first is None:
            raise InputError("the stream has no piece; give it at least one row")
        rest = _joined(held)
        order = rng.permutation(rows)
        for part_of in np.array_split(order, 1 if rows <= size // 2 else 2):
            yield rest.taken(part_of)


def shared(
    path: str, part: Part, rng: np.random.Generator
) -> Iterator[tuple[str, Callable[[Iterable[Any]], Iterable[Any]]]]:
    """The tables of a path that one of several readers takes, and which pieces of each.

    Every n-th file in random order; every n-th piece of what is a single table.
    """
    k, n = part
    tables = rng.permutation(tables_of(path)).tolist()
    if len(tables) == 1:
        yield tables[0], lambda pieces: itertools.islice(pieces, k, None, n)
        return
    for file in tables[k::n]:
        yield file, lambda pieces: pieces


def as_stream(x: Any, y: Any, task: Any) -> Stream | None:
    """The stream that X stands for: a `Stream`, an iterator of batches, or a path; else None."""
    if isinstance(x, os.PathLike) and not isinstance(y, str):
        raise InputError(f"{x}: say with y= which of its columns holds the labels")
    if isinstance(x, str | os.PathLike) and isinstance(y, str):
        return Stream.of_tables(x, label=y, task=None if task == DEFAULT_TASK else task)
    stream = x if isinstance(x, Stream) else Stream(x) if hasattr(x, "__next__") else None
    if stream is not None and y is not None:
        raise InputError("y comes with every batch of a stream; leave it out of the call")
    return stream


def _block(piece: Any, first: Table | None) -> Block:
    """A checked piece, its features in the order of the first piece's."""
    if not isinstance(piece, tuple) or len(piece) not in (2, 3):
        raise InputError("every piece of a stream must be a tuple (X, y) or (X, y, task)")
    table = piece[0] if isinstance(piece[0], Table) else read_table(piece[0], "a stream")
    if first is not None:
        x = match_features(table, first.names, first.x.shape[1], "a stream")
        table = Table(x, first.names)
    task = piece[2] if len(piece) == 3 else DEFAULT_TASK
    rows = len(table.x)
    return Block(table, read_labels(piece[1], rows), read_tasks(task, rows))


def _cut(block: Block, size: int) -> Iterator[Block]:
    """The block in parts that fit into the buffer."""
    if len(block) <= size:
        yield block
        return
    for start in range(0, len(block), size):
        yield block.taken(range(start, min(start + size, len(block))))


def _joined(blocks: list[Block]) -> Block:
    x = np.concatenate([block.table.x for block in blocks])
    labels = [label for block in blocks for label in block.labels]
    tasks = [task for block in blocks for task in block.tasks]
    return Block(Table(x, blocks[0].table.names), labels, tasks)


def _checked(buffer: int | None) -> int | None:
    if buffer is None:
        return None
    if isinstance(buffer, bool) or not hasattr(buffer, "__index__") or buffer < 2:
        raise InputError(f"buffer must be a whole number of at least 2 rows, got {buffer!r}")
    return buffer


def _is_column(task: Any) -> bool:
    return hasattr(task, "__len__") and not isinstance(task, str)
