"""Calibration on rows that each update holds back: scored once, turned into numbers, let go."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clbruno.core.calibration import (
    PLAIN,
    TAILS,
    TEMPERATURES,
    Calibration,
    Link,
    mass_above,
)
from clbruno.core.cells import ClassLatent
from clbruno.core.model import LEVEL_SAMPLES, Model
from clbruno.core.moments import Moments, merged
from clbruno.core.posterior import LOG_FLOOR
from clbruno.learn.batch import Batch
from clbruno.learn.problem import Increment

WANTED, MOST_FOLDS = 300, 5
"""Rows to hold back, in turn where one share is too small, and the most turns."""

MOST_ROWS = 2048
"""Most rows that are scored in a turn."""

GENERATED, GENERATED_WORK = 256, 10**9
"""Generated rows of a task that the densities of held-back rows are measured against, at least;
and the most products that more of them, up to those of an answer, may take."""

AS_GOOD = 1.0
"""Log-likelihood that held-back rows may lose for a less confident link: they cannot tell."""


@dataclass(frozen=True)
class HeldOut:
    """Rows of a batch, each scored by a model that has learned the others.

    Attributes:
        log_likelihood: log p(x | t, y), shape `(n, cells)`.
        cell: cell of each row.
        weight: how many rows of the batch, per row here, each stands for.
        first: how many of them are the share that the trainer held back.
    """

    log_likelihood: Tensor
    cell: Tensor
    weight: Tensor
    first: int


def held_out(model: Model, increment: Increment, *, once: bool) -> HeldOut:
    """Score held-back rows by the statistics of the others, weighted as if they were all.

    A class of fewer samples has another covariance, and so another density: without the weight
    the held-back rows would tell of a model that nobody uses. A trained flow has seen all but one
    share; else shares take turns until there are `WANTED` rows.
    """
    total = merged(increment.moments(increment.new), increment.moments(increment.held))
    values, cells, first = [], [], 0
    for number, part in enumerate(_shares(increment, 1 if once else MOST_FOLDS)):
        rows = np.sort(increment.rng.permutation(len(part))[:MOST_ROWS])
        rest = _scaled_up(total, increment.moments(part))
        latent = increment.latent_with(rest)
        if isinstance(latent, ClassLatent) and isinstance(model.latent, ClassLatent):
            latent = replace(latent, ridge=model.latent.ridge)
        x, cell = part.raw(rows)
        values.append(replace(model, latent=latent).log_likelihood(x))
        cells.append(cell)
        first = first or (len(cell) if number == 0 else 0)
    if not cells:
        nothing = torch.zeros((0, len(model.registry.cells)), dtype=torch.float64)
        return HeldOut(nothing, torch.zeros(0, dtype=torch.long), nothing[:, 0], 0)
    cell = torch.cat(cells)
    size = torch.zeros(len(model.registry.cells), dtype=torch.float64)
    for at, seen in total.items():
        size[at] = seen.count
    here = torch.bincount(cell, minlength=len(size))
    weight = (size / here.clamp(min=1))[cell]
    return HeldOut(torch.cat(values), cell, weight / weight.mean(), first)


def calibrated(model: Model, rows: HeldOut) -> Model:
    """The model with the link and the scores that the held-back rows ask for."""
    known = model.calibration.grown(len(model.registry.cells))
    if not bool(known.curve.any()):
        known = replace(known, link=Link(model.temperature))
    model = replace(model, calibration=known)
    if not len(rows.cell) or model.recipe.frozen:
        return model
    if isinstance(model.latent, ClassLatent):
        curve = known.curve + log_losses(model, rows)
        model = replace(model, calibration=replace(known, curve=curve, link=chosen(curve)))
    return replace(model, calibration=_with_scores(model, rows))


def chosen(curve: Tensor) -> Link:
    """The highest temperature among the links that the held-back rows cannot tell from the best.

    Where they are all far from any border, they would take a temperature of one, and the first
    row that is not would be answered with certainty.
    """
    if not bool(curve.any()):
        return PLAIN
    lowest = curve.amin(1)
    at = int((lowest <= lowest.min() + AS_GOOD).nonzero().max())
    return Link(float(TEMPERATURES[at]), float(TAILS[curve[at].argmin()]))


def log_losses(model: Model, rows: HeldOut) -> Tensor:
    """Summed log-loss of p(y | x) under every link, shape `(temperatures, tails)`.

    - sum_i w_i log p(y_i | x_i),   p(y | x) = the sum over the cells with label y of
    softmax(g + log p(t, y) - log share(t, y))
    """
    losses = torch.empty((len(TEMPERATURES), len(TAILS)), dtype=torch.float64)
    label = torch.tensor(model.registry.label_of_cell)
    other = label != label[rows.cell][:, None]
    share = model.log_share
    prior = model.log_cell_prior - share
    for at, temperature in enumerate(TEMPERATURES.tolist()):
        for to, tail in enumerate(TAILS.tolist()):
            joint = Link(temperature, tail)(rows.log_likelihood + share) + prior
            true = joint.masked_fill(other, -torch.inf).logsumexp(1) - joint.logsumexp(1)
            losses[at, to] = -(rows.weight * true.clamp(min=LOG_FLOOR)).sum()
    return losses


def _with_scores(model: Model, rows: HeldOut) -> Calibration:
    posterior = model.posterior_from(rows.log_likelihood)
    names = model.registry
    label = torch.tensor(names.label_of_cell)[rows.cell][:, None]
    task = torch.tensor(names.task_of_cell)[rows.cell]
    in_task = posterior.log_label_in(task, len(names.labels))
    density = posterior.log_evidence().gather(1, task[:, None])[:, 0]
    scale = torch.ones((len(names.tasks), 2), dtype=torch.float64)
    size = max(GENERATED, min(LEVEL_SAMPLES, GENERATED_WORK // (len(names.cells) * model.dim**2)))
    for at in task.unique().tolist():
        level = model.generated_evidence(at, size)
        scale[at] = torch.stack((level.mean(), level.std()))
    scores = torch.stack(
        (
            mass_above(posterior.log_label().exp()).gather(1, label)[:, 0],
            mass_above(in_task.exp()).gather(1, label)[:, 0],
            (density - scale[task, 0]) / scale[task, 1],
        )
    )
    calibration = model.calibration
    for cell in rows.cell.unique().tolist():
        calibration = calibration.with_scores(cell, scores[:, rows.cell == cell])
    return calibration


def _shares(increment: Increment, most: int) -> Iterator[Batch]:
    """The held-back share, and others of the same size that no row is twice in."""
    held, new = increment.held, increment.new
    if len(held):
        yield held
    if not increment.recipe.validation_share:
        return
    left, size = {}, {}
    cell, there = new.cell[new.rows], held.cell[held.rows]
    for at in new.cells:
        mine = np.flatnonzero(cell == at)
        size[at] = max(1, int((there == at).sum()))
        if len(mine) + (there == at).sum() > 1:
            left[at] = increment.rng.permutation(mine)
    rows = len(held)
    for turn in range(most - bool(len(held))):
        if rows >= WANTED:
            return
        taken = [mine[turn * size[at] : (turn + 1) * size[at]] for at, mine in left.items()]
        part = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *taken]))
        if not len(part):
            return
        rows += len(part)
        yield replace(new, rows=new.rows[part])


def _scaled_up(total: Mapping[int, Moments], part: Mapping[int, Moments]) -> dict[int, Moments]:
    """The statistics without a part, counted as if they were those of the whole."""
    rest = dict(total)
    for cell, gone in part.items():
        left = total[cell].without(gone)
        more = total[cell].count / left.count
        rest[cell] = Moments(total[cell].count, left.mean, more * left.scatter)
    return rest
