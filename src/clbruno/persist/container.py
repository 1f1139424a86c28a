"""The model file: a prefix, a JSON header, safetensors weights, and one digest over all of it.

    magic 8 | protocol 4 | header length 4 | payload length 8 | header | payload | SHA-256 32 bytes

All numbers are little-endian. The payload is a complete safetensors file, so other tools can read
it. The digest finds damage; it does not prove who wrote the file, so every bound is checked after
it as well.
"""

import hashlib
import math
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from clbruno.errors import InputError, ModelFileError
from clbruno.persist import atomic, strict

PROTOCOL = 1
# A byte above 127 and both kinds of line end, so that a transfer as text shows at once.
MAGIC = b"\x89CLB\r\n\x1a\n"
MAX_FILE_BYTES = 1 << 34
MAX_DIMENSIONS = 4

_PREFIX = struct.Struct("<8sIIQ")
_DIGEST_BYTES = 32
_PIECE = 1 << 20
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive, such as a PyTorch checkpoint or an NPZ file",
    b"\x80": "an object dump of Python, which this library never opens",
    b"\x1f\x8b": "a gzip file",
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file",
}


def write(
    where: str | os.PathLike[str] | atomic.Target,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
) -> None:
    """Write one model file atomically; a `Target` is used under the lock that it stands for."""
    if not isinstance(where, atomic.Target):
        with atomic.writing(where) as target:
            write(target, header, tensors)
        return
    head = strict.dump(header, "the header")
    payload = memoryview(_payload(tensors))
    digest = hashlib.sha256()

    def produce(file: BinaryIO) -> None:
        prefix = _PREFIX.pack(MAGIC, PROTOCOL, len(head), len(payload))
        parts: list[bytes | memoryview] = [prefix, head]
        parts += [payload[start : start + _PIECE] for start in range(0, len(payload), _PIECE)]
        for part in parts:
            digest.update(part)
            file.write(part)
        file.write(digest.digest())

    where.replace(produce)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Check a model file whole and return its header and tensors.

    Nothing is allocated before the lengths agree with the file and the digest with its content.
    """
    with _opened(path) as file:
        header_bytes, payload_bytes = _checked_lengths(file)
        _check_digest(file)
        file.seek(_PREFIX.size)
        header = strict.parse(_exactly(file, header_bytes), "the header")
        return header, _tensors(file, payload_bytes)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file; every failure, inside the block as well, names the file."""
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer that may never come.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError("it is a folder, a pipe or a device, not a model file")
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise InputError(f"{os.fspath(path)}: there is no such file") from None
    except PermissionError:
        raise InputError(f"{os.fspath(path)}: no permission to read it") from None
    except OSError as error:
        raise ModelFileError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from error
    except (InputError, ModelFileError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def _checked_lengths(file: BinaryIO) -> tuple[int, int]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(_PREFIX.size)
    if not start:
        raise ModelFileError("it is empty")
    if start[: len(MAGIC)] != MAGIC[: len(start)]:
        raise ModelFileError(f"it is not a clbruno model file{_guess(start)}")
    if len(start) < _PREFIX.size:
        raise ModelFileError(f"it ends after {size} bytes: it was cut off")
    _, protocol, header, payload = _PREFIX.unpack(start)
    if protocol != PROTOCOL:
        raise ModelFileError(_other_protocol(protocol))
    if header > strict.MAX_BYTES:
        raise ModelFileError(f"its header claims {header:,} bytes, more than {strict.MAX_BYTES:,}")
    expected = _PREFIX.size + header + payload + _DIGEST_BYTES
    if size != expected:
        kind = "it was cut off" if size < expected else "something was appended"
        raise ModelFileError(f"it should be {expected:,} bytes long and has {size:,}: {kind}")
    if size > MAX_FILE_BYTES:
        raise ModelFileError(f"it is larger than {MAX_FILE_BYTES:,} bytes")
    return header, payload


def _guess(start: bytes) -> str:
    known = (
        f" (it looks like {what})" for begin, what in _FOREIGN.items() if start.startswith(begin)
    )
    return next(known, "")


def _other_protocol(protocol: int) -> str:
    if protocol > PROTOCOL:
        return (
            f"it is written in protocol {protocol}, and this version of clbruno reads protocol "
            f"{PROTOCOL}: install a newer clbruno (or the file is damaged)"
        )
    return f"its protocol {protocol} does not exist; this version of clbruno reads {PROTOCOL}"


def _check_digest(file: BinaryIO) -> None:
    rest = os.fstat(file.fileno()).st_size - _DIGEST_BYTES
    file.seek(0)
    digest = hashlib.sha256()
    while rest:
        piece = _exactly(file, min(_PIECE, rest))
        digest.update(piece)
        rest -= len(piece)
    if digest.digest() != _exactly(file, _DIGEST_BYTES):
        raise ModelFileError(
            "its content does not match its checksum: it was damaged after it was written; "
            "restore it from a copy"
        )


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ModelFileError("it became shorter while it was read")
    return data


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def _payload(tensors: dict[str, Tensor]) -> bytes:
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES.values():
            raise ModelFileError(f"the tensor {name!r} has the type {tensor.dtype}; not written")
        if not _is_finite(tensor):
            raise ModelFileError(f"the tensor {name!r} holds a NaN or an infinity; not written")
    # Clones, because the format refuses views and tensors that share their memory.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    return safetensors.torch.save(plain)


def _tensors(file: BinaryIO, payload_bytes: int) -> dict[str, Tensor]:
    """Read each tensor straight into its own memory, so that nothing is held twice."""
    if payload_bytes < 8:
        raise ModelFileError("its weights are missing")
    (length,) = struct.unpack("<Q", _exactly(file, 8))
    if length > min(strict.MAX_BYTES, payload_bytes - 8):
        raise ModelFileError(f"the index of its weights claims {length:,} bytes")
    index = strict.parse(_exactly(file, length), "the index of its weights")
    entries = sorted((_entry(name, value) for name, value in index.items()), key=_position)
    end = 0
    for entry in entries:
        if entry.begin != end:
            raise ModelFileError(
                f"the tensor {entry.name!r} does not begin where the last one ends"
            )
        end = entry.end
    if end != payload_bytes - 8 - length:
        raise ModelFileError("its tensors do not fill its payload")
    return {entry.name: _read_tensor(file, entry) for entry in entries}


def _position(entry: _Entry) -> tuple[int, int]:
    return entry.begin, entry.end


def _entry(name: str, value: object) -> _Entry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"the index of its weights does not describe {name[:80]!r}")
    dtype = _DTYPES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    shape, offsets = value["shape"], value["data_offsets"]
    if dtype is None:
        raise ModelFileError(f"the tensor {name[:80]!r} has a type that no model uses")
    if (
        not _counts(shape)
        or len(shape) > MAX_DIMENSIONS
        or not _counts(offsets)
        or len(offsets) != 2
    ):
        raise ModelFileError(f"the tensor {name[:80]!r} has an impossible shape or position")
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ModelFileError(
            f"the tensor {name[:80]!r} does not have the bytes that its shape needs"
        )
    return _Entry(name, dtype, tuple(shape), begin, end)


def _counts(value: object) -> bool:
    """Whether this is a list of whole numbers that a 64-bit offset can hold even as a product."""
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item <= MAX_FILE_BYTES for item in value
    )


def _read_tensor(file: BinaryIO, entry: _Entry) -> Tensor:
    if (
        entry.begin == entry.end
        and math.prod(max(size, 1) for size in entry.shape) > MAX_FILE_BYTES
    ):
        raise ModelFileError(f"the tensor {entry.name[:80]!r} has an impossible shape")
    tensor = torch.empty(entry.shape, dtype=entry.dtype)
    buffer = tensor.numpy().reshape(-1).view(np.uint8).data
    while buffer:
        count = file.readinto(buffer)  # type: ignore[attr-defined]
        if not count:
            raise ModelFileError("it became shorter while it was read")
        buffer = buffer[count:]
    if not _is_finite(tensor):
        raise ModelFileError(f"the tensor {entry.name[:80]!r} holds a NaN or an infinity")
    return tensor


def _is_finite(tensor: Tensor) -> bool:
    # The two ends are enough (a NaN wins both), and need no second tensor of the same size.
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return True
    low, high = torch.aminmax(tensor.detach())
    return bool(torch.isfinite(low) and torch.isfinite(high))
