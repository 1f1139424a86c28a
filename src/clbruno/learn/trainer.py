"""The one optimisation loop. It knows nothing of models: only losses and a score."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from clbruno.errors import TrainingError
from clbruno.learn.distributed import ALONE, Group

CLIP = 5.0
"""Largest gradient norm of a step."""

FALLS, FALL = 3, 0.25
"""How often the learning rate falls, and to which part of it."""

WARM = 3
"""Steps before a GPU records one: kernels and the optimiser's state are made in them."""


class Problem(Protocol):
    """What is optimised."""

    @property
    def recordable(self) -> bool:
        """Whether `loss` reads nothing but its inputs, the parameters and what never changes."""
        ...

    def inputs(self) -> Iterator[tuple[Tensor, ...]]:
        """What each step of one epoch learns from, of the same shapes in every step."""
        ...

    def loss(self, *inputs: Tensor) -> Tensor:
        """The loss of a step."""
        ...

    def score(self) -> float:
        """The held-back score of the present parameters; lower is better."""
        ...


@dataclass(frozen=True)
class Epoch:
    """What is known after an epoch, for whoever shows progress."""

    number: int
    of: int
    loss: float
    score: float
    best: float


def train(
    module: nn.Module,
    problem: Problem,
    *,
    learning_rate: float,
    max_epochs: int,
    patience: int,
    on_epoch: Callable[[Epoch], None] = lambda _: None,
    group: Group = ALONE,
) -> int:
    """Minimise the losses until the score does not improve any more.

    After `patience` epochs without a better score the best parameters are taken up again with a
    fourth of the learning rate; after the third fall, training is over. `module` ends with the
    parameters of the best score, the ones it came with included: an update that helps nothing
    changes nothing. In a process group the loss is the sum of the ranks' losses, and all ranks take
    the same steps.

    Returns:
        the epoch of the best score; 0 if that was before the first.
    """
    step = Step(module, problem, learning_rate, group)
    best, best_epoch, kept = group.first(problem.score()), 0, copy.deepcopy(module.state_dict())
    falls, last = 0, 0
    for number in range(1, max_epochs + 1):
        steps = 0
        for inputs in problem.inputs():
            step(inputs)
            steps += 1
            if step.record is None:  # else the host would wait for the GPU
                _refuse_no_number(step, number)
        _refuse_no_number(step, number)
        loss = float(step.sums[0])
        step.sums.zero_()
        score = group.first(problem.score())
        if score < best:
            best, best_epoch, kept = score, number, copy.deepcopy(module.state_dict())
            last = number
        on_epoch(Epoch(number, max_epochs, loss / max(steps, 1), score, best))
        if number - last >= patience:
            if falls == FALLS:
                break
            falls, last = falls + 1, number
            module.load_state_dict(kept)
            step = Step(module, problem, learning_rate * FALL**falls, group)
    module.load_state_dict(kept)
    return best_epoch


def _refuse_no_number(step: "Step", epoch: int) -> None:
    loss, norm = step.sums.tolist()
    if not math.isfinite(loss + norm):
        raise TrainingError(
            f"the loss became {loss} with a gradient of norm {norm} in epoch {epoch}; the model "
            "is unchanged. Look for extreme values in the data, or lower learning_rate"
        )


class Step:
    """One step of Adam on a problem, and the sums of the losses and of the gradients' norms.

    On a GPU the launches of so many small kernels would take longer than the kernels, so a step
    is recorded once, whole, and played back without the host ever waiting; where that fails,
    steps go on one by one.
    """

    def __init__(
        self, module: nn.Module, problem: Problem, rate: float, group: Group = ALONE
    ) -> None:
        self.parameters = list(module.parameters())
        self.problem = problem
        self.group = group
        device = self.parameters[0].device
        on_gpu = device.type == "cuda"
        self.optimiser = torch.optim.Adam(self.parameters, rate, fused=True, capturable=on_gpu)
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.left = WARM if on_gpu and problem.recordable else math.inf
        self.side = torch.cuda.Stream(device) if on_gpu else None
        self.failure: RuntimeError | None = None
        self.record: tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]] | None = None

    def __call__(self, inputs: tuple[Tensor, ...]) -> None:
        """Take one step."""
        if self.left == 0:
            self.left = math.inf
            self._record(inputs)
        if self.record is not None:
            graph, places = self.record
            for place, value in zip(places, inputs, strict=True):
                place.copy_(value)
            graph.replay()
        elif self.side is None:
            self._take(inputs)
        else:  # where it will be recorded: what a stream needs is made when it is first used
            self.left -= 1
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self._take(inputs)
            torch.cuda.current_stream().wait_stream(self.side)

    def _take(self, inputs: tuple[Tensor, ...]) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.problem.loss(*inputs)
        loss.backward()
        self.group.add_gradients(self.parameters)
        norm = nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimiser.step()
        self.sums += torch.stack((self.group.sum(loss.detach()), norm))

    def _record(self, inputs: tuple[Tensor, ...]) -> None:
        places = tuple(value.clone() for value in inputs)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.side):
                self._take(places)
        except RuntimeError as error:
            self.failure = error
            return
        self.record = graph, places
