"""What a model gives away about who was in its data: attacks that measure, and promise nothing."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clbruno.core.model import Model, chunks_of
from clbruno.errors import InputError, SmallClassWarning
from clbruno.estimator import CLBrunoClassifier

GENERATED = 2000
"""Rows that the model generates for the attacks by distance."""

SIZES = (1, 2, 5, 10, 50)
"""Upper ends of the groups of classes, by the samples that were learned of them."""

FALSE_POSITIVES = (0.01, 0.001)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Labelled rows: features in the order of the model, a label and a task each."""

    x: Floats
    labels: list[Any]
    tasks: list[Any]

    def taken(self, at: NDArray[np.int64]) -> "Rows":
        """Some of the rows."""
        return Rows(self.x[at], [self.labels[i] for i in at], [self.tasks[i] for i in at])


@dataclass(frozen=True)
class Attack:
    """How well a score tells members from others.

    Attributes:
        name: the score.
        auc: chance that a member scores higher than a non-member; 0.5 is a guess.
        hits: share of members found at a false-positive rate of 1 % and of 0.1 %.
    """

    name: str
    auc: float
    hits: tuple[float, float]


@dataclass(frozen=True)
class Group:
    """The attacks on some classes: how many members and others there were, and what came out."""

    name: str
    members: int
    others: int
    attacks: tuple[Attack, ...]


@dataclass(frozen=True)
class Audit:
    """What was measured.

    Attributes:
        groups: over all rows, over the smallest class, and by the samples learned of a class.
        closer_to_members: share of generated rows whose nearest real row is a member, among as
            many members as others; 0.5 if they are no closer to those that were learned.
        distance_ratio: median over the generated rows of the distance of the nearest member
            over that of the nearest other.
    """

    groups: tuple[Group, ...]
    closer_to_members: float
    distance_ratio: float


def audit(model: CLBrunoClassifier, members: Rows, others: Rows, seed: int = 0) -> Audit:
    """Attack a model with rows that it has learned and rows like them that it has not.

    Half of the others make a reference model for the likelihood ratio; the other half are the
    non-members of every attack.
    """
    rng = np.random.default_rng(seed)
    for rows in (members, others):
        _all_known(model, rows)
    if len(others.labels) < 4:
        raise InputError(f"an audit needs at least 4 non-members, got {len(others.labels)}")
    reference_at, at = _halves(others, rng)
    outside = others.taken(at)
    scores = {}
    reference = _reference(model, others.taken(reference_at))
    for name, rows in (("members", members), ("others", outside)):
        density = _own_density(model, rows)
        scores[name] = {
            "likelihood": density,
            "likelihood ratio": density - _density_where_known(reference, rows),
            "nearest generated": -_distance_to_generated(model, rows, seed),
        }
    size_in, size_out = (_learned(model, rows) for rows in (members, outside))
    smallest = size_in.min()
    kinds = [("all", -1, np.inf), (f"smallest class ({smallest})", smallest - 1, smallest)]
    kinds += [
        (f"classes of {'up to ' * (low > 0)}{high}", low, high)
        for low, high in zip((0, *SIZES), SIZES, strict=False)
    ]
    kinds.append((f"classes of over {SIZES[-1]}", SIZES[-1], np.inf))
    groups = []
    for name, low, high in kinds:
        inside, beside = ((size > low) & (size <= high) for size in (size_in, size_out))
        if inside.any() and beside.any():
            attacks = tuple(
                attack(kind, scores["members"][kind][inside], scores["others"][kind][beside])
                for kind in scores["members"]
            )
            groups.append(Group(name, int(inside.sum()), int(beside.sum()), attacks))
    return Audit(tuple(groups), *_closeness(model, members.x, outside.x, rng, seed))


def attack(name: str, members: Floats, others: Floats) -> Attack:
    """AUC of a score, and the share of members over its highest values among the others.

    At a false-positive rate a the threshold is the k-th highest of the others, k = floor(a m):
    with under 1 / a of them, their maximum.
    """
    order = np.sort(others)
    below = np.searchsorted(order, members, side="left")
    upto = np.searchsorted(order, members, side="right")
    auc = float((below + upto).mean() / (2 * len(order)))
    hits = [
        float((members > order[len(order) - 1 - int(rate * len(order))]).mean())
        for rate in FALSE_POSITIVES
    ]
    return Attack(name, auc, (hits[0], hits[1]))


def _all_known(model: CLBrunoClassifier, rows: Rows) -> None:
    for task, label in dict.fromkeys(zip(rows.tasks, rows.labels, strict=True)):
        model.model_.registry.cell_index(task, label)


def _halves(others: Rows, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = rng.permutation(len(others.labels))
    return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


def _learned(model: CLBrunoClassifier, rows: Rows) -> NDArray[np.int64]:
    """Samples learned of the class of each row."""
    names = model.model_.registry
    pairs = zip(rows.tasks, rows.labels, strict=True)
    return np.array([names.counts[names.cell_index(*pair)] for pair in pairs])


def _own_density(model: CLBrunoClassifier, rows: Rows) -> Floats:
    """log p(x | t, y) of each row in its own cell."""
    names = model.model_.registry
    pairs = zip(rows.tasks, rows.labels, strict=True)
    cell = torch.tensor([names.cell_index(*pair) for pair in pairs])
    x = torch.from_numpy(np.asarray(rows.x, dtype=np.float64))
    parts = [
        model.model_.log_likelihood(x[part]).gather(1, cell[part, None])[:, 0]
        for part in chunks_of(len(x))
    ]
    return torch.cat(parts).numpy()


def _reference(model: CLBrunoClassifier, half: Rows) -> CLBrunoClassifier:
    """A model of the same recipe that has learned other rows."""
    settings = {**model.get_params(), "random_state": model.model_.seed, "verbose": 0}
    reference = CLBrunoClassifier(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)
        return reference.fit(half.x, half.labels, task=half.tasks)


def _density_where_known(reference: CLBrunoClassifier, rows: Rows) -> Floats:
    """log p(x | t, y) of each row in its own cell; log p(x) where the reference has none."""
    names = reference.model_.registry
    known = {(names.tasks[t], names.labels[y]) for t, y in names.cells}
    value = np.asarray(reference.score_samples(rows.x), dtype=np.float64)
    pairs = zip(rows.tasks, rows.labels, strict=True)
    at = np.flatnonzero([pair in known for pair in pairs])
    if len(at):
        value[at] = _own_density(reference, rows.taken(at))
    return value


def _distance_to_generated(model: CLBrunoClassifier, rows: Rows, seed: int) -> Floats:
    """Distance of each row, in scaled units, to the nearest generated one."""
    return _nearest(_scaled(model.model_, rows.x), _generated(model, seed))


def _closeness(
    model: CLBrunoClassifier, members: Floats, others: Floats, rng: np.random.Generator, seed: int
) -> tuple[float, float]:
    size = min(len(members), len(others))
    made = _generated(model, seed)
    inside, outside = (
        _nearest(made, _scaled(model.model_, x[rng.permutation(len(x))[:size]]))
        for x in (members, others)
    )
    closer = (inside < outside) + 0.5 * (inside == outside)
    return float(closer.mean()), float(np.median(inside / np.maximum(outside, 1e-300)))


def _generated(model: CLBrunoClassifier, seed: int) -> torch.Tensor:
    return _scaled(model.model_, model.sample(GENERATED, random_state=seed)[0])


def _scaled(model: Model, x: Floats) -> torch.Tensor:
    return model.scaler.forward(torch.from_numpy(np.asarray(x, dtype=np.float64)))


def _nearest(from_rows: torch.Tensor, to_rows: torch.Tensor) -> Floats:
    parts: Sequence[torch.Tensor] = [
        torch.cdist(from_rows[part], to_rows).amin(1) for part in chunks_of(len(from_rows), 512)
    ]
    return torch.cat(list(parts)).numpy()
