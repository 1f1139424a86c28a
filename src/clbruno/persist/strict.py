"""JSON that can mean one thing only: no duplicate key, no NaN, bounded in size and depth."""

import json
import math
import re
from collections import Counter
from typing import Any

from clbruno.errors import ModelFileError

MAX_BYTES = 1 << 23
MAX_DEPTH = 16

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_BRACKET = bytes(code for code in range(256) if code not in b"[]{}")


def parse(text: bytes, what: str) -> dict[str, Any]:
    """Parse one JSON object, or raise a `ModelFileError` that says what is wrong with it."""
    if len(text) > MAX_BYTES:
        raise ModelFileError(f"{what} is larger than {MAX_BYTES:,} bytes")
    _check_depth(text, what)
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_number,
        )
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{what} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is not a JSON object")
    return value


def dump(value: dict[str, Any], what: str) -> bytes:
    """The bytes that `parse` gives back as the same value."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded = text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{what} cannot be written: {error}") from error
    if parse(encoded, what) != value:
        raise ModelFileError(f"{what} cannot be written: it would be read back changed")
    return encoded


def _check_depth(text: bytes, what: str) -> None:
    # The parser recurses, so the depth is bounded before it runs: each pass removes the innermost
    # pairs of brackets, and what is left after MAX_DEPTH passes is deeper than that, or unbalanced.
    brackets = _STRING.sub(b"", text).translate(None, _NO_BRACKET)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not brackets:
            return
    raise ModelFileError(f"{what} is nested deeper than {MAX_DEPTH} levels, or its brackets differ")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:80]!r} stands there twice")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value
