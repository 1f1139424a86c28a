"""`clbruno learn`: one update of a model file, all or nothing."""

import copy
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

from clbruno.cli.console import say, show_json, show_table
from clbruno.cli.program import REFUSED
from clbruno.cli.tables import Labelled, Source, read_labelled, stream_labelled
from clbruno.cli.together import joined, load_of_first, writing
from clbruno.config import RECIPES, TUNABLE
from clbruno.config import recipe as check_recipe
from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier
from clbruno.persist import atomic, save


@dataclass(frozen=True)
class Figure:
    """Accuracy on the validation rows of one class or one task, before and after the update."""

    kind: str
    name: Any
    rows: int
    before: float | None
    after: float

    def dropped(self, limit: float) -> bool:
        """Whether the update lowers it by more than `limit`."""
        # The slack is for the rounding of the subtraction, far below one row in any file.
        return self.before is not None and self.before - self.after > limit + 1e-12


def learn(
    model: str,
    data: str,
    label: str,
    task: str | None,
    task_column: str | None,
    recipe: str | None,
    settings: tuple[str, ...],
    validation: str | None,
    max_drop: float,
    allow_small: bool,
    ignore: tuple[str, ...],
    seed: int,
    device: str,
    buffer: int | None,
    as_json: bool,
) -> None:
    """Create or update a model file from a labelled table."""
    if task is not None and task_column is not None:
        raise InputError("give --task for all rows, or --task-column for one per row, not both")
    source = Source(data, label, task, task_column, ignore)
    # The lock is held from before the old model is read: two updates at once would lose one.
    with joined(device) as group, writing(model, group) as target:
        if group.size > 1 and data == "-":
            raise InputError("several processes cannot share the standard input; name a file")
        old = load_of_first(target.path, group)
        created = old is None
        learner = (
            _new(recipe, settings, seed) if old is None else _old(old, target, recipe, settings)
        )
        learner.set_params(device=device, verbose=1)
        streamed = buffer is not None or os.path.isdir(data)
        rows = None if streamed else read_labelled(source, learner)
        exam_source = None if validation is None else replace(source, path=validation)
        exam = None
        if exam_source is not None and not (streamed and created):
            exam = read_labelled(exam_source, learner, like=rows)
        if rows is not None and not allow_small:
            _refuse_small(learner, Counter(rows.cells))
        known = frozenset() if created else frozenset(learner.model_.registry.labels)
        if exam is not None and known and known.isdisjoint(exam.labels):
            raise InputError(f"{validation}: there is no row of a label that the model knows")
        before = None if exam is None or created else _right(learner, exam)
        if rows is None:
            _learn_stream(learner, source, buffer, allow_small)
        else:
            mine = group.share(len(rows.labels))
            learner.partial_fit(rows.x[mine], rows.labels[mine], rows.tasks[mine])
            if created and rows.names is not None:
                learner.feature_names_in_ = np.array(rows.names, dtype=object)
        if exam_source is not None and exam is None:
            exam = read_labelled(exam_source, learner)
        figures = (
            []
            if exam is None
            else _figures(exam, task_column is not None, before, _right(learner, exam), known)
        )
        refused = [figure for figure in figures if figure.dropped(max_drop)]
        if not refused and group.rank == 0:
            _note(learner, figures)
            save(learner, target)
    if group.rank == 0:
        _report(learner, figures, refused, max_drop, model, created, as_json)
    if refused:
        click.get_current_context().exit(REFUSED)


def _new(recipe: str | None, settings: tuple[str, ...], seed: int) -> CLBrunoClassifier:
    name, values = recipe or "default", dict(_setting(text) for text in settings)
    check_recipe(name, **values)
    return CLBrunoClassifier(name, random_state=seed, **values)


def _old(
    learner: CLBrunoClassifier,
    target: atomic.Target,
    recipe: str | None,
    settings: tuple[str, ...],
) -> CLBrunoClassifier:
    if settings or recipe not in (None, learner.recipe):
        raise InputError(
            f"{target.path} is there already, with the recipe {learner.recipe!r}; --recipe and "
            "--set are for a new model"
        )
    return learner


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or name not in TUNABLE:
        raise InputError(f"--set {text}: write NAME=VALUE; known names: {', '.join(TUNABLE)}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _learn_stream(
    learner: CLBrunoClassifier, source: Source, buffer: int | None, allow_small: bool
) -> None:
    """Learn a table that is never whole in memory; its counts are known at the end alone."""
    before = copy.copy(learner)
    learner.partial_fit(stream_labelled(source, before, buffer))
    if not allow_small:
        counts = learner.model_.log[-1].counts
        _refuse_small(before, Counter({(task, label): count for task, label, count in counts}))


def _refuse_small(learner: CLBrunoClassifier, new: Counter[tuple[Any, Any]]) -> None:
    """Refuse classes that would have too few samples after `new` more of each."""
    total = new.copy()
    if hasattr(learner, "model_"):
        registry = learner.model_.registry
        for (task, label), count in zip(registry.cells, registry.counts, strict=True):
            total[registry.tasks[task], registry.labels[label]] += count
    least = learner.min_class_size or RECIPES[learner.recipe].min_class_size
    small = [
        f"{label!r} ({total[task, label]})" for task, label in new if total[task, label] < least
    ]
    if small:
        rest = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise InputError(
            f"these classes would have fewer than {least} samples: {', '.join(small[:5])}{rest}. "
            "The file would come close to showing them (the mean of one sample is that sample); "
            "leave them out, or allow it with --allow-small"
        )


def _right(learner: CLBrunoClassifier, exam: Labelled) -> list[bool]:
    predicted = learner.predict(exam.x).tolist()
    return [guess == truth for guess, truth in zip(predicted, exam.labels, strict=True)]


def _figures(
    exam: Labelled,
    by_task: bool,
    before: list[bool] | None,
    after: list[bool],
    known: frozenset[Any],
) -> list[Figure]:
    """Accuracy of every label, and of the known labels within every task that the file names.

    Labels that are new have nothing to lose; they are shown with their accuracy alone.
    """
    places: dict[tuple[str, Any], list[int]] = {}
    for at, (task, label) in enumerate(exam.cells):
        places.setdefault(("label", label), []).append(at)
        if by_task and (before is None or label in known):
            places.setdefault(("task", task), []).append(at)
    figures = [
        _figure(kind, name, at, before if kind == "task" or name in known else None, after)
        for (kind, name), at in places.items()
    ]
    return sorted(figures, key=lambda figure: (figure.kind, str(figure.name)))


def _figure(
    kind: str, name: Any, at: list[int], before: list[bool] | None, after: list[bool]
) -> Figure:
    def share(right: list[bool]) -> float:
        return sum(right[i] for i in at) / len(at)

    return Figure(kind, name, len(at), None if before is None else share(before), share(after))


def _note(learner: CLBrunoClassifier, figures: list[Figure]) -> None:
    """Add the validation figures to the update's entry in the log."""
    model = learner.model_
    before = {_entry(f): f.before for f in figures if f.before is not None}
    record = model.log[-1].noting(before, {_entry(f): f.after for f in figures})
    learner.model_ = replace(model, log=(*model.log[:-1], record))


def _entry(figure: Figure) -> str:
    return f"validation accuracy, {figure.kind} {figure.name}"


def _report(
    learner: CLBrunoClassifier,
    figures: list[Figure],
    refused: list[Figure],
    max_drop: float,
    path: str,
    created: bool,
    as_json: bool,
) -> None:
    record = learner.model_.log[-1]
    rows = sum(count for _, _, count in record.counts)
    if as_json:
        show_json(
            {
                "model": path,
                "created": created and not refused,
                "refused": bool(refused),
                "update": record.number,
                "rows": rows,
                "counts": [list(count) for count in record.counts],
                "small": [list(cell) for cell in record.small],
                "seconds": record.seconds,
                "validation": [
                    {**vars(figure), "dropped": figure.dropped(max_drop)} for figure in figures
                ],
            }
        )
        return
    if figures:
        show_table(
            ["", "name", "rows", "before", "after", ""],
            [
                (
                    f.kind,
                    f.name,
                    f.rows,
                    "new" if f.before is None else f.before,
                    f.after,
                    "too low" if f.dropped(max_drop) else "",
                )
                for f in figures
            ],
            "Accuracy on the validation file",
        )
    if refused:
        worst = ", ".join(f"{f.kind} {f.name!r}" for f in refused[:5])
        say(
            f"Refused: the update lowers the accuracy of {worst} by more than {max_drop:g}. "
            f"{path} is unchanged."
        )
        return
    verb = "Created" if created else "Updated"
    say(
        f"{verb} {path}: {rows:,} rows of {len(record.counts)} classes learned in "
        f"{record.seconds:.2f} s (update {record.number})."
    )
