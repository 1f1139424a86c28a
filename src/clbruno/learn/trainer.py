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

FALLS, FALL = 3, 0.25
"""How often the learning rate falls, and to which part of it."""


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
    """Minimise the losses until the score does not improve any more.

    After `patience` epochs without a better score the best parameters are taken up again with a
    fourth of the learning rate; after the third fall, training is over. `module` ends with the
    parameters of the best score, the ones it came with included: an update that helps nothing
    changes nothing.

    Returns:
        the epoch of the best score; 0 if that was before the first.
    """
    optimiser = torch.optim.Adam(module.parameters(), lr=learning_rate)
    best, best_epoch, kept = problem.score(), 0, copy.deepcopy(module.state_dict())
    falls, last = 0, 0
    for number in range(1, max_epochs + 1):
        total, steps = 0.0, 0
        for loss in problem.losses():
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            if not math.isfinite(float(loss.detach() + norm)):
                raise TrainingError(
                    f"the loss became {float(loss.detach())} with a gradient of norm "
                    f"{float(norm)} in epoch {number}; the model is unchanged. Look for extreme "
                    "values in the data, or lower learning_rate"
                )
            optimiser.step()
            total, steps = total + float(loss.detach()), steps + 1
        score = problem.score()
        if score < best:
            best, best_epoch, kept = score, number, copy.deepcopy(module.state_dict())
            last = number
        on_epoch(Epoch(number, max_epochs, total / max(steps, 1), score, best))
        if number - last >= patience:
            if falls == FALLS:
                break
            falls, last = falls + 1, number
            module.load_state_dict(kept)
            rate = learning_rate * FALL**falls
            optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    module.load_state_dict(kept)
    return best_epoch
