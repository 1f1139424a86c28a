"""Whatever happens to a file after it was written, opening it is a clean error, never silent."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clbruno import ModelFileError, load
from clbruno.persist import container

PAGE = 4096
Damage = Callable[[bytearray, int, np.random.Generator], bytes]


def _flip(data: bytearray, low: int, high: int, rng: np.random.Generator) -> bytes:
    data[int(rng.integers(low, high))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def flip_in_header(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    return _flip(data, 0, payload, rng)


def flip_in_payload(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    return _flip(data, payload, len(data), rng)


def truncated(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    return bytes(data[: int(rng.integers(0, len(data)))])


def appended(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    return bytes(data) + rng.bytes(int(rng.integers(1, 200)))


def zeroed_page(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(data) - PAGE))
    data[start : start + PAGE] = bytes(PAGE)
    return bytes(data)


def swapped_blocks(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    size = 512
    first = int(rng.integers(0, len(data) - 2 * size))
    second = int(rng.integers(first + size, len(data) - size + 1))
    one, other = data[first : first + size], data[second : second + size]
    data[first : first + size], data[second : second + size] = other, one
    return bytes(data)


def random_bytes(data: bytearray, payload: int, rng: np.random.Generator) -> bytes:
    size = int(rng.integers(1, 300))
    start = int(rng.integers(0, len(data) - size))
    data[start : start + size] = rng.bytes(size)
    return bytes(data)


KINDS: list[Damage] = [
    flip_in_header,
    flip_in_payload,
    truncated,
    appended,
    zeroed_page,
    swapped_blocks,
    random_bytes,
]


def _damaged(path: Path, damage: Damage, count: int) -> Iterator[bytes]:
    data = path.read_bytes()
    payload = 24 + int.from_bytes(data[12:16], "little")
    rng = np.random.default_rng(KINDS.index(damage))
    while count:
        changed = damage(bytearray(data), payload, rng)
        if changed != data:  # two equal blocks were swapped, or a zero overwritten by a zero
            count -= 1
            yield changed


def _check_every_file(source: Path, damage: Damage, count: int, folder: Path) -> None:
    path = folder / "damaged.clb"
    for number, changed in enumerate(_damaged(source, damage, count)):
        path.write_bytes(changed)
        with pytest.raises(ModelFileError) as caught:
            load(path)
            pytest.fail(f"{damage.__name__} number {number} was not noticed")
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", KINDS)
def test__load__damaged_file__is_a_clean_error(
    learned: Any, damage: Damage, tmp_path: Path
) -> None:
    _check_every_file(learned.path, damage, 100, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("damage", KINDS)
def test__load__damaged_file_nightly__is_a_clean_error(
    learned: Any, damage: Damage, tmp_path: Path
) -> None:
    _check_every_file(learned.path, damage, 1000, tmp_path)


def test__read__file_that_changes_length_meanwhile__is_a_clean_error(
    learned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.clb"
    path.write_bytes(learned.path.read_bytes())
    digest = container._check_digest

    def cut_after(file: object) -> None:
        digest(file)  # type: ignore[arg-type]
        with path.open("r+b") as other:
            other.truncate(learned.path.stat().st_size // 2)

    monkeypatch.setattr(container, "_check_digest", cut_after)
    with pytest.raises(ModelFileError, match="became shorter"):
        load(path)
