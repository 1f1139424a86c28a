"""The whole learned state, as one frozen value, and the densities that it answers with."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from clbruno.config import Recipe
from clbruno.core.calibration import Calibration
from clbruno.core.cells import ClassLatent, TaskLatent
from clbruno.core.coupling import Context
from clbruno.core.flow import CellEmbedding, FlowSequence
from clbruno.core.posterior import Posterior, log_label_prior, log_task_prior
from clbruno.data.front import ImageFront
from clbruno.data.scaling import Scaler
from clbruno.history import UpdateRecord
from clbruno.registry import Name, Registry

LEVEL_SAMPLES = 1000
"""Generated samples per task behind a typicality p-value; its resolution is one in so many."""

CHUNK = 4096
"""Rows per pass; bounds the memory of an answer."""


@dataclass(frozen=True)
class Model:
    """A conditional flow, an exchangeable latent and the names that they are about.

        z = f(scaled x; t, y)
        log p(x | t, y) = log p(z | t, y) + log|det df/dx| + log|det scaling|

    A model is never changed: learning makes a new one.

    Attributes:
        recipe: the numbers it was built with.
        registry: tasks, labels and cells.
        scaler: the scale of the inputs, fixed at the first batch.
        flow: the invertible map, in float64, without gradients.
        embedding: contexts of the cells, for a conditional flow.
        latent: the law of z in every cell.
        temperature: T chosen by leave-one-out, for the link while nothing was held back; 1 for the
            task latent.
        curve: the leave-one-out log-loss of every ridge and temperature, summed over all
            updates, shape `(ridges, temperatures)`; no columns for the task latent.
        calibration: what held-back rows taught: the link of the posterior, and sorted scores.
        seed: of the random numbers that later answers need.
        log: one record per update.
    """

    recipe: Recipe
    registry: Registry
    scaler: Scaler
    flow: FlowSequence
    embedding: CellEmbedding | None
    latent: TaskLatent | ClassLatent
    temperature: float
    curve: Tensor
    calibration: Calibration
    seed: int
    log: tuple[UpdateRecord, ...] = ()

    @property
    def dim(self) -> int:
        """Number of features."""
        return self.scaler.center.shape[0]

    @cached_property
    def front(self) -> ImageFront | None:
        """The fixed front for images, if rows are pixels; all else here is about what it gives."""
        shape = self.recipe.image_shape
        return None if shape is None else ImageFront(shape)

    @property
    def width(self) -> int:
        """Number of columns of the input."""
        return self.dim if self.front is None else self.front.pixels

    def log_likelihood(self, x: Tensor, cells: Sequence[int] | None = None) -> Tensor:
        """log p(x | t, y) of raw rows in the units of the data, shape `(n, len(cells))`.

        However the rows lie in memory: sums and products of other strides round differently.
        """
        x = x.double().contiguous()
        value = self.log_likelihood_scaled(self.scaler.forward(x), cells)
        return value + self.scaler.ladj(x)[:, None]

    def log_likelihood_scaled(self, scaled: Tensor, cells: Sequence[int] | None = None) -> Tensor:
        """The same of scaled rows, in the units of the scale."""
        cells = range(len(self.registry.cells)) if cells is None else cells
        value: Tensor
        with torch.no_grad():
            if self.embedding is None:
                z, ladj = self._forward(scaled, None)
                value = self.latent.log_prob(z, cells) + ladj[:, None]
            else:
                value = torch.stack([self._conditional(scaled, cell) for cell in cells], dim=-1)
        return value

    def latent_of(self, x: Tensor, cells: Tensor) -> Tensor:
        """z of raw rows, each in its own cell."""
        with torch.no_grad():
            return self._forward(self.scaler.forward(x.double()), self.context(cells))[0]

    def _conditional(self, scaled: Tensor, cell: int) -> Tensor:
        z, ladj = self._forward(scaled, self.context(torch.full((len(scaled),), cell)))
        value: Tensor = self.latent.log_prob(z, [cell])[:, 0] + ladj
        return value

    def _forward(self, scaled: Tensor, context: Context | None) -> tuple[Tensor, Tensor]:
        """The flow, wherever it is, on rows of the main memory."""
        z, ladj = self.flow(scaled.to(self._like), context)
        return z.double().cpu(), ladj.double().cpu()

    @cached_property
    def _like(self) -> Tensor:
        """Tells where the flow is and in which precision; all else is in main memory, float64."""
        tensors = [*self.flow.parameters(), *self.flow.buffers()]
        return tensors[0] if tensors else torch.zeros((), dtype=torch.float64)

    def placed(self, device: torch.device, dtype: torch.dtype = torch.float64) -> "Model":
        """The same model with a copy of its flow and its contexts on a device."""
        flow, embedding = copy.deepcopy((self.flow, self.embedding))
        return replace(
            self,
            flow=flow.to(device, dtype),
            embedding=None if embedding is None else embedding.to(device, dtype),
        )

    def context(self, cells: Tensor) -> Context | None:
        """The flow's context for rows of these cells; None for a label-free flow."""
        if self.embedding is None:
            return None
        return Context(self.embedding(), cells.to(self._like.device))

    def posterior(self, x: Tensor) -> Posterior:
        """Bayes' rule for a chunk of raw rows."""
        return self.posterior_from(self.log_likelihood(x))

    def posterior_from(self, log_likelihood: Tensor) -> Posterior:
        """Bayes' rule, given the log-likelihood of every cell."""
        return Posterior(
            log_likelihood,
            self.log_label_prior,
            self.log_task_prior,
            self.log_share,
            torch.tensor(self.registry.task_of_cell),
            torch.tensor(self.registry.label_of_cell),
            self.calibration.link,
        )

    @cached_property
    def log_label_prior(self) -> Tensor:
        """log p(y | t) of each cell."""
        names = self.registry
        return log_label_prior(names.counts, names.task_of_cell, self.recipe.label_prior)

    @cached_property
    def log_task_prior(self) -> Tensor:
        """log p(t) of each task."""
        names = self.registry
        return log_task_prior(names.counts, names.task_of_cell, self.recipe.task_prior)

    @cached_property
    def log_share(self) -> Tensor:
        """log of each cell's share of the samples learned of its task."""
        names = self.registry
        return log_label_prior(names.counts, names.task_of_cell)

    @property
    def log_cell_prior(self) -> Tensor:
        """log p(t, y) of each cell."""
        return self.log_label_prior + self.log_task_prior[list(self.registry.task_of_cell)]

    def sample_latent(
        self, cells: Tensor, generator: torch.Generator, part: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """z ~ p(z | cell, data) and the scaled x = f^-1(z; cell), where the flow is.

        With `part`, the positions of the draws that are wanted: they do not depend on it.
        """
        like = self._like
        if like.device != generator.device:  # draw there too: what is drawn need not travel
            seed = int(torch.randint(2**62, (), generator=generator))
            generator = torch.Generator(like.device).manual_seed(seed)
        with torch.no_grad():
            z = self.latent.sample(cells, generator).to(like)
            if part is not None:
                z, cells = z[part.to(z.device)], cells[part]
            return z, self.flow.inverse(z, self.context(cells))

    def sample(self, cells: Tensor, generator: torch.Generator) -> Tensor:
        """Rows drawn from the predictive of each entry of `cells`, in the units of the data."""
        return self.scaler.inverse(self.sample_latent(cells, generator)[1].double().cpu())

    def draw(
        self, n: int, task: Name | None, label: Name | None, generator: torch.Generator
    ) -> Tensor:
        """`n` cells by the priors, of one task and of one label where they are named."""
        weight = self.log_cell_prior
        if task is not None or label is not None:
            wanted = torch.zeros(len(weight), dtype=torch.bool)
            wanted[list(self.registry.cells_matching(task, label))] = True
            weight = weight.masked_fill(~wanted, -torch.inf)
        return torch.multinomial(weight.exp(), n, replacement=True, generator=generator)

    def draw_cells(self, n: int, task: int, generator: torch.Generator) -> Tensor:
        """`n` cells of a task, drawn by p(y | t)."""
        cells = torch.tensor(self.registry.cells_of_task(task))
        weight = self.log_label_prior[cells].exp()
        return cells[torch.multinomial(weight, n, replacement=True, generator=generator)]

    @cached_property
    def levels(self) -> Tensor:
        """Sorted log p(x | t) of samples generated from each task, shape `(tasks, samples)`."""
        tasks = range(len(self.registry.tasks))
        return torch.stack([self.generated_evidence(t, LEVEL_SAMPLES).sort().values for t in tasks])

    def generated_evidence(self, task: int, n: int) -> Tensor:
        """log p(x | t) of `n` samples generated from a task, always the same ones."""
        generator = torch.Generator().manual_seed(self.seed + task)
        x = self.sample(self.draw_cells(n, task, generator), generator)
        return self.posterior(x).log_evidence()[:, task]


def chunks_of(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices that cover `range(n)` in order."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
