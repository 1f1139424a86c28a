"""Accuracy after every update, from what the log or a benchmark's record holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clbruno.core.model import Model

_VALIDATION = "validation accuracy, "
_HELD_BACK = "accuracy, "


@dataclass(frozen=True)
class Curves:
    """Accuracy on fixed groups of rows after every update that measured them.

    Attributes:
        kind: what a line stands for: a task, a label, a batch.
        source: where the figures come from, for the words beside the picture.
        updates: how many updates there were.
        lines: for each name the (update, accuracy) pairs in order.
        told: whether the task was told when the figures were measured.
    """

    kind: str
    source: str
    updates: int
    lines: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)

    def last(self) -> dict[str, float]:
        """The newest figure of each line."""
        return {name: points[-1][1] for name, points in self.lines.items()}

    def drops(self) -> dict[str, float]:
        """How far each line has fallen from its best: the forgetting of each."""
        return {
            name: max(value for _, value in points) - points[-1][1]
            for name, points in self.lines.items()
        }


def of_log(model: Model) -> Curves:
    """The most telling figures that the log holds.

    Validation figures of the tasks, else of the labels: the same rows after every update. Without
    them the rows that each update held back, which measure only what was in that update.
    """
    for kind in ("task", "label"):
        lines = _lines(model, f"{_VALIDATION}{kind} ", _first_seen(model, kind))
        several = kind == "label" or len(lines) > 1
        if several and any(len(points) > 1 for points in lines.values()):
            return Curves(kind, "validation", len(model.log), lines)
    lines = _lines(model, f"{_HELD_BACK}task ", _first_seen(model, "task"))
    if len(lines) > 1:
        return Curves("task", "held back", len(model.log), lines)
    whole = [(r.number, r.after["accuracy"]) for r in model.log if "accuracy" in r.after]
    lines = {"rows held back from each update": whole} if whole else {}
    return Curves("update", "held back", len(model.log), lines)


def of_record(record: Mapping[str, Any]) -> Curves:
    """The curves of a benchmark's record: A[i][j], accuracy on test j after step i."""
    matrix = record.get("accuracy_matrix_task_known", record["accuracy_matrix"])
    tasks = record.get("tasks", ())
    names = list(map(str, tasks)) if len(tasks) == len(matrix) else None
    lines = {}
    for j in range(len(matrix)):
        points = [(i + 1, matrix[i][j]) for i in range(j, len(matrix)) if matrix[i][j] is not None]
        if points:
            lines[names[j] if names else f"batch {j + 1}"] = points
    return Curves("task" if names else "batch", "benchmark", len(matrix), lines)


def _lines(
    model: Model, start: str, first_seen: dict[str, int]
) -> dict[str, list[tuple[int, float]]]:
    """The figures whose names begin with `start`, from the update that taught them on."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for record in model.log:
        for entry, value in record.after.items():
            name = entry.removeprefix(start)
            known = first_seen.get(name, len(model.log) + 1) <= record.number
            if entry.startswith(start) and known:
                lines.setdefault(name, []).append((record.number, value))
    return lines


def _first_seen(model: Model, kind: str) -> dict[str, int]:
    """The update in which each task or label was first learned."""
    first: dict[str, int] = {}
    for record in model.log:
        for task, label, _ in record.counts:
            first.setdefault(str(task if kind == "task" else label), record.number)
    return first
