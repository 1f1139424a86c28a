"""Calibration on rows that each update holds back: scored once, turned into numbers, let go."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clbruno.core.calibration import (
    LOGITS,
    PLAIN,
    TAILS,
    TEMPERATURES,
    Calibration,
    Link,
    confidence,
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

UNBENT, LEAST_SLOPE, NEWTON_STEPS = 100.0, 0.1, 20
"""Weight of the prior that confidences are right, in rows; least slope; steps of the search."""

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
        values.append(part.group.rows(replace(model, latent=latent).log_likelihood(x)))
        cells.append(part.group.rows(cell))
        if number == 0 and part.group.total(len(increment.held)):
            first = len(cells[0])
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
        known = replace(known, curve=known.curve + log_losses(model, rows))
        model = replace(model, calibration=replace(known, link=chosen(known.curve)))
        known = replace(known, reliability=known.reliability + reliability(model, rows))
        model = replace(model, calibration=linked(known))
    return replace(model, calibration=_with_scores(model, rows))


def linked(calibration: Calibration) -> Calibration:
    """The calibration with the link that its sums ask for."""
    slope, offset = bend(calibration.reliability)
    link = replace(chosen(calibration.curve), slope=slope, offset=offset)
    return replace(calibration, link=link)


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


def reliability(model: Model, rows: HeldOut) -> Tensor:
    """Rows, right ones and logits, summed by the logit of the confidence before it is bent."""
    log_label = model.posterior_from(rows.log_likelihood).log_label_unbent()
    found = torch.zeros((2 * LOGITS, 3), dtype=torch.float64)
    if log_label.shape[1] == 1:
        return found
    top, rest = confidence(log_label)
    logit = (log_label.gather(1, top) - rest)[:, 0].clamp(-LOGITS, LOGITS)
    right = top[:, 0] == torch.tensor(model.registry.label_of_cell)[rows.cell]
    sums = torch.stack((torch.ones_like(logit), right.double(), logit), dim=1)
    place = (logit + LOGITS).long().clamp(max=2 * LOGITS - 1)
    return found.index_add_(0, place, rows.weight[:, None] * sums)


def bend(counts: Tensor) -> tuple[float, float]:
    """Slope and offset of the logistic regression of being right on the logit of the confidence.

        min  - sum_b [ r_b log s_b + (n_b - r_b) log(1 - s_b) ] + B ((slope - 1)^2 + offset^2),
        s_b = sigmoid(slope x_b + offset),  x_b the mean logit of bin b

    by Newton's method; the sum is convex. The prior of weight B keeps few rows from bending much.
    """
    n, right, total = counts[counts[:, 0] > 0].unbind(1)
    x = torch.stack((total / n, torch.ones_like(n)), dim=1)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    at = start.clone()
    eye = torch.eye(2, dtype=torch.float64)
    for _ in range(NEWTON_STEPS):
        s = (x @ at).sigmoid()
        slope_of_loss = x.mT @ (n * s - right) + 2 * UNBENT * (at - start)
        curvature = x.mT @ ((n * s * (1 - s))[:, None] * x) + 2 * UNBENT * eye
        at = at - torch.linalg.solve(curvature, slope_of_loss)
    return max(float(at[0]), LEAST_SLOPE), float(at[1])


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
