"""Append-only names of tasks and classes, and the counts of their cells."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from clbruno.errors import InputError

DEFAULT_TASK = "default"
"""The task of everything that is learned without naming one."""

Name = Hashable


@dataclass(frozen=True)
class Registry:
    """Which tasks, labels and (task, label) cells are known, in the order they came.

    Names are the users' own. A position once given is never given again, so every array that
    is indexed by task, label or cell only ever grows at its end.

    Attributes:
        tasks: names of the tasks.
        labels: names of the labels, over all tasks.
        cells: the (position of the task, position of the label) of each cell.
        counts: how many samples of each cell were learned.

    >>> registry = Registry().extended("Boston", ["healthy", "ill"], [30, 12])
    >>> registry = registry.extended("Oslo", ["ill", "unclear"], [7, 5])
    >>> registry.tasks, registry.labels, registry.counts
    (('Boston', 'Oslo'), ('healthy', 'ill', 'unclear'), (30, 12, 7, 5))
    >>> registry.cells_of_task(1)
    (2, 3)
    """

    tasks: tuple[Name, ...] = ()
    labels: tuple[Name, ...] = ()
    cells: tuple[tuple[int, int], ...] = ()
    counts: tuple[int, ...] = ()
    _cell_at: dict[tuple[int, int], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cell_at", {cell: at for at, cell in enumerate(self.cells)})
        if not len(self._cell_at) == len(self.cells) == len(self.counts):
            raise InputError("every cell needs one count, and no cell may stand twice")

    def extended(self, task: Name, labels: Sequence[Name], counts: Sequence[int]) -> "Registry":
        """The registry with `counts[i]` more samples of `labels[i]` in `task`."""
        tasks = self.tasks if task in self.tasks else (*self.tasks, task)
        known = set(self.labels)
        names = (*self.labels, *(label for label in labels if label not in known))
        at_task, at_label = tasks.index(task), {name: at for at, name in enumerate(names)}
        cells, total = list(self.cells), list(self.counts)
        for label, count in zip(labels, counts, strict=True):
            cell = (at_task, at_label[label])
            if cell in self._cell_at:
                total[self._cell_at[cell]] += int(count)
            else:
                cells.append(cell)
                total.append(int(count))
        return Registry(tasks, names, tuple(cells), tuple(total))

    def task_index(self, task: Name) -> int:
        """Position of a task, or an error that lists the known ones."""
        try:
            return self.tasks.index(task)
        except ValueError:
            raise InputError(
                f"unknown task {task!r}; known tasks: {_first(self.tasks)}. Learn it first, "
                "or leave the task out to let the model tell it"
            ) from None

    def label_index(self, label: Name) -> int:
        """Position of a label, or an error that lists the known ones."""
        try:
            return self.labels.index(label)
        except ValueError:
            raise InputError(
                f"unknown label {label!r}; known labels: {_first(self.labels)}"
            ) from None

    def cell_index(self, task: Name, label: Name) -> int:
        """Position of the cell of `label` in `task`."""
        at = (self.task_index(task), self.label_index(label))
        if at not in self._cell_at:
            known = [self.labels[y] for t, y in self.cells if t == at[0]]
            raise InputError(
                f"label {label!r} was never learned in task {task!r}; its labels: {_first(known)}"
            )
        return self._cell_at[at]

    def cells_of_task(self, task: int) -> tuple[int, ...]:
        """Positions of the cells of the task at position `task`."""
        return tuple(at for at, (t, _) in enumerate(self.cells) if t == task)

    @property
    def task_of_cell(self) -> tuple[int, ...]:
        """Position of the task of each cell."""
        return tuple(task for task, _ in self.cells)

    @property
    def label_of_cell(self) -> tuple[int, ...]:
        """Position of the label of each cell."""
        return tuple(label for _, label in self.cells)

    def cells_matching(self, task: Name | None, label: Name | None) -> tuple[int, ...]:
        """Positions of the cells of a task, of a label, or of one label in one task."""
        if task is None and label is None:
            raise InputError("name a task, a label, or both")
        if task is not None and label is not None:
            return (self.cell_index(task, label),)
        if task is not None:
            return self.cells_of_task(self.task_index(task))
        at_label = self.label_index(label)
        return tuple(at for at, (_, y) in enumerate(self.cells) if y == at_label)

    def without(self, cells: Sequence[int]) -> "Registry":
        """The registry with some cells gone, and the tasks and labels that have none left."""
        kept = [at for at in range(len(self.cells)) if at not in set(cells)]
        registry = Registry()
        for at in kept:
            task, label = self.cells[at]
            registry = registry.extended(self.tasks[task], [self.labels[label]], [self.counts[at]])
        return registry


def _first(names: Sequence[Name], limit: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
