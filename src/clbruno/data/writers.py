"""Write a table piece by piece, in the format that the suffix names, whole or not at all."""

import csv
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clbruno.errors import InputError
from clbruno.persist import atomic


@dataclass(frozen=True)
class Rows:
    """Some rows of a result: named columns, and perhaps features after them."""

    columns: dict[str, NDArray[Any]]
    names: tuple[str, ...] = ()
    x: NDArray[np.floating] | None = field(default=None)

    def flat(self) -> dict[str, NDArray[Any]]:
        """Every column under its name, the features among them."""
        if self.x is None:
            return self.columns
        return {**self.columns, **dict(zip(self.names, self.x.T, strict=True))}


Writer = Callable[[BinaryIO, Iterable[Rows]], None]


def writer_for(path: str) -> Writer:
    """The writer of the format that the suffix of `path` names."""
    plain = path.removesuffix(".gz")
    writer = _WRITERS.get(os.path.splitext(plain)[1].lower())
    if writer is None or (plain != path and writer in (_write_npz, _write_parquet)):
        raise InputError(f"{path}: unknown output format; known are {', '.join(_WRITERS)}")
    return _zipped(writer) if plain != path else writer


def write(path: str, rows: Iterable[Rows]) -> None:
    """Write all rows to a file, which appears, or is replaced, when the last one is written."""
    writer = writer_for(path)
    with atomic.writing(path) as target:
        target.replace(lambda file: writer(file, rows))


def write_csv(file: BinaryIO, rows: Iterable[Rows]) -> None:
    """Comma-separated UTF-8 text; numbers in the shortest form that reads back the same."""
    _write_delimited(file, rows, ",")


def write_json_lines(file: BinaryIO, rows: Iterable[Rows]) -> None:
    """One JSON object a line."""
    for record in _records(rows):
        file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def _write_tsv(file: BinaryIO, rows: Iterable[Rows]) -> None:
    _write_delimited(file, rows, "\t")


def _write_delimited(file: BinaryIO, rows: Iterable[Rows], delimiter: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        table = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        for index, part in enumerate(rows):
            columns = part.flat()
            if index == 0:
                table.writerow(columns)
            table.writerows(zip(*(c.astype(np.str_) for c in columns.values()), strict=True))
    finally:
        text.detach()


def _write_json(file: BinaryIO, rows: Iterable[Rows]) -> None:
    separator = b"["
    for record in _records(rows):
        file.write(separator + b"\n" + json.dumps(record, ensure_ascii=False).encode())
        separator = b","
    file.write(b"\n]\n" if separator == b"," else b"[]\n")


def _records(rows: Iterable[Rows]) -> Iterable[dict[str, Any]]:
    for part in rows:
        columns = part.flat()
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            yield dict(zip(columns, values, strict=True))


def _write_npz(file: BinaryIO, rows: Iterable[Rows]) -> None:
    parts = list(rows)
    arrays = {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns}
    features = [part.x for part in parts if part.x is not None]
    if features:
        arrays |= {"X": np.concatenate(features), "feature_names": np.array(parts[0].names)}
    # Not `np.savez`: there a column called "file" would be taken for its first argument.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_parquet(file: BinaryIO, rows: Iterable[Rows]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            "writing Parquet needs pyarrow; install it with: pip install 'clbruno[parquet]'"
        ) from None
    output = None
    try:
        for part in rows:
            table = pa.table({name: pa.array(column) for name, column in part.flat().items()})
            output = output or pq.ParquetWriter(file, table.schema)
            output.write_table(table)
    finally:
        if output is not None:
            output.close()


def _zipped(writer: Writer) -> Writer:
    def write_zipped(file: BinaryIO, rows: Iterable[Rows]) -> None:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
            writer(zipped, rows)  # type: ignore[arg-type]

    return write_zipped


_WRITERS: dict[str, Writer] = {
    ".csv": write_csv,
    ".tsv": _write_tsv,
    ".json": _write_json,
    ".jsonl": write_json_lines,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}
