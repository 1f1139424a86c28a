"""The update log: what each update saw and did, in numbers that do not show a person."""

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class UpdateRecord:
    """One update of a model.

    Attributes:
        number: 1 for the first update.
        time: when it ended, UTC, ISO 8601 to the second.
        counts: samples learned per (task, label), as (task, label, count) rows.
        fingerprint: keyed digest of the data; the key is thrown away, so it tells two updates
            apart and cannot be used to test whether a person was among the data.
        recipe: name of the recipe.
        seed: seed of the update, None for an unseeded one.
        versions: of clbruno, torch and numpy.
        seconds: how long it took.
        epochs: passes over the data that the flow was trained for, of the state that was kept.
        before: held-back figures of the old model, by name.
        after: held-back figures of the new model, by name.
        small: the (task, label) cells under `min_class_size` after this update.
        source: where the update comes from if it was learned elsewhere, or what was merged.
    """

    number: int
    time: str
    counts: tuple[tuple[Hashable, Hashable, int], ...]
    fingerprint: str
    recipe: str
    seed: int | None
    versions: Mapping[str, str]
    seconds: float
    epochs: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    small: tuple[tuple[Hashable, Hashable], ...]
    source: str = ""

    def noting(self, before: Mapping[str, float], after: Mapping[str, float]) -> "UpdateRecord":
        """The record with more figures."""
        return replace(self, before={**self.before, **before}, after={**self.after, **after})


def now() -> str:
    """The present, UTC, ISO 8601 to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions() -> dict[str, str]:
    """Versions of what computed an update."""
    from clbruno import __version__

    return {"clbruno": __version__, "torch": torch.__version__, "numpy": np.__version__}


def fingerprint(x: NDArray[Any], cell: NDArray[np.int64], chunk: int = 8192) -> str:
    """HMAC-SHA-256 of the rows and their cells under a key that nobody keeps.

    Without the key nobody can compute the digest of data that they guess.
    """
    digest = hmac.new(secrets.token_bytes(32), digestmod=hashlib.sha256)
    for start in range(0, len(x), chunk):
        digest.update(np.ascontiguousarray(x[start : start + chunk]).tobytes())
    digest.update(cell.tobytes())
    return digest.hexdigest()


def joined(records: Sequence[UpdateRecord]) -> UpdateRecord:
    """The record of one update that was learned in several blocks, given one record of each.

    Counts, seconds and epochs are added up; the figures before are those of the first block, the
    rest those of the last.
    """
    counts: Counter[tuple[Hashable, Hashable]] = Counter()
    for record in records:
        for task, label, count in record.counts:
            counts[task, label] += count
    digests = "".join(record.fingerprint for record in records)
    return replace(
        records[-1],
        number=records[0].number,
        counts=tuple((task, label, count) for (task, label), count in counts.items()),
        fingerprint=hashlib.sha256(digests.encode()).hexdigest(),
        seconds=round(sum(record.seconds for record in records), 3),
        epochs=sum(record.epochs for record in records),
        before=records[0].before,
    )
