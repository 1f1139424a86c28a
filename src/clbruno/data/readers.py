"""Read a table in pieces: CSV and TSV here, the binary formats in `readers_binary`.

Every reader yields `Chunk`s of a bounded size, so that a file larger than the memory can be
predicted; every error names the file, the row and the column.
"""

import csv
import gzip
import io
import itertools
import operator
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from clbruno.errors import InputError

CHUNK_CELLS = 1 << 20
_MAX_LINE = 1 << 24
_DELIMITERS = (",", "\t", ";")
_FORMATS = ".csv, .tsv (also with .gz), .parquet, .npz, .h5ad, or - for standard input"
_IN_FOLDERS = (".parquet", ".pq")


@dataclass(frozen=True)
class Columns:
    """Which columns are text to keep, and which are left out; the others are features.

    With `missing` a feature may be empty or NaN.
    """

    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table; `first` is the number of the first one, counted from 1."""

    names: tuple[str, ...] | None
    x: NDArray[np.floating]
    text: dict[str, NDArray[np.str_]]
    first: int


def read(source: str, columns: Columns, cells: int = CHUNK_CELLS) -> Iterator[Chunk]:
    """Yield the rows of a table in pieces of about `cells` values; the suffix names the format.

    A folder is read as the tables of `tables_of`, one after another.
    """
    if os.path.isdir(source):
        for table in tables_of(source):
            yield from read(table, columns, cells)
        return
    reader = _reader(source)
    empty = True
    try:
        for chunk in reader(source, columns, cells):
            empty = False
            yield chunk
    except FileNotFoundError:
        raise InputError(f"{source}: there is no such file") from None
    except PermissionError:
        raise InputError(f"{source}: no permission to read it") from None
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error}") from error
    if empty:
        raise InputError(f"{source}: there is no row of data in it")


def tables_of(source: str) -> list[str]:
    """The Parquet files of a folder and of the folders in it, in order; or the one table itself."""
    if not os.path.isdir(source):
        return [source]
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(source)
        for name in names
        if name.endswith(_IN_FOLDERS) and not name.startswith((".", "_"))
    ]
    if not found:
        raise InputError(
            f"{source} is a folder without a Parquet file; name a table, or such a one"
        )
    return sorted(found)


def _reader(source: str) -> Callable[[str, Columns, int], Iterator[Chunk]]:
    suffix = os.path.splitext(source.removesuffix(".gz"))[1].lower()
    if source == "-" or suffix in ("", ".csv", ".tsv", ".txt"):
        return _read_text
    from clbruno.data import readers_binary

    try:
        return readers_binary.BY_SUFFIX[suffix]
    except KeyError:
        raise InputError(f"{source}: unknown format {suffix!r}; known are {_FORMATS}") from None


def split_columns(
    source: str, header: Sequence[str], columns: Columns
) -> tuple[dict[str, int], list[int]]:
    """Where the text columns stand, and where the features stand, in a header."""
    place = {name: index for index, name in enumerate(header)}
    if len(place) != len(header):
        twice = [name for name, count in Counter(header).items() if count > 1]
        raise InputError(f"{source}: {_listed(twice)} stands in the header more than once")
    for name in (*columns.text, *columns.ignore):
        if name not in place:
            raise InputError(f"{source}: there is no column {name!r}; it has {_listed(header)}")
    left_out = {place[name] for name in (*columns.text, *columns.ignore)}
    features = [index for index in range(len(header)) if index not in left_out]
    if not features:
        raise InputError(f"{source}: no column is left to serve as a feature")
    return {name: place[name] for name in columns.text}, features


def checked_features(
    source: str,
    x: NDArray[np.floating],
    names: Sequence[str] | None,
    row_name: Callable[[int], str],
    missing: bool = False,
) -> NDArray[np.floating]:
    """The same values, row by row, if all are finite; else an error names the first that is not."""
    finite = ~np.isinf(x) if missing else np.isfinite(x)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        where = repr(names[column]) if names is not None else str(column + 1)
        raise InputError(
            f"{source}, {row_name(int(row))}, column {where} holds {x[row, column]}; every feature "
            "needs a finite number: fill it in, or leave out the row or the column"
        )
    # Sums depend on the order of the values in memory to the last bit; the format must not.
    return np.ascontiguousarray(x)


def checked_text(
    source: str, column: str, values: Sequence[str], row_name: Callable[[int], str]
) -> NDArray[np.str_]:
    """Text cells without the spaces around them; an empty one is an error."""
    stripped = [value.strip() for value in values]
    if "" in stripped:
        row = row_name(stripped.index(""))
        raise InputError(f"{source}, {row}: column {column!r} is empty; fill it in")
    return np.array(stripped, dtype=np.str_)


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name[:60]) for name in names[:5]) + rest


# Text is parsed by the standard library: pyarrow is an optional extra, and its CSV reader neither
# names the line of a bad cell nor keeps "01" as text unless every column's type is told beforehand.
# One core reads 3 million cells a second this way.
def _read_text(source: str, columns: Columns, cells: int) -> Iterator[Chunk]:
    with _opened_text(source) as file:
        records = _Records(source, file)
        header = [name.strip() for name in next(records)]
        records.expect(header)
        text_at, feature_at = split_columns(source, header, columns)
        names = tuple(header[index] for index in feature_at)
        pick = operator.itemgetter(*feature_at) if len(feature_at) > 1 else None
        size = max(1, cells // len(header))
        first = 1
        while rows := list(itertools.islice(records, size)):
            row_name = records.row_namer(first, len(rows))
            features = [pick(row) if pick else (row[feature_at[0]],) for row in rows]
            if columns.missing:
                features = [
                    tuple(cell if cell.strip() else "nan" for cell in row) for row in features
                ]
            x = _numbers(source, features, names, row_name)
            text = {
                name: checked_text(source, name, [row[index] for row in rows], row_name)
                for name, index in text_at.items()
            }
            yield Chunk(
                names, checked_features(source, x, names, row_name, columns.missing), text, first
            )
            first += len(rows)


@contextmanager
def _opened_text(source: str) -> Iterator[TextIO]:
    raw: BinaryIO = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115
    try:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"  # type: ignore[attr-defined]
        plain = gzip.GzipFile(fileobj=raw) if zipped else raw
        text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")
        try:
            yield text
        except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            kind = "a damaged gzip file" if zipped else "not text in UTF-8"
            raise InputError(f"{source} is {kind}: {error}") from error
        finally:
            text.detach()
    finally:
        if source != "-":
            raw.close()


class _Records:
    """The records of a delimited text, each as wide as the header, with the lines they stand on."""

    def __init__(self, source: str, file: TextIO) -> None:
        self._source = source
        lines = _lines(source, file)
        first = next(lines, "")
        if not first.strip():
            raise InputError(f"{source} is empty, or its first line is: it needs a header")
        if "\0" in first:
            raise InputError(f"{source} is not a table in text form")
        delimiter = _delimiter(source, first)
        self._reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
        self._header: list[str] = []
        self._lines: list[int] = []

    def expect(self, header: list[str]) -> None:
        """From now on every record must have as many cells as this header."""
        if _all_numbers(header):
            raise InputError(
                f"{self._source}: its first line holds numbers only; add a header with the names "
                "of the columns"
            )
        self._header = header

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        line = self._reader.line_num + 1
        try:
            record = next(self._reader)
            while not record:
                line = self._reader.line_num + 1
                record = next(self._reader)
        except csv.Error as error:
            raise InputError(
                f"{self._source}, line {line}: {error}; is a quotation mark left open?"
            ) from error
        if self._header and len(record) != len(self._header):
            raise InputError(
                f"{self._source}, line {line} has {len(record)} cells, and the header has "
                f"{len(self._header)}"
            )
        self._lines.append(line)
        return record

    def row_namer(self, first: int, count: int) -> Callable[[int], str]:
        """A function that names the last `count` rows for an error message."""
        lines, self._lines = self._lines[-count:], []
        return lambda index: f"row {first + index} (line {lines[index]})"


def _lines(source: str, file: TextIO) -> Iterator[str]:
    # A few zipped kilobytes can stand for a line that no memory holds.
    while line := file.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise InputError(
                f"{source} is not a table in text form: it has a line of over {_MAX_LINE:,} "
                "characters"
            )
        yield line


def _delimiter(source: str, line: str) -> str:
    outside_quotes = "".join(line.split('"')[::2])
    if ".tsv" in source and "\t" in outside_quotes:
        return "\t"
    return max(_DELIMITERS, key=outside_quotes.count)


def _all_numbers(header: list[str]) -> bool:
    # 0, 1, 2, ... are names: data frames without names are written so.
    if header == [str(index) for index in range(len(header))]:
        return False
    try:
        for name in header:
            float(name)
    except ValueError:
        return False
    return True


def _numbers(
    source: str,
    rows: Sequence[tuple[str, ...]],
    names: Sequence[str],
    row_name: Callable[[int], str],
) -> NDArray[np.float64]:
    try:
        # Python reads "20_21" as 2021; in a table that is a name, never a number.
        if any("_" in "".join(row) for row in rows):
            raise ValueError("_")
        return np.array(rows, dtype=np.float64)
    except ValueError:
        for index, row in enumerate(rows):
            for name, cell in zip(names, row, strict=True):
                if not _is_number(cell):
                    raise InputError(_not_a_number(source, row_name(index), name, cell)) from None
        raise


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _not_a_number(source: str, row: str, column: str, cell: str) -> str:
    where = f"{source}, {row}, column {column!r}"
    if not cell.strip():
        return f"{where} is empty; fill it in, or leave out the row or the column"
    if _is_number(cell.replace(",", ".", 1)):
        return f"{where} holds {cell!r}; write decimals with a point"
    return (
        f"{where} holds {cell[:60]!r}, which is not a number; if the column is no feature, "
        f"leave it out with --ignore {column!r}"
    )
