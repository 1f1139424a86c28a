"""The one optimisation loop. It knows nothing of models: only losses and a score."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from clbruno.errors import TrainingError

CLIP = 5.0
"""Largest gradient norm of a step."""


class Problem(Protocol):
    """What is optimised."""

    def losses(self) -> Iterator[Tensor]:
        """The losses of one epoch's steps, each computed when it is asked for."""
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
) -> int:
    """Minimise the losses until the score has not improved for `patience` epochs.

    `module` ends with the parameters of the best score, the ones it came with included: an
    update that helps nothing changes nothing.

    Returns:
        the epoch of the best score; 0 if that was before the first.
    """
    optimiser = torch.optim.Adam(module.parameters(), lr=learning_rate)
    best, best_epoch, kept = problem.score(), 0, copy.deepcopy(module.state_dict())
    for number in range(1, max_epochs + 1):
        total, steps = torch.zeros(()), 0
        for loss in problem.losses():
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimiser.step()
            total, steps = total + loss.detach().cpu(), steps + 1
        if not math.isfinite(float(total)):
            raise TrainingError(
                f"the loss became {float(total)} in epoch {number}; the model is unchanged. Look "
                "for extreme values in the data, or lower learning_rate"
            )
        score = problem.score()
        if score < best:
            best, best_epoch, kept = score, number, copy.deepcopy(module.state_dict())
        on_epoch(Epoch(number, max_epochs, float(total) / max(steps, 1), score, best))
        if number - best_epoch >= patience:
            break
    module.load_state_dict(kept)
    return best_epoch
