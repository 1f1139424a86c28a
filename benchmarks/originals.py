"""Read the data in the forms in which others publish them, with checksums and a cache folder."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import pickle
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import Arrays, DataError

CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """One published file: where it is, what it is called here, and what its bytes must hash to.

    The sum is the publisher's own, so for some files it is an MD5.
    """

    name: str
    url: str
    digest: str
    kind: str = "sha256"


def fetch(source: Source, cache: Path, timeout: float = 60.0) -> Path:
    """The cached file, downloaded first where it is absent; its checksum is verified every time.

    A download is written beside its target and moved there only when the checksum holds.
    """
    target = cache / source.name
    if target.is_file():
        verify(target, source)
        return target
    cache.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=cache, prefix=source.name)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out, open_url(source.url, timeout) as stream:
            for block in iter(lambda: stream.read(CHUNK), b""):
                out.write(block)
        verify(part, source)
        part.replace(target)
    except OSError as error:
        raise DataError(
            f"{source.name} could not be fetched from {source.url} ({error}); put the file into "
            f"{cache} by hand"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def open_url(url: str, timeout: float) -> Any:
    """A stream of the bytes behind an https or file address."""
    if not url.startswith(("https://", "file://")):
        raise DataError(f"the address {url!r} is neither https nor file")
    return urllib.request.urlopen(url, timeout=timeout)


def verify(path: Path, source: Source) -> None:
    """Refuse a file whose bytes are not those that were published."""
    digest = hashlib.new(source.kind, usedforsecurity=False)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(CHUNK), b""):
            digest.update(block)
    found = digest.hexdigest()
    if found != source.digest:
        raise DataError(
            f"{source.name} has checksum {found[:12]}... and not {source.digest[:12]}...; "
            "delete it and fetch it again"
        )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes (MNIST), gzipped or not.

    Bytes 0 0 8 n, then n big-endian 32-bit sizes, then the values.
    """
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise DataError(f"{path.name} is not an IDX file of unsigned bytes")
    head = 4 + 4 * raw[3]
    shape = np.frombuffer(raw[4:head], dtype=">u4").astype(int)
    if len(shape) != raw[3] or len(raw) != head + int(shape.prod()):
        raise DataError(f"{path.name} holds {len(raw)} bytes, which is not what its header says")
    return np.frombuffer(raw, dtype=np.uint8, offset=head).reshape(shape)


def mnist(folder: Path) -> Arrays:
    """The four IDX files of MNIST in one folder."""

    def part(stem: str) -> NDArray[np.uint8]:
        for name in (f"{stem}.gz", stem):
            if (folder / name).is_file():
                return read_idx(folder / name)
        raise DataError(f"no file {stem} or {stem}.gz in {folder}")

    return {
        "x_train": part("train-images-idx3-ubyte"),
        "y_train": part("train-labels-idx1-ubyte"),
        "x_test": part("t10k-images-idx3-ubyte"),
        "y_test": part("t10k-labels-idx1-ubyte"),
    }


class ArraysOnly(pickle.Unpickler):
    """Reads plain containers and numpy byte arrays; any other name in the file is refused."""

    NAMES = frozenset(
        (module, name)
        for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("_reconstruct", "ndarray", "dtype")
    ) | {("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        """The few names that an array needs."""
        if (module, name) not in self.NAMES:
            raise DataError(f"the archive asks for {module}.{name}, which no array needs")
        if module == "_codecs":
            return _encode
        if name == "_reconstruct":
            return _empty_array
        return getattr(np, name)


def _encode(text: str, encoding: str) -> bytes:
    """Bytes that an old protocol wrote as text."""
    if encoding != "latin1":
        raise DataError(f"the archive asks for the encoding {encoding!r}")
    return text.encode("latin1")


def _empty_array(kind: type, shape: tuple[int, ...], code: bytes) -> NDArray[np.generic]:
    """The empty array that the file's state then fills."""
    if kind is not np.ndarray or tuple(shape) != (0,):
        raise DataError("the archive holds an array in a form that is not read")
    return np.ndarray((0,), dtype=np.uint8)


def read_cifar_part(raw: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and fine labels of one member of the Python archive of CIFAR-100."""
    try:
        content = ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a CIFAR-100 member: {error}") from error
    rows = content.get(b"data") if isinstance(content, dict) else None
    labels = content.get(b"fine_labels") if isinstance(content, dict) else None
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or not isinstance(labels, list):
        raise DataError("the archive's member lacks the bytes `data` or the list `fine_labels`")
    if rows.ndim != 2 or rows.shape != (len(labels), 3072):
        raise DataError(f"{len(labels)} labels but images of shape {rows.shape}, not (n, 3072)")
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, np.array(labels, dtype=np.int64)


def cifar100(archive: Path) -> Arrays:
    """Images and fine labels from ``cifar-100-python.tar.gz``; nothing is written to disk."""
    found: Arrays = {}
    try:
        with tarfile.open(archive) as tar:
            for part in ("train", "test"):
                raw = _member(tar, f"cifar-100-python/{part}")
                found[f"x_{part}"], found[f"y_{part}"] = read_cifar_part(raw)
    except tarfile.TarError as error:
        raise DataError(f"{archive.name} is not a tar archive: {error}") from error
    return found


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    try:
        member = tar.extractfile(name)
    except KeyError:
        member = None
    if member is None:
        raise DataError(f"the archive has no member {name}")
    return member.read()


def lines_of(path: Path) -> Iterator[list[str]]:
    """Rows of a tab-separated file, gzipped or not; free text in it may be in any encoding."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    how = {"mode": "rt", "encoding": "latin-1", "newline": ""}
    with gzip.open(path, **how) if packed else path.open(**how) as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def pancan(matrix: Path, clinical: Path, genes: int = 2000) -> Arrays:
    """The EB++ matrix (genes by samples) joined to the clinical table by patient barcode.

    Kept are primary tumours with a type (one sample per patient) and the ``genes`` most variable
    genes among those without a missing value; log2(x + 1), negative values set to 0 first.
    """
    types = clinical_types(clinical)
    rows = lines_of(matrix)
    header = next(rows)[1:]
    keep: dict[str, int] = {}
    for column, barcode in enumerate(header):
        patient = barcode[:12]
        if patient in types and barcode[13:15] in {"01", "03"}:
            keep.setdefault(patient, column)
    columns = np.array(list(keep.values()), dtype=np.intp)
    if not len(columns):
        raise DataError(f"no sample of {matrix.name} has a type in {clinical.name}")
    names, values = [], []
    for row in rows:
        cells = [row[1 + column] for column in columns]
        if all(cell not in {"", "NA"} for cell in cells):
            names.append(row[0].partition("|")[0])
            values.append(np.log2(np.maximum(np.array(cells, dtype=np.float64), 0) + 1))
    if not values:
        raise DataError(f"{matrix.name} has no gene without missing values")
    x = np.stack(values, axis=1)
    top = np.sort(np.argsort(-x.var(axis=0), kind="stable")[:genes])
    return {
        "x": x[:, top].astype(np.float32),
        "y": np.array([types[patient] for patient in keep]),
        "feature": np.array(names)[top],
        "sample_id": np.array(header)[columns],
    }


def clinical_types(path: Path) -> dict[str, str]:
    """Cancer type by patient barcode: column ``type``, or ``acronym`` as in the follow-up table."""
    rows = lines_of(path)
    header = next(rows)
    kinds = [name for name in ("type", "acronym") if name in header]
    if "bcr_patient_barcode" not in header or not kinds:
        raise DataError(
            f"{path.name} needs the columns bcr_patient_barcode and type (or acronym); it has "
            f"{header[:5]}..."
        )
    patient, kind = header.index("bcr_patient_barcode"), header.index(kinds[0])
    return {row[patient]: row[kind] for row in rows if row[kind]}


def ici(expression: Path, clinical: Path) -> Arrays:
    """The iAtlas tables: samples by genes, and therapy, cancer type and response by sample.

    The first column of both is the sample; a sample without a therapy or a type is left out.
    """
    rows = lines_of(clinical)
    header = next(rows)
    wanted = ("therapy", "cancer_type", "response")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise DataError(f"{clinical.name} has no column {', '.join(missing)}")
    places = [header.index(name) for name in wanted]
    about = {row[0]: tuple(row[place] for place in places) for row in rows}
    table = lines_of(expression)
    features = next(table)[1:]
    kept = [row for row in table if all(about.get(row[0], ("", ""))[:2])]
    if not kept:
        raise DataError(f"no sample of {expression.name} has a therapy and a type")
    columns = [np.array([about[row[0]][i] for row in kept]) for i in range(3)]
    return {
        "x": np.array([row[1:] for row in kept], dtype=np.float32),
        "therapy": columns[0],
        "cancer_type": columns[1],
        "response": columns[2],
        "feature": np.array(features),
        "sample_id": np.array([row[0] for row in kept]),
    }
