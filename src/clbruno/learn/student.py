"""What is trained during an update: a copy of the flow, its contexts, new tasks' covariances."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from clbruno.config import Recipe
from clbruno.core.coupling import Context
from clbruno.core.flow import CellEmbedding, CouplingFlow, FlowSequence, Whitening
from clbruno.core.model import Model
from clbruno.core.moments import Moments
from clbruno.registry import Registry

COMMON = 0.1
"""A new task's rho starts at this share of its nu: a weak common part."""


class Covariances(nn.Module):
    """nu and rho of every task: those of known tasks fixed, those of new ones trained.

    rho = softplus(a),  nu = rho + softplus(b),  so nu > rho > 0 whatever a and b are

    A new task starts at nu = 1, as inputs are scaled, until `start_from` is told better.
    """

    old_nu: Tensor
    old_rho: Tensor

    def __init__(self, old_nu: Tensor, old_rho: Tensor, new_tasks: int) -> None:
        super().__init__()
        self.register_buffer("old_nu", old_nu)
        self.register_buffer("old_rho", old_rho)
        shape = (new_tasks, old_nu.shape[1])
        self.raw_rho = nn.Parameter(_inverse_softplus(torch.full(shape, COMMON)))
        self.raw_delta = nn.Parameter(_inverse_softplus(torch.full(shape, 1 - COMMON)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """`(nu, rho)`, each of shape `(tasks, D)`."""
        rho, delta = self.new()
        return torch.cat((self.old_nu, rho + delta)), torch.cat((self.old_rho, rho))

    def new(self) -> tuple[Tensor, Tensor]:
        """`(rho, delta)` of the new tasks alone."""
        return softplus(self.raw_rho), softplus(self.raw_delta)

    def start_from(self, seen: Mapping[int, Moments], task_of_cell: Sequence[int]) -> None:
        """Start each new task at the spread of its rows within their cells, and a sample of one.

        nu = (sum_k S_k + 1) / (sum_k (n_k - 1) + 1),   rho = 0.1 nu

        Steps are of one size whatever the gradient: from a start far off, a training of a few
        hundred steps never comes to the spread of the data.
        """
        known = len(self.old_nu)
        with torch.no_grad():
            for at in range(len(self.raw_rho)):
                mine = [m for cell, m in seen.items() if task_of_cell[cell] == known + at]
                scatter = sum((m.scatter for m in mine), torch.ones(()))
                nu = (scatter / (sum(m.count - 1 for m in mine) + 1)).to(self.raw_rho)
                self.raw_rho[at] = _inverse_softplus(COMMON * nu)
                self.raw_delta[at] = _inverse_softplus((1 - COMMON) * nu)


class Student(nn.Module):
    """The trainable copy of a model's flow, in float32.

    Attributes:
        flow: the flow.
        embedding: contexts of all cells, new ones included; None for a label-free flow.
        covariances: nu and rho of all tasks; None for the class latent.
    """

    def __init__(
        self, flow: FlowSequence, embedding: CellEmbedding | None, covariances: Covariances | None
    ) -> None:
        super().__init__()
        self.flow = flow
        self.embedding = embedding
        self.covariances = covariances
        self.float()

    @classmethod
    def start(
        cls, dim: int, recipe: Recipe, registry: Registry, generator: torch.Generator
    ) -> "Student":
        """A flow that is the identity, and random contexts."""
        couplings = CouplingFlow(
            dim, recipe.couplings, recipe.hidden, recipe.context_dim, generator=generator
        )
        embedding = None
        if recipe.context_dim:
            empty = torch.zeros(0, recipe.context_dim)
            nothing = CellEmbedding(empty, empty, torch.zeros(0, dtype=torch.long))
            embedding = _grown(nothing, registry, generator)
        covariances = None
        if recipe.latent == "task":
            covariances = Covariances(torch.zeros(0, dim), torch.zeros(0, dim), len(registry.tasks))
        return cls(FlowSequence([couplings]), embedding, covariances)

    @classmethod
    def of(cls, model: Model, registry: Registry, generator: torch.Generator) -> "Student":
        """A copy of the model's parts, grown to the tasks and cells of `registry`."""
        flow = copy.deepcopy(model.flow).requires_grad_(True)
        embedding = None
        if model.embedding is not None:
            embedding = _grown(model.embedding, registry, generator)
        covariances = None
        if model.recipe.latent == "task":
            nu, rho = model.latent.nu, model.latent.rho  # type: ignore[union-attr]
            covariances = Covariances(nu, rho, len(registry.tasks) - len(nu))
        return cls(flow, embedding, covariances)

    def context(self, cell: Tensor) -> Context | None:
        """The flow's context of rows of these cells."""
        return None if self.embedding is None else Context(self.embedding(), cell)

    def z_of(self, x: Tensor, cell: Tensor) -> Tensor:
        """Latents of scaled rows, without gradients, in float64."""
        like = next(iter(self.parameters()), x)
        with torch.no_grad():
            z: Tensor = self.flow(x.to(like), self.context(cell.to(like.device)))[0]
        return z.double().cpu()


def whitened(student: Student, whitening: Whitening) -> Student:
    """The student with a closed-form whitening before its flow."""
    return Student(
        FlowSequence([whitening, *student.flow.flows]), student.embedding, student.covariances
    )


def _grown(
    embedding: CellEmbedding, registry: Registry, generator: torch.Generator
) -> CellEmbedding:
    task_of_cell = torch.tensor(registry.task_of_cell)
    return embedding.grown(task_of_cell, len(registry.tasks), generator)


def _inverse_softplus(value: Tensor) -> Tensor:
    """log(exp(value) - 1), for any value above zero."""
    return value + (-(-value).expm1()).log()
