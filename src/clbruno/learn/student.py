"""What is trained during an update: a copy of the flow, its contexts, new tasks' covariances."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from clbruno.config import Recipe
from clbruno.core.coupling import Context
from clbruno.core.flow import CellEmbedding, CouplingFlow, FlowSequence, Whitening
from clbruno.core.model import Model
from clbruno.registry import Registry

NEW_RHO, NEW_DELTA = 0.1, 0.9
"""A new task's covariances start at nu = 1, as inputs are scaled, with a weak common part."""


class Covariances(nn.Module):
    """nu and rho of every task: those of known tasks fixed, those of new ones trained.

    rho = softplus(a),  nu = rho + softplus(b),  so nu > rho > 0 whatever a and b are
    """

    old_nu: Tensor
    old_rho: Tensor

    def __init__(self, old_nu: Tensor, old_rho: Tensor, new_tasks: int) -> None:
        super().__init__()
        self.register_buffer("old_nu", old_nu)
        self.register_buffer("old_rho", old_rho)
        shape = (new_tasks, old_nu.shape[1])
        self.raw_rho = nn.Parameter(torch.full(shape, _inverse_softplus(NEW_RHO)))
        self.raw_delta = nn.Parameter(torch.full(shape, _inverse_softplus(NEW_DELTA)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """`(nu, rho)`, each of shape `(tasks, D)`."""
        rho, delta = self.new()
        return torch.cat((self.old_nu, rho + delta)), torch.cat((self.old_rho, rho))

    def new(self) -> tuple[Tensor, Tensor]:
        """`(rho, delta)` of the new tasks alone."""
        return softplus(self.raw_rho), softplus(self.raw_delta)


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


def _inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))
