"""What is set on held-back real rows after training: temperatures, and the figures of the log."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from clbruno.core.model import Model
from clbruno.learn.batch import Batch
from clbruno.learn.objective import temperature_of
from clbruno.registry import Registry

ROWS = 4096
"""Most held-back rows that are looked at."""


def tuned(model: Model, held: Batch) -> Model:
    """The model with the temperatures that answer the held-back rows best."""
    log_likelihood, cell = _scored(model, held)
    posterior = model.posterior_from(log_likelihood)
    task = posterior.task_of_cell[cell]
    temperature = model.temperature.clone()
    joint = posterior.log_likelihood + posterior.log_label_prior
    for each in task.unique().tolist():
        columns = torch.tensor(model.registry.cells_of_task(each))
        here = task == each
        if len(columns) > 1:
            place = torch.searchsorted(columns, cell[here])
            temperature[each] = temperature_of(joint[here][:, columns], place)[0]
    task_temperature = model.task_temperature
    if len(model.registry.tasks) > 1:
        evidence = posterior.log_evidence() + posterior.log_task_prior
        task_temperature = temperature_of(evidence, task)[0]
    return replace(model, temperature=temperature, task_temperature=task_temperature)


def held_back_figures(model: Model, registry: Registry, held: Batch) -> dict[str, float]:
    """Accuracy and log-loss on the held-back rows of the cells that the model knows.

    Args:
        model: whom to ask; it may be older than the rows.
        registry: names of the rows' cells.
        held: the rows.
    """
    known = len(model.registry.cells)
    rows = np.flatnonzero(held.cell[held.rows] < known)[:ROWS]
    if not len(rows):
        return {}
    log_likelihood, cell = _scored(model, held, rows)
    posterior = model.posterior_from(log_likelihood)
    label = posterior.label_of_cell[cell]
    log_label = posterior.log_label()
    task = posterior.task_of_cell[cell]
    log_known = posterior.log_label_in(task, log_label.shape[1])
    figures = {
        "rows": float(len(rows)),
        "accuracy": _accuracy(log_label, label),
        "log_loss": -float(log_label.gather(1, label[:, None]).clamp(min=-708).mean()),
        "accuracy_task_known": _accuracy(log_known, label),
        "task_accuracy": _accuracy(posterior.log_task(), task),
    }
    return {name: round(value, 6) for name, value in figures.items()}


def _accuracy(scores: Tensor, truth: Tensor) -> float:
    return float((scores.argmax(1) == truth).double().mean())


def _scored(
    model: Model, held: Batch, rows: np.ndarray | None = None
) -> tuple[Tensor, Tensor]:
    at = np.arange(min(len(held), ROWS)) if rows is None else rows
    x, cell = held.take(at)
    return model.log_likelihood(model.scaler.inverse(x)), cell
