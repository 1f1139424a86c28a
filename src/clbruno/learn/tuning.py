"""Ridge and temperature by closed-form leave-one-out, and the held-back figures of the log."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clbruno.core.cells import ClassLatent
from clbruno.core.conjugate import t_log_prob
from clbruno.core.model import Model
from clbruno.learn.batch import Batch
from clbruno.learn.distributed import ALONE, Group

RIDGES = (0.02, 0.06, 0.2, 0.006)
"""What the ridge is chosen from, the preferred first, which is taken where nothing can be told."""

AS_GOOD = 1e-3
"""Relative difference of log-loss within which the preferred ridge is taken."""

TEMPERATURES = torch.tensor([2 ** (step / 8) for step in range(57)], dtype=torch.float64)
"""What the temperature is chosen from, 1 to 128."""

ROWS_PER_CELL, LEAST_ROWS, MOST_ROWS = 40, 400, 4096
"""Rows of each cell behind a leave-one-out curve; rows in all; rows behind a held-back figure."""


@dataclass(frozen=True)
class LeftOut:
    """Rows of the new batch in the latent space, each to be scored as if it had not been learned.

    Attributes:
        z: latents, shape `(rows, D)`.
        cell: cell of each row.
    """

    z: Tensor
    cell: Tensor


def chosen(model: Model, latent: ClassLatent, rows: LeftOut, group: Group = ALONE) -> Model:
    """The model with the ridge and the temperature of the lowest leave-one-out log-loss.

    The log-losses of all updates are added up, so that the choice is about all classes and not
    about the newest ones alone. Thin cells cannot be asked: a row cannot be taken out of directions
    that are not kept, and so strong ridges would seem better than they are.
    """
    ridges = RIDGES if model.recipe.ridge is None else (model.recipe.ridge,)
    curve = model.curve
    if not curve.numel():
        curve = torch.zeros((len(ridges), len(TEMPERATURES)), dtype=torch.float64)
    if group.total(len(rows.cell)):
        share = model.log_share
        for at, ridge in enumerate(ridges):
            log_prob = leave_one_out(replace(latent, ridge=ridge), rows)
            losses = group.sum(log_losses(log_prob + share, model.log_cell_prior - share, rows))
            curve = curve.index_add(0, torch.tensor([at]), losses[None])
    if not bool(curve.any()):
        return model
    lowest = curve.amin(1)
    best = int((lowest <= (1 + AS_GOOD) * lowest.min() + AS_GOOD).int().argmax())
    temperature = float(TEMPERATURES[curve[best].argmin()])
    latent = replace(latent, ridge=ridges[best])
    return replace(model, latent=latent, temperature=temperature, curve=curve)


def log_losses(log_joint: Tensor, log_prior: Tensor, rows: LeftOut) -> Tensor:
    """Summed log-loss of p(t, y | x) at every temperature.

    - sum_i log softmax(log_joint_i / T + log_prior)[cell_i]
    """
    losses = [
        -torch.log_softmax(log_joint / T + log_prior, dim=1).gather(1, rows.cell[:, None]).sum()
        for T in TEMPERATURES
    ]
    return torch.stack(losses)


def leave_one_out(latent: ClassLatent, rows: LeftOut) -> Tensor:
    """log p(z_i | cell k, all samples but z_i), shape `(rows, cells)`, without refitting.

    Row i of cell o with d = z_i - zbar_o, c = n_o / (n_o - 1), b = c / (sum_k (n_k - 1) - 1) takes
    c d d' out of the scatter of its own cell and b d d' out of the pooled covariance. With e = F d
    and n' = n_k - [k = o], the covariance of every cell changes in two directions,

        Sigma_k' = Sigma_k - g_1 d d' - g_2 e e',   Sigma_k of n' samples
        g_1 = (1 - s) b,   g_2 = (1 - s) ([k = o] c - n' b) / (v0 + n')

    and the mean of its own cell moves by d / (n_o - 1). F, the divisor of the pooled covariance and
    the prior mean are left as they are, changes of one part in the number of all samples.
    """
    counts = torch.tensor([seen.count for seen in latent.moments], dtype=torch.float64)
    means = torch.stack([seen.mean for seen in latent.moments])
    n_own = counts[rows.cell]
    c = n_own / (n_own - 1)
    d = rows.z - means[rows.cell]
    b = c / max(latent.degrees - 1, 1.0)
    one = latent.filter @ latent.pooled @ latent.filter
    columns = []
    for cell in range(len(counts)):
        column = torch.empty(len(rows.cell), dtype=torch.float64)
        beyond = latent.beyond(cell)  # less n_k of `one`; with a sample gone, less n_k - 1
        for own in (True, False):
            here = (rows.cell == cell) == own
            if bool(here.any()):
                left = float(counts[cell]) - own
                column[here] = _without_each(
                    latent,
                    beyond + own * one,
                    count=left,
                    x=c[here, None] * d[here] if own else rows.z[here] - means[cell],
                    d=d[here],
                    weights=(b[here], (own * c[here] - left * b[here]) / (latent.strength + left)),
                )
        columns.append(column)
    return torch.stack(columns, dim=1)


def _without_each(
    latent: ClassLatent,
    beyond: Tensor,
    *,
    count: float,
    x: Tensor,
    d: Tensor,
    weights: tuple[Tensor, Tensor],
) -> Tensor:
    """log t of rows `x` from a mean, the covariance less w_1 d d' + w_2 (F d)(F d)' for each row.

    With A the covariance, U = (d, e), G = U' A^-1 U, W = diag(w) and u = U' A^-1 x:

        |A - U W U'| = |A| |I - W G|
        x' (A - U W U')^-1 x = x' A^-1 x + u' (I - W G)^-1 W u
    """
    dim, samples = x.shape[1], latent.strength + count
    keep = 1 - latent.ridge
    cov = keep * (latent.pooled + beyond / samples)
    cov = cov + latent.ridge * torch.eye(dim, dtype=cov.dtype)
    root = torch.linalg.cholesky(cov)
    x, d, e = (
        torch.linalg.solve_triangular(root, rows.mT, upper=False)
        for rows in (x, d, d @ latent.filter)
    )
    w_1, w_2 = keep * weights[0], keep * weights[1]
    to_d, to_e, across = (x * d).sum(0), (x * e).sum(0), w_1 * w_2 * (d * e).sum(0)
    left_d, left_e = 1 - w_1 * d.square().sum(0), 1 - w_2 * e.square().sum(0)
    left = (left_d * left_e - across * (d * e).sum(0)).clamp(min=1e-6)
    gained = w_1 * left_e * to_d.square() + w_2 * left_d * to_e.square() + 2 * across * to_d * to_e
    distance = x.square().sum(0) + gained / left
    log_det = 2 * root.diagonal().log().sum() + left.log()
    df = samples + 2
    widen = (1 + 1 / (latent.kappa + count)) * (df - 2) / df
    return t_log_prob(distance / widen, log_det + dim * math.log(widen), df, dim)


def rows_to_leave_out(
    held: Batch, latent: ClassLatent, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Positions of up to forty rows of every cell that can lose one; more where cells are few."""
    per_cell = max(ROWS_PER_CELL, LEAST_ROWS // max(len(held.cells), 1))
    cells = held.cell[held.rows]
    taken = [
        rng.permutation(np.flatnonzero(cells == cell))[:per_cell]
        for cell in held.cells
        if latent.moments[cell].count >= 2
    ]
    return np.sort(np.concatenate(taken)) if taken else np.empty(0, dtype=np.int64)


def held_back_figures(model: Model, held: Batch) -> dict[str, float]:
    """Figures of the answers on the held-back rows of the cells that the model knows."""
    rows = np.flatnonzero(held.cell[held.rows] < len(model.registry.cells))[:MOST_ROWS]
    if not len(rows):
        return {}
    x, cell = held.raw(rows)
    return figures(model, held.group.rows(model.log_likelihood(x)), held.group.rows(cell))


def figures(model: Model, log_likelihood: Tensor, cell: Tensor) -> dict[str, float]:
    """Accuracy, log-loss and calibration on rows, given their likelihoods and true cells."""
    if not len(cell):
        return {}
    posterior = model.posterior_from(log_likelihood)
    label, task = posterior.label_of_cell[cell], posterior.task_of_cell[cell]
    log_label = posterior.log_label()
    found = {
        "rows": float(len(cell)),
        "accuracy": _accuracy(log_label, label),
        "log_loss": -float(log_label.gather(1, label[:, None]).clamp(min=-708).mean()),
        "ece": expected_calibration_error(log_label, label),
        "brier": brier_score(log_label, label),
        "accuracy_task_known": _accuracy(posterior.log_label_in(task, log_label.shape[1]), label),
        "task_accuracy": _accuracy(posterior.log_task(), task),
        **_accuracy_by_task(model, log_label, label, task),
    }
    return {name: round(value, 6) for name, value in found.items()}


def expected_calibration_error(log_proba: Tensor, truth: Tensor, bins: int = 15) -> float:
    """sum_b n_b / n |accuracy_b - confidence_b| over equal bins of the largest probability."""
    confidence, best = log_proba.exp().max(dim=1)
    gap = (best == truth).double() - confidence
    place = (confidence * bins).long().clamp(max=bins - 1)
    total = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, gap)
    return float(total.abs().sum() / len(truth))


def brier_score(log_proba: Tensor, truth: Tensor) -> float:
    """Mean over the rows of  sum_y (p(y | x) - [y is true])^2."""
    proba = log_proba.exp()
    hit = proba.gather(1, truth[:, None])[:, 0]
    return float((proba.square().sum(1) - 2 * hit + 1).mean())


def _accuracy_by_task(
    model: Model, log_label: Tensor, label: Tensor, task: Tensor
) -> dict[str, float]:
    """The accuracy on the rows of each task, the task not told; where there are several."""
    names = model.registry.tasks
    if len(names) == 1:
        return {}
    return {
        f"accuracy, task {names[at]}": _accuracy(log_label[task == at], label[task == at])
        for at in task.unique().tolist()
    }


def _accuracy(scores: Tensor, truth: Tensor) -> float:
    return float((scores.argmax(1) == truth).double().mean())
