"""A latent as a header and tensors, and back, with every bound checked."""

import math
from typing import Any

import torch
from torch import Tensor

from clbruno.config import Recipe
from clbruno.core.cells import ClassLatent, TaskLatent, Thin
from clbruno.core.moments import Moments
from clbruno.persist.checks import Fields, require, shaped
from clbruno.registry import Registry

Latent = TaskLatent | ClassLatent

_DISAGREE = "the statistics and the registry do not count the same samples"


def encode(latent: Latent) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The numbers and the tensors of a latent."""
    seen = latent.moments
    tensors = {
        "latent.count": torch.tensor([m.count for m in seen], dtype=torch.float64),
        "latent.mean": torch.stack([m.mean for m in seen]),
    }
    if isinstance(latent, TaskLatent):
        tensors["latent.scatter"] = torch.stack([m.scatter for m in latent.moments])
        tensors |= {"latent.nu": latent.nu, "latent.rho": latent.rho}
        return {"dof": "inf" if latent.dof == math.inf else float(latent.dof)}, tensors
    dim = len(latent.within)
    full = [m.scatter for m in seen if isinstance(m, Moments)]
    thin = [m.factor for m in seen if isinstance(m, Thin)]
    tensors["latent.within"] = latent.within
    tensors["latent.scatter"] = torch.stack(full) if full else _nothing(0, dim, dim)
    tensors["latent.factor"] = torch.cat([_nothing(dim, 0), *thin], dim=1)
    header: dict[str, Any] = {
        name: float(getattr(latent, name))
        for name in ("strength", "kappa", "ridge", "blur", "unit")
    }
    header["ranks"] = [m.factor.shape[1] if isinstance(m, Thin) else None for m in seen]
    return header, tensors


def decode(
    fields: Fields, tensors: dict[str, Tensor], dim: int, recipe: Recipe, registry: Registry
) -> Latent:
    """The latent of a model."""
    if recipe.latent == "task":
        latent: Latent = _decode_task_latent(fields, tensors, dim, registry)
    else:
        latent = _decode_class_latent(fields, tensors, dim, recipe, registry)
    fields.end()
    return latent


def _decode_task_latent(
    fields: Fields, tensors: dict[str, Tensor], dim: int, registry: Registry
) -> TaskLatent:
    tasks = len(registry.tasks)
    count, mean = _counts_and_means(tensors, tasks, dim)
    scatter = _not_negative(shaped(tensors, "latent.scatter", (tasks, dim), torch.float64))
    nu, rho = (
        shaped(tensors, "latent.nu", (tasks, dim)),
        shaped(tensors, "latent.rho", (tasks, dim)),
    )
    require(bool(((rho > 0) & (rho < nu)).all()), "the covariances do not keep 0 < rho < nu")
    dof = fields.real_or_inf("dof")
    require(dof > 2, "the degrees of freedom are not above 2")
    counted = [0] * tasks
    for (task, _), samples in zip(registry.cells, registry.counts, strict=True):
        counted[task] += samples
    # More may have been seen than is counted: a forgotten label stays in the sum of its task.
    require(not any(n < least for n, least in zip(count, counted, strict=True)), _DISAGREE)
    moments = tuple(map(Moments, count, mean, scatter))
    return TaskLatent(nu, rho, moments, registry.task_of_cell, dof)


def _decode_class_latent(
    fields: Fields, tensors: dict[str, Tensor], dim: int, recipe: Recipe, registry: Registry
) -> ClassLatent:
    cells = len(registry.cells)
    count, mean = _counts_and_means(tensors, cells, dim)
    require(count == [float(n) for n in registry.counts], _DISAGREE)
    ranks = _decode_ranks(fields.items("ranks"), cells, dim)
    thin_ranks = [rank for rank in ranks if rank is not None]
    shape = (cells - len(thin_ranks), dim, dim)
    scatter = shaped(tensors, "latent.scatter", shape, torch.float64)
    within = shaped(tensors, "latent.within", (dim, dim), torch.float64)
    _not_negative(scatter.diagonal(dim1=1, dim2=2))
    for matrix in (within, *scatter):
        _symmetric(matrix)
    factor = shaped(tensors, "latent.factor", (dim, sum(thin_ranks)), torch.float64)
    full, thin = iter(scatter), iter(torch.split(factor, thin_ranks, dim=1) if thin_ranks else ())
    moments = tuple(
        Moments(n, m, next(full)) if rank is None else Thin(n, m, next(thin).contiguous())
        for n, m, rank in zip(count, mean, ranks, strict=True)
    )
    latent = ClassLatent(
        moments=moments,
        within=within,
        task_of_cell=registry.task_of_cell,
        strength=fields.positive("strength"),
        kappa=fields.positive("kappa"),
        ridge=fields.positive("ridge"),
        blur=fields.real("blur", 0),
        memory=recipe.memory,
        unit=fields.positive("unit"),
    )
    require(latent.ridge < 1, "the ridge is not below 1")
    return latent


def _counts_and_means(
    tensors: dict[str, Tensor], rows: int, dim: int
) -> tuple[list[float], list[Tensor]]:
    count = shaped(tensors, "latent.count", (rows,), torch.float64)
    mean = shaped(tensors, "latent.mean", (rows, dim), torch.float64)
    require(bool((count >= 0).all()), "a count is negative")
    return count.tolist(), list(mean)


def _decode_ranks(values: list[Any], cells: int, dim: int) -> list[int | None]:
    right = all(v is None or (type(v) is int and 0 <= v <= dim) for v in values)
    require(right and len(values) == cells, "the ranks of the classes are not ranks")
    return values


def _not_negative(scatter: Tensor) -> Tensor:
    require(bool((scatter >= 0).all()), "a sum of squares is negative")
    return scatter


def _symmetric(scatter: Tensor) -> None:
    # One triangle alone is computed with: what stands in the other would never be noticed. The
    # rounding of a product is far below the tolerance.
    gap = (scatter - scatter.mT).abs().max()
    require(bool(gap <= 1e-6 * scatter.abs().max()), "a scatter matrix is not symmetric")


def _nothing(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)
