"""Rows with missing features: log p(observed features | t, y), the rest integrated out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from clbruno.core.cells import TaskLatent
from clbruno.core.conjugate import NormalInverseWishart
from clbruno.core.flow import CouplingFlow, Whitening
from clbruno.core.latent import ExchangeableGaussian
from clbruno.core.model import Model
from clbruno.core.moments import Moments

DRAWS = 256
"""Values drawn for the missing features of a row in a cell, where there is no closed form."""

GENERATED = 512
"""Generated rows of each cell, at least twice the features, that the draws are fitted to."""

WIDER = 1.3
"""By what the draws' covariance is widened: importance weights then keep a finite variance."""

LEVELS = 256
"""Generated rows behind a typicality p-value of rows that miss features."""

Law = NormalInverseWishart | ExchangeableGaussian


@dataclass(frozen=True)
class Observed:
    """What rows with missing features say.

    Attributes:
        log_likelihood: log p(x_observed | t, y), shape `(n, cells)`.
        error: its standard error from the draws; zero where the answer is exact.
    """

    log_likelihood: Tensor
    error: Tensor


def observe(model: Model, x: Tensor) -> Observed:
    """log p(x_o | t, y) = log of the integral of p(x_o, x_m | t, y) over the missing x_m.

    NaN stands for a missing value. Exact where the flow is linear: every cell's law is then one
    of x, and its marginal is of the same kind. Elsewhere by importance sampling with `DRAWS`
    values from a Gaussian given x_o that was fitted to rows which the model generates:

        p(x_o) = E_q [ p(x_o, x_m) / q(x_m | x_o) ]
    """
    cells = len(model.registry.cells)
    value = torch.empty((len(x), cells), dtype=torch.float64)
    error = torch.zeros_like(value)
    exact = laws_of_features(model)
    fitted = None if exact is not None else _fitted(model)
    scaled = model.scaler.forward(x.double())
    for rows, at in patterns(x):
        ladj = model.scaler.taken(at).ladj(x[rows][:, at].double())
        if not len(at):
            value[rows] = 0.0
        elif len(at) == x.shape[1]:
            value[rows] = model.log_likelihood(x[rows])
        elif exact is not None:
            # Cells of one task may share a law.
            marginal = {id(law): law.marginal(at).log_prob(scaled[rows][:, at]) for law in exact}
            value[rows] = torch.stack([marginal[id(law)] for law in exact], dim=1) + ladj[:, None]
        else:
            assert fitted is not None
            for cell, seen in enumerate(fitted):
                found = _sampled(model, cell, seen, scaled[rows], at)
                value[rows, cell], error[rows, cell] = found[0] + ladj, found[1]
    return Observed(value, error)


def observed_levels(model: Model, at: Tensor) -> Tensor:
    """Ascending log p(x_o | t) of generated rows that have some features only."""
    gone = torch.ones(model.dim, dtype=torch.bool)
    gone[at] = False
    levels = []
    for task in range(len(model.registry.tasks)):
        generator = torch.Generator().manual_seed(model.seed + task)
        x = model.sample(model.draw_cells(LEVELS, task, generator), generator)
        x[:, gone] = torch.nan
        evidence = model.posterior_from(observe(model, x).log_likelihood).log_evidence()
        levels.append(evidence[:, task].sort().values)
    return torch.stack(levels)


def patterns(x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions of the rows that miss the same features, and the features that they have."""
    there, which = np.unique(~x.isnan().numpy(), axis=0, return_inverse=True)
    for number, mask in enumerate(there):
        rows = torch.from_numpy(np.flatnonzero(which.reshape(-1) == number))
        yield rows, torch.from_numpy(np.flatnonzero(mask))


def separation(model: Model, at: Tensor) -> float:
    """How much of the separation of the classes some features carry, from 0 to 1.

        tr(W_oo^-1 B_oo) / tr(W^-1 B)

    W is the covariance within the cells, B that of their means, both of scaled features.
    """
    laws = laws_of_features(model)
    if laws is None:
        fitted = _fitted(model)
        means, within = [seen.mean for seen in fitted], [seen.scatter for seen in fitted]
    else:
        means, within = [law.mean for law in laws], [_covariance(law) for law in laws]
    centred = torch.stack(means) - torch.stack(means).mean(0)
    inside = torch.stack(within).mean(0)
    whole = _trace(inside, centred)
    if whole <= 0:
        return len(at) / model.dim
    return _trace(inside[at][:, at], centred[:, at]) / whole if len(at) else 0.0


def _trace(within: Tensor, centred: Tensor) -> float:
    return float((torch.linalg.solve(within, centred.mT) * centred.mT).sum())


def _covariance(law: Law) -> Tensor:
    """The covariance of a row, up to a factor that is the same for all features."""
    if isinstance(law, NormalInverseWishart):
        return law.scale / max(law.dof - len(law.mean) - 1, 1.0)
    return (law.rho + law.delta).diag()


def laws_of_features(model: Model) -> list[Law] | None:
    """The law of the scaled features in every cell where the flow is linear, else None."""
    flows = list(model.flow.flows)
    linear = all(
        isinstance(flow, Whitening) or (isinstance(flow, CouplingFlow) and not len(flow.layers))
        for flow in flows
    )
    moved = any(isinstance(flow, Whitening) for flow in flows)
    if isinstance(model.latent, TaskLatent):
        # A product of Student-t laws, or of unequal variances, is not one after a rotation.
        if not linear or moved:
            return None
        return [model.latent.predictive[task] for task in model.registry.task_of_cell]
    if not linear:
        return None
    laws = list(model.latent.laws)
    if not moved:
        return list(laws)
    offset = model.flow.inverse(torch.zeros((1, model.dim), dtype=torch.float64))
    matrix = model.flow.inverse(torch.eye(model.dim, dtype=torch.float64)) - offset
    return [law.mapped(matrix, offset[0]) for law in laws]


def _fitted(model: Model) -> list[Moments]:
    """Mean and covariance of each cell's scaled features, from rows that the model generates."""
    found = []
    for cell in range(len(model.registry.cells)):
        generator = torch.Generator().manual_seed(model.seed + cell)
        cells = torch.full((max(GENERATED, 2 * model.dim),), cell)
        x = model.sample_latent(cells, generator)[1].double().cpu()
        seen = Moments.of(x, full=True)
        cov = seen.scatter / seen.count
        ridge = 1e-6 * cov.diagonal().mean() * torch.eye(len(cov), dtype=torch.float64)
        found.append(Moments(seen.count, seen.mean, cov + ridge))
    return found


def _sampled(
    model: Model, cell: int, seen: Moments, scaled: Tensor, at: Tensor
) -> tuple[Tensor, Tensor]:
    """log p(x_o | cell) of scaled rows by importance sampling, and its standard error."""
    gone = torch.ones(scaled.shape[1], dtype=torch.bool)
    gone[at] = False
    cov = seen.scatter
    gain = torch.linalg.solve(cov[at][:, at], cov[at][:, gone])
    rest = WIDER * (cov[gone][:, gone] - cov[gone][:, at] @ gain)
    root = torch.linalg.cholesky((rest + rest.mT) / 2)
    centre = seen.mean[gone] + (scaled[:, at] - seen.mean[at]) @ gain
    generator = torch.Generator().manual_seed(model.seed)
    noise = torch.randn((DRAWS, len(root)), generator=generator, dtype=torch.float64)
    log_q = -0.5 * (noise.square() + math.log(2 * math.pi)).sum(1) - root.diagonal().log().sum()
    value, error = torch.empty(len(scaled)).double(), torch.empty(len(scaled)).double()
    for row in range(len(scaled)):
        full = scaled[row].expand(DRAWS, -1).clone()
        full[:, gone] = centre[row] + noise @ root.mT
        weight = model.log_likelihood_scaled(full, [cell])[:, 0] - log_q
        peak = weight.max()
        share = (weight - peak).exp()
        value[row] = peak + share.mean().log()
        error[row] = share.std() / share.mean() / math.sqrt(DRAWS)
    return value, error
