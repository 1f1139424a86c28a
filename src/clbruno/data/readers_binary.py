"""Read NPZ, Parquet and h5ad tables in pieces, without ever holding the whole matrix."""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from clbruno.data.readers import (
    Chunk,
    Columns,
    checked_features,
    checked_text,
    split_columns,
)
from clbruno.errors import InputError

Reader = Callable[[str, Columns, int], Iterator[Chunk]]


def read_npz(source: str, columns: Columns, cells: int) -> Iterator[Chunk]:
    """NPZ: the matrix is the array `X`, its optional names `feature_names`, the text 1-D arrays."""
    try:
        with zipfile.ZipFile(source) as archive:
            members = {name.removesuffix(".npy") for name in archive.namelist()}
            if "X" not in members:
                raise InputError(f"{source}: there is no array 'X'; it has {sorted(members)[:5]}")
            names = _npz_text(source, archive, members, "feature_names", optional=True)
            _refuse_unknown(source, columns.ignore, [*names, *sorted(members)])
            text = {name: _npz_text(source, archive, members, name) for name in columns.text}
            with archive.open("X.npy") as file:
                yield from _npz_chunks(source, file, names, text, columns, cells)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source} is not a readable NPZ file: {error}") from error


def _npz_text(
    source: str, archive: zipfile.ZipFile, members: set[str], name: str, optional: bool = False
) -> list[str]:
    if name not in members:
        if optional:
            return []
        raise InputError(f"{source}: there is no array {name!r}; it has {sorted(members)[:5]}")
    with archive.open(f"{name}.npy") as file:
        values = np.lib.format.read_array(file)
    if values.ndim != 1 or values.dtype.kind not in "USiub":
        raise InputError(f"{source}: the array {name!r} is not a list of names or whole numbers")
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]


def _npz_chunks(
    source: str,
    file: IO[bytes],
    names: list[str],
    text: dict[str, list[str]],
    columns: Columns,
    cells: int,
) -> Iterator[Chunk]:
    (count, width), by_column, dtype = _npz_header(source, file)
    if names and len(names) != width:
        raise InputError(f"{source}: X has {width} columns, and there are {len(names)} names")
    for name, values in text.items():
        if len(values) != count:
            raise InputError(f"{source}: {name!r} has {len(values)} entries, and X {count} rows")
    keep = _npz_kept(source, names, columns)
    kept_names = tuple(names[index] for index in keep) if keep is not None else None
    # A matrix stored column by column has no rows to stream: it is read whole.
    size = count if by_column else max(1, cells // max(width, 1))
    for start in range(0, count, max(size, 1)):
        rows = min(size, count - start)
        data = file.read(rows * width * dtype.itemsize)
        x = np.frombuffer(data, dtype).reshape((rows, width), order="F" if by_column else "C")
        row_name = _row_namer(start)
        yield Chunk(
            kept_names,
            checked_features(
                source,
                _floats(x if keep is None else x[:, keep]),
                kept_names,
                row_name,
                columns.missing,
            ),
            {
                name: checked_text(source, name, values[start : start + rows], row_name)
                for name, values in text.items()
            },
            start + 1,
        )


def _npz_header(source: str, file: IO[bytes]) -> tuple[tuple[int, int], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise InputError(f"{source}: X is stored in an unknown version {version}")
    shape, by_column, dtype = read_header(file)
    if len(shape) != 2 or dtype.kind not in "fiub":
        raise InputError(f"{source}: X must be a matrix of numbers; it is {dtype} of shape {shape}")
    return shape, by_column, dtype


def _npz_kept(source: str, names: list[str], columns: Columns) -> list[int] | None:
    if not names:
        return None
    ignored = Columns(ignore=tuple(name for name in columns.ignore if name in names))
    return split_columns(source, names, ignored)[1]


def read_parquet(source: str, columns: Columns, cells: int) -> Iterator[Chunk]:
    """Parquet: row groups in turn; an index that pandas stored is not a feature."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(_needs(source, "pyarrow", "parquet")) from None
    with open(source, "rb") as raw:
        try:
            file = pq.ParquetFile(raw)
            schema = file.schema_arrow
            stored_index = (schema.pandas_metadata or {}).get("index_columns", [])
            header = [name for name in schema.names if name not in stored_index]
            text_at, feature_at = split_columns(source, header, columns)
            names = tuple(header[index] for index in feature_at)
            for name in names:
                _check_numeric(source, name, schema.field(name).type, pa.types)
            first = 1
            for batch in file.iter_batches(
                max(1, cells // len(header)), columns=[*names, *text_at], use_threads=False
            ):
                if batch.num_rows:
                    yield _parquet_chunk(source, batch, names, columns, first)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{source} is not a readable Parquet file: {error}") from error


def _check_numeric(source: str, name: str, kind: Any, types: Any) -> None:
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
        raise InputError(
            f"{source}: column {name!r} holds {kind}, not numbers; if it is no feature, leave it "
            f"out with --ignore {name!r}"
        )


def _parquet_chunk(
    source: str, batch: Any, names: tuple[str, ...], columns: Columns, first: int
) -> Chunk:
    row_name = _row_namer(first - 1)
    x = np.empty((batch.num_rows, len(names)))
    for index, name in enumerate(names):
        x[:, index] = batch.column(name).to_numpy(zero_copy_only=False)
    kept = {
        name: checked_text(
            source,
            name,
            ["" if value is None else str(value) for value in batch.column(name).to_pylist()],
            row_name,
        )
        for name in columns.text
    }
    x = checked_features(source, x, names, row_name, columns.missing)
    return Chunk(names, x, kept, first)


def read_h5ad(source: str, columns: Columns, cells: int) -> Iterator[Chunk]:
    """h5ad: `X` in backed mode, the text from `obs` (`obs_names` is its index)."""
    try:
        import anndata
    except ImportError:
        raise InputError(_needs(source, "anndata", "anndata")) from None
    with open(source, "rb"):
        pass  # the usual errors for what cannot be opened, before HDF5 gives its own
    try:
        data = anndata.read_h5ad(source, backed="r")
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{source} is not a readable h5ad file: {error}") from error
    with closing(data.file):
        header = [str(name) for name in data.var_names]
        _refuse_unknown(source, columns.ignore, [*data.obs.columns, *header])
        ignored = Columns(ignore=tuple(name for name in columns.ignore if name in header))
        feature_at = split_columns(source, header, ignored)[1]
        names = tuple(header[index] for index in feature_at)
        text = {name: _obs_column(source, data, name) for name in columns.text}
        size = max(1, cells // len(header))
        for start in range(0, data.n_obs, size):
            block = data.X[start : start + size]
            dense = np.asarray(block.toarray() if hasattr(block, "toarray") else block)
            row_name = _row_namer(start)
            yield Chunk(
                names,
                checked_features(
                    source, _floats(dense[:, feature_at]), names, row_name, columns.missing
                ),
                {
                    name: checked_text(source, name, values[start : start + size], row_name)
                    for name, values in text.items()
                },
                start + 1,
            )


def _obs_column(source: str, data: Any, name: str) -> list[str]:
    if name in data.obs:
        missing = data.obs[name].isna()
        return list(data.obs[name].astype(str).mask(missing, ""))
    if name in ("obs_names", data.obs.index.name):
        return [str(value) for value in data.obs_names]
    raise InputError(
        f"{source}: there is no column {name!r} in obs; it has {list(data.obs.columns)[:5]}"
    )


def _refuse_unknown(source: str, ignored: Sequence[str], known: Sequence[str]) -> None:
    """What is no feature may be ignored too, but it must be there: a name may be misspelt."""
    for name in ignored:
        if name not in known:
            raise InputError(f"{source}: there is no column {name!r}; it has {list(known)[:5]}")


def _floats(x: NDArray[Any]) -> NDArray[np.floating]:
    wide = x.dtype.newbyteorder("=") in (np.float32, np.float64)
    return x.astype(x.dtype.newbyteorder("=") if wide else np.float64, copy=False)


def _row_namer(start: int) -> Callable[[int], str]:
    return lambda index: f"row {start + index + 1}"


def _needs(source: str, package: str, extra: str) -> str:
    return f"{source}: reading it needs {package}; install it with: pip install 'clbruno[{extra}]'"


BY_SUFFIX: dict[str, Reader] = {
    ".npz": read_npz,
    ".parquet": read_parquet,
    ".pq": read_parquet,
    ".h5ad": read_h5ad,
}
__all__: Sequence[str] = ["BY_SUFFIX"]
