"""Sets of labels and typicality whose error rates are those of held-back real rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clbruno.core.calibration import (
    DENSITY,
    ENOUGH,
    LABEL,
    LABEL_IN_TASK,
    mass_above,
    share_beyond,
)
from clbruno.core.model import Model
from clbruno.core.posterior import Posterior, level_set_p_value

MOST = 1e-9
"""What rounding may make of a level."""


def label_p_values(model: Model, posterior: Posterior, task: int | None) -> Tensor:
    """How usual each label would be for each row, shape `(n, labels)`; -1 outside the task.

    With s(x, y) the probability of all labels that are more probable than y, and s_j that of the
    true labels of held-back rows:

        p(x, y) = (1 + #{ j : s_j >= s(x, y) }) / (1 + m)

    over the m held-back rows of label y (Mondrian), or of all labels where y has under `ENOUGH`.
    The score does not change when classes come that the row has nothing to do with.
    """
    names = model.registry
    labels = len(names.labels)
    if task is None:
        proba, kind = posterior.log_label().exp(), LABEL
        cells: Sequence[int] = range(len(names.cells))
    else:
        known = torch.full((len(posterior.log_likelihood),), task)
        proba, kind = posterior.log_label_in(known, labels).exp(), LABEL_IN_TASK
        cells = names.cells_of_task(task)
    score = mass_above(proba)
    everyone = model.calibration.of(cells, kind)
    p = torch.full_like(score, -1.0)
    for label in range(labels):
        mine = [cell for cell in cells if names.cells[cell][1] == label]
        if mine:
            own = model.calibration.of(mine, kind)
            kept = own if len(own) >= ENOUGH else everyone
            p[:, label] = share_beyond(kept, score[:, label])
    return p


def label_set(model: Model, posterior: Posterior, task: int | None, coverage: float) -> Tensor:
    """Which labels belong to the set of each row: those with a p-value over 1 - coverage."""
    return label_p_values(model, posterior, task) > 1 - coverage + MOST


def typicality(model: Model, evidence: Tensor, levels: Tensor) -> Tensor:
    """How usual each row would be for each task, shape `(n, tasks)`.

    The rank of (log p(x | t) - mean) / deviation among those of held-back real rows, mean and
    deviation those of generated rows: densities move when the model learns, for real rows and
    for generated ones alike. Among generated rows where fewer than `ENOUGH` were held back.

    Args:
        model: the model.
        evidence: log p(x | t), shape `(n, tasks)`.
        levels: the same of generated rows, ascending, shape `(tasks, m)`.
    """
    columns = []
    for task, level in enumerate(levels):
        kept = model.calibration.of(model.registry.cells_of_task(task), DENSITY)
        if len(kept) < ENOUGH:
            columns.append(level_set_p_value(evidence[:, task], level))
        else:
            score = (evidence[:, task] - level.mean()) / level.std()
            columns.append(level_set_p_value(score, kept))
    return torch.stack(columns, dim=1)


def level_sets(model: Model, evidence: Tensor, levels: Tensor) -> Tensor:
    """The same among generated rows alone, as in supplement A.3 of the paper."""
    pairs = zip(evidence.mT, levels, strict=True)
    return torch.stack([level_set_p_value(*pair) for pair in pairs], dim=1)
