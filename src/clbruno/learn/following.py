"""The statistics of known cells, when the flow that they were taken under has been trained on."""

import torch
from torch import Tensor

from clbruno.core.cells import ClassLatent
from clbruno.core.model import Model
from clbruno.learn.student import Student

PER_CELL, LEAST = 128, 4096
"""Pseudo-samples of each cell, and of all cells together, behind an estimate."""

STEADY = 1e-3
"""What is added to the pseudo-samples' covariance, as a share of its mean variance."""


def followed(
    latent: ClassLatent, before: Model, student: Student, generator: torch.Generator
) -> ClassLatent:
    """The statistics as the student's latent space would show them, of samples that are gone.

    Pseudo-samples z' of every cell k under the old flow are z' + d under the student's, and

        d = c_k + B (z' - m_k) + e,    B by least squares over the rows of all cells
        m_k <- m_k + c_k,    S_k <- (I + B) S_k (I + B)' + n_k cov(e)

    One B for all cells can be had from few samples; c_k is the mean of d less what B explains.
    """
    cells, dim = len(latent.moments), len(latent.within)
    each = max(PER_CELL, LEAST // cells)
    mean = torch.stack([seen.mean for seen in latent.moments])
    zz, zd, dd = torch.zeros((3, dim, dim), dtype=torch.float64).unbind()
    z_mean, d_mean = torch.zeros((2, cells, dim), dtype=torch.float64).unbind()
    for part in torch.arange(cells).split(max(1, LEAST // each)):
        z, d = _moved(part.repeat_interleave(each), before, student, generator)
        z, d = z.unflatten(0, (len(part), each)), d.unflatten(0, (len(part), each))
        z_mean[part], d_mean[part] = z.mean(1), d.mean(1)
        z, d = ((rows - rows.mean(1, keepdim=True)).flatten(0, 1) for rows in (z, d))
        zz, zd, dd = zz + z.mT @ z, zd + z.mT @ d, dd + d.mT @ d
    steady = STEADY * zz.diagonal().mean() * torch.eye(dim, dtype=torch.float64)
    slope = torch.linalg.solve(zz + steady, zd).mT
    across = slope @ zd
    rest = (dd - across - across.mT + slope @ zz @ slope.mT) / (cells * (each - 1))
    return latent.moved(d_mean - (z_mean - mean) @ slope.mT, slope, rest)


def _moved(
    cell: Tensor, before: Model, student: Student, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pseudo-samples of these cells under the old flow, and how far the student moves each."""
    z, x = before.sample_latent(cell, generator)
    z = z.double().cpu()
    return z, student.z_of(x, cell) - z
