"""Two models become one: by adding statistics where that is exact, by replay where it is not."""

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clbruno.core.cells import ClassLatent, TaskLatent, Thin
from clbruno.core.model import Model
from clbruno.core.moments import Moments
from clbruno.errors import InputError
from clbruno.history import UpdateRecord, now, versions
from clbruno.learn.calibrate import linked
from clbruno.learn.engine import STRUCTURE, Lesson, learn
from clbruno.learn.replay import balanced
from clbruno.learn.trainer import Epoch
from clbruno.learn.tuning import LeftOut, chosen
from clbruno.registry import Registry

MOST_REPLAYED, LEAST_REPLAYED = 50_000, 50
"""Rows that a merge by replay draws from the second model at most, and of each cell at least."""

ASKED, ASKED_EACH = 1000, 20
"""Generated rows behind an accuracy: in all, or of each cell where that is more."""

SHARED = ("scaler", "flow", "embedding")
"""Parts of a model that must be the same in both for statistics to be added."""

COMBINED = ("recipe", "registry", "latent", "temperature", "curve", "calibration", "seed", "log")
"""Parts of a model that a merge knows how to put together."""


@dataclass(frozen=True)
class Sites:
    """The models to merge.

    Attributes:
        a: the first.
        b: the second.
        base: the model that both descend from, if it was given.
        names: of both, for the update log.
        columns: position in `b` of each feature of `a`.
    """

    a: Model
    b: Model
    base: Model | None
    names: tuple[str, str]
    columns: Sequence[int]

    @property
    def common(self) -> int:
        """How many updates both have in common: the random keys of the log tell them apart."""
        pairs = zip(self.a.log, self.b.log, strict=False)
        return next(
            (at for at, (one, other) in enumerate(pairs) if one != other),
            min(len(self.a.log), len(self.b.log)),
        )


@dataclass(frozen=True)
class Merged:
    """What came of a merge.

    Attributes:
        model: the model.
        exact: whether its statistics are those of all samples, up to rounding.
        how: what was done, in words.
        before: accuracy of each model on rows that it generates itself.
        after: accuracy of the merged model on the same rows.
    """

    model: Model
    exact: bool
    how: str
    before: tuple[float, float]
    after: tuple[float, float]


def merge(
    sites: Sites, device: torch.device, on_epoch: Callable[[Epoch], None] = lambda _: None
) -> Merged:
    """The model of what both models have learned.

    Where both descend from one model, and neither the scale nor the flow has changed since, the
    statistics are added up, as if one model had learned all of it:

        merged = a + (b - base)

    The base is needed only for classes that it knew and of which both have learned more. Where
    the models do not fit so, the first learns rows that the second generates.
    """
    a, b, base = sites.a, sites.b, sites.base
    if base is not None and (not base.log or base.log != a.log[: sites.common]):
        raise InputError(
            "the base is not the model that both files descend from: their update logs have "
            f"{sites.common} updates in common, and its log has {len(base.log)}; name another"
        )
    _refuse_twice(sites)
    reason = _not_addable(sites)
    if reason is None:
        model = _added(sites)
        exact = not any(isinstance(seen, Thin) for m in (a, b) for seen in m.latent.moments)
        how = "statistics added" + ("" if exact else ", those of thin classes to their rank")
        history: tuple[UpdateRecord, ...] = (*_since(sites, 0), *_since(sites, 1))
    else:
        model, exact = _replayed(sites, device, on_epoch), False
        how = f"the second learned into the first by replay, because {reason}"
        history = _since(sites, 0)
    before, after = _accuracies(sites, model)
    log = [*a.log[: sites.common], *history, _record(sites, model, how, before, after)]
    numbered = tuple(replace(record, number=at) for at, record in enumerate(log, start=1))
    return Merged(replace(model, log=numbered), exact, how, before, after)


def _refuse_twice(sites: Sites) -> None:
    """Refuse what both have learned, in an earlier merge, since their logs parted."""
    mine, theirs = (
        {record.fingerprint for record in site.log[sites.common :]} for site in (sites.a, sites.b)
    )
    twice = len(mine & theirs)
    if twice:
        raise InputError(
            f"{sites.names[0]} has already taken in {twice} of the updates of {sites.names[1]}, "
            "which would count twice; merge the models as they were before, each of them once"
        )


def _not_addable(sites: Sites) -> str | None:
    """Why the statistics cannot be added, or None if they can."""
    a, b = sites.a, sites.b
    for name in STRUCTURE:
        if getattr(a.recipe, name) != getattr(b.recipe, name):
            return f"their recipes differ in {name}"
    if not sites.common:
        return "they descend from no common model"
    for name in SHARED:
        if not _same(getattr(a, name), getattr(b, name)):
            return f"the {name} has changed since their last common update"
    if a.embedding is not None and a.registry.cells != b.registry.cells:
        return "their classes have embeddings of their own"
    known = {part.name for part in fields(Model)} - set(SHARED) - set(COMBINED)
    for name in sorted(known):
        if not _same(getattr(a, name), getattr(b, name)):
            return f"their {name} cannot be added up"
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of a model are equal to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, nn.Module):
        parts, others = (
            {**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (one, other)
        )
        return parts.keys() == others.keys() and all(_same(parts[n], others[n]) for n in parts)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if is_dataclass(one):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def _added(sites: Sites) -> Model:
    """The first model with what the second has learned since they parted."""
    a, b = sites.a, sites.b
    registry = a.registry
    news = _counts_since(b, sites.common)
    for (task, label), count in news.items():
        registry = registry.extended(task, [label], [count])
    increments = _increments(sites, registry)
    latent = a.latent
    if isinstance(latent, TaskLatent) and isinstance(b.latent, TaskLatent):
        new = [b.registry.tasks.index(t) for t in registry.tasks[len(a.registry.tasks) :]]
        latent = latent.with_covariances(
            torch.cat((latent.nu, b.latent.nu[new])), torch.cat((latent.rho, b.latent.rho[new]))
        )
    latent = latent.learned(increments, registry.task_of_cell)
    curve = a.curve if a.curve.numel() else b.curve
    if a.curve.numel() and b.curve.numel():
        curve = a.curve + b.curve
        if sites.base is not None and sites.base.curve.numel():
            curve = curve - sites.base.curve
    places = {at: registry.cell_index(*name) for at, name in _cells_of(b) if news[name]}
    calibration = a.calibration.grown(len(registry.cells)).joined(
        b.calibration, places, None if sites.base is None else sites.base.calibration
    )
    if isinstance(latent, ClassLatent):
        calibration = linked(calibration)
    model = replace(a, registry=registry, latent=latent, curve=curve, calibration=calibration)
    if isinstance(latent, ClassLatent) and not a.recipe.frozen:
        dim = len(latent.within)
        nothing = LeftOut(torch.zeros((0, dim)).double(), torch.zeros(0, dtype=torch.long))
        model = chosen(model, latent, nothing)
    return model


def _increments(sites: Sites, registry: Registry) -> dict[int, Moments]:
    """What the second model has learned since the parting, by cell of the merged registry."""
    a, b, base = sites.a, sites.b, sites.base
    mine, theirs = _groups(a), _groups(b)
    more_a, more_b = _group_counts(a, sites.common), _group_counts(b, sites.common)
    for name in {**mine, **theirs}:
        parts = ((a, mine, more_a), (b, theirs, more_b))
        known = [_count(m, at.get(name)) - more[name] for m, at, more in parts]
        if known[0] != known[1] or known[0] < 0:
            raise InputError(
                f"{_words(name)} was forgotten in one of the two since they parted, so their "
                "statistics cannot be added; forget it in both, then merge"
            )
    increments = {}
    for name, at in theirs.items():
        if not more_b[name]:
            continue
        seen = _seen(b, at)
        if _count(b, at) > more_b[name]:
            if not more_a[name]:
                seen = seen.without(_seen(a, mine[name]))
            elif base is not None:
                seen = seen.without(_seen(base, _groups(base)[name]))
            else:
                raise InputError(
                    f"both have learned more of {_words(name)}, which the model that they descend "
                    "from knew already; name that model with --base (base=), or it counts twice"
                )
        cell = registry.cells_of_task(registry.task_index(name[0]))[0]
        if len(name) == 2:
            cell = registry.cell_index(*name)
        increments[cell] = seen
    return increments


def _groups(model: Model) -> dict[tuple[Hashable, ...], int]:
    """Where the statistics of each (task,) or (task, label) are kept."""
    names = model.registry
    if isinstance(model.latent, TaskLatent):
        return {(task,): at for at, task in enumerate(names.tasks)}
    return {(names.tasks[t], names.labels[y]): at for at, (t, y) in enumerate(names.cells)}


def _counts_since(model: Model, common: int) -> Counter[tuple[Hashable, Hashable]]:
    counts: Counter[tuple[Hashable, Hashable]] = Counter()
    for record in model.log[common:]:
        for task, label, count in record.counts:
            counts[task, label] += count
    return counts


def _group_counts(model: Model, common: int) -> Counter[tuple[Hashable, ...]]:
    """Samples learned since the parting, by the name of the group that keeps them."""
    width = 1 if isinstance(model.latent, TaskLatent) else 2
    counts: Counter[tuple[Hashable, ...]] = Counter()
    for name, count in _counts_since(model, common).items():
        counts[name[:width]] += count
    return counts


def _count(model: Model, at: int | None) -> int:
    return 0 if at is None else int(model.latent.moments[at].count)


def _seen(model: Model, at: int) -> Moments:
    latent = model.latent
    return latent.moments[at] if isinstance(latent, TaskLatent) else latent.seen(at)


def _replayed(sites: Sites, device: torch.device, on_epoch: Callable[[Epoch], None]) -> Model:
    """The first model after learning rows that the second generates."""
    a, b = sites.a, sites.b
    counts = dict(_counts_since(b, sites.common))
    if not sites.common:
        counts = {(b.registry.tasks[t], b.registry.labels[y]): n for (t, y), n in _cells(b)}
    total, cells = sum(counts.values()), []
    for (task, label), count in counts.items():
        if (task, label) in _groups(b) or isinstance(b.latent, TaskLatent):
            size = count
            if total > MOST_REPLAYED:
                size = max(min(count, LEAST_REPLAYED), round(count * MOST_REPLAYED / total))
            cells += [b.registry.cell_index(task, label)] * size
    if not cells:
        return a
    generator = _generator(sites, 0)
    x = b.sample(torch.tensor(cells), generator).numpy()[:, list(sites.columns)]
    names = b.registry
    tasks = [names.tasks[names.task_of_cell[cell]] for cell in cells]
    labels = [names.labels[names.label_of_cell[cell]] for cell in cells]
    return learn(a, Lesson(x, tasks, labels, a.recipe, a.seed, device), on_epoch)


def _cells_of(model: Model) -> list[tuple[int, tuple[Hashable, Hashable]]]:
    names = model.registry
    return [(at, (names.tasks[t], names.labels[y])) for at, (t, y) in enumerate(names.cells)]


def _cells(model: Model) -> list[tuple[tuple[int, int], int]]:
    return list(zip(model.registry.cells, model.registry.counts, strict=True))


def _accuracies(sites: Sites, model: Model) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of each model, and then of the merged one, on rows that each generates."""
    before, after = [], []
    for which, site in enumerate((sites.a, sites.b)):
        cells = len(site.registry.cells)
        cell = balanced(cells, max(ASKED, ASKED_EACH * cells), _generator(sites, 1 + which))
        x = site.sample(cell, _generator(sites, 3 + which))
        label = [site.registry.labels[site.registry.label_of_cell[at]] for at in cell.tolist()]
        before.append(_accuracy(site, x, label))
        after.append(_accuracy(model, x[:, list(sites.columns)] if which else x, label))
    return (before[0], before[1]), (after[0], after[1])


def _accuracy(model: Model, x: Tensor, label: list[Hashable]) -> float:
    best = model.posterior(x).log_label().argmax(1).tolist()
    pairs = zip(best, label, strict=True)
    right = sum(bool(model.registry.labels[at] == name) for at, name in pairs)
    return round(right / len(label), 6)


def _generator(sites: Sites, which: int) -> torch.Generator:
    seed = np.random.SeedSequence([sites.a.seed, len(sites.a.log), len(sites.b.log), which])
    return torch.Generator().manual_seed(int(seed.generate_state(1)[0]))


def _since(sites: Sites, which: int) -> tuple[UpdateRecord, ...]:
    """The records of one site since the parting, each with the name of its site."""
    site, name = (sites.a, sites.b)[which], sites.names[which]
    return tuple(
        replace(record, source="; ".join(filter(None, (name, record.source))))
        for record in site.log[sites.common :]
    )


def _record(
    sites: Sites,
    model: Model,
    how: str,
    before: tuple[float, float],
    after: tuple[float, float],
) -> UpdateRecord:
    """The record of the merge itself: the histories of both, and what it cost."""
    learned = model.log[-1] if len(model.log) > len(sites.a.log) else None
    digests = "".join(record.fingerprint for site in (sites.a, sites.b) for record in site.log)
    entries = [f"accuracy on replay of {name}" for name in sites.names]
    names = model.registry
    story = [
        f"{name}: updates {sites.common + 1} to {len(site.log)}"
        for name, site in zip(sites.names, (sites.a, sites.b), strict=True)
    ]
    return replace(
        model.log[-1],
        time=now(),
        counts=() if learned is None else learned.counts,
        fingerprint=hashlib.sha256(digests.encode()).hexdigest(),
        versions=versions(),
        seconds=0.0 if learned is None else learned.seconds,
        epochs=0 if learned is None else learned.epochs,
        before=dict(zip(entries, before, strict=True)),
        after=dict(zip(entries, after, strict=True)),
        small=tuple(
            (names.tasks[task], names.labels[label])
            for (task, label), count in _cells(model)
            if count < model.recipe.min_class_size
        ),
        source=f"merged {' and '.join(story)} after {sites.common} in common; {how}",
    )


def _words(name: tuple[Hashable, ...]) -> str:
    return f"task {name[0]!r}" if len(name) == 1 else f"{name[1]!r} in task {name[0]!r}"
