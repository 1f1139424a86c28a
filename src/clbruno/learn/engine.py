"""One update from beginning to end: an old model and new data in, a new model out."""

import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clbruno.config import Recipe
from clbruno.core.calibration import Calibration
from clbruno.core.cells import ClassLatent, TaskLatent
from clbruno.core.flow import Whitening
from clbruno.core.model import Model
from clbruno.core.moments import merged
from clbruno.data.scaling import Scaler
from clbruno.errors import InputError, SmallClassWarning, TrainingError
from clbruno.history import UpdateRecord, fingerprint, now, versions
from clbruno.learn.batch import Batch
from clbruno.learn.calibrate import calibrated, held_out
from clbruno.learn.distributed import ALONE, Group
from clbruno.learn.following import followed
from clbruno.learn.problem import Increment, moments_of, refuse_overflow
from clbruno.learn.replay import Teacher
from clbruno.learn.student import Student, whitened
from clbruno.learn.trainer import Epoch, train
from clbruno.learn.tuning import (
    RIDGES,
    LeftOut,
    chosen,
    figures,
    held_back_figures,
    rows_to_leave_out,
)
from clbruno.registry import Registry

STRUCTURE = (
    *("couplings", "hidden", "context_dim", "whiten", "latent", "dof"),
    *("strength", "ridge", "blur", "kappa", "memory", "image_shape"),
)
"""Settings that a model keeps for life."""

STRENGTH = 0.5
"""v0 per feature, where the recipe leaves it open: the best of validation on five data sets."""

WHITENING_RIDGE = 0.1
"""What is added to every variance before whitening, in scaled units."""


@dataclass(frozen=True)
class Lesson:
    """One batch to learn.

    Attributes:
        x: raw rows, shape `(n, D)`.
        tasks: task of each row.
        labels: label of each row.
        recipe: the numbers to learn with.
        seed: of the model; the update's own random numbers follow from it and its number.
        device: where the flow is trained.
        group: the ranks that learn the batch together, each with rows of its own.
    """

    x: NDArray[Any]
    tasks: list[Any]
    labels: list[Any]
    recipe: Recipe
    seed: int
    device: torch.device
    group: Group = ALONE


def learn(old: Model | None, lesson: Lesson, on_epoch: Callable[[Epoch], None]) -> Model:
    """The model after one more batch. The old one is only read.

    Eq. 3 if there is no old model, else eq. 5 for new tasks and eq. 8 for new samples of known
    ones, both at once where a batch holds both.
    """
    try:
        return _learned(old, lesson, on_epoch)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise TrainingError(
            f"the covariances cannot be computed with ({error}); the model is unchanged. Look for "
            "extreme values and for features that repeat each other, or raise the ridge"
        ) from error


def _learned(old: Model | None, lesson: Lesson, on_epoch: Callable[[Epoch], None]) -> Model:
    began = time.perf_counter()
    recipe, number = lesson.recipe, 1 if old is None else len(old.log) + 1
    group = lesson.group
    if old is not None:
        _same_structure(old.recipe, recipe)
    known = Registry() if old is None else old.registry
    registry, cell = enrol(known, lesson.tasks, lesson.labels, group)
    if recipe.frozen and recipe.context_dim and len(registry.cells) > len(known.cells):
        raise InputError(
            "frozen=True cannot learn a new task or class with a conditional flow: its embedding "
            "has to be trained; set frozen=False, or use a label-free flow (context_dim=0)"
        )
    scaler = Scaler.choose(group.spread(lesson.x)) if old is None else old.scaler
    batch = _batch(lesson, cell, scaler)
    small = _small_cells(registry, recipe, batch)

    rng = np.random.default_rng([lesson.seed, number])
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    new, held = batch.split(recipe.validation_share, rng)
    teacher = None
    if old is None:
        student = Student.start(lesson.x.shape[1], recipe, registry, generator)
        base = _empty_latent(recipe, lesson.x.shape[1])
        if recipe.whiten:
            student = _with_whitening(student, new)
    else:
        student, base = Student.of(old, registry, generator), old.latent
        if recipe.replay:
            there = old.placed(lesson.device, torch.float32)
            teacher = Teacher(there, recipe.replay, recipe.replay_per_task, group)
    if student.covariances is not None and len(student.covariances.raw_rho):
        seen = moments_of(student, new, full=False)
        student.covariances.start_from(seen, registry.task_of_cell)
    student = student.to(lesson.device)
    increment = Increment(recipe, registry, student, base, new, held, teacher, rng, generator)
    epochs = 0
    trainable = recipe.couplings > 0 or recipe.latent == "task"
    if trainable and recipe.max_epochs and not recipe.frozen:
        epochs = train(
            student,
            increment,
            learning_rate=recipe.learning_rate,
            max_epochs=recipe.max_epochs,
            patience=recipe.patience,
            on_epoch=on_epoch,
            group=group,
        )
    model = _model(increment, batch, old, lesson, epochs)
    rows = held_out(model.placed(lesson.device), increment, once=epochs > 0 or recipe.frozen)
    model = calibrated(model, rows)
    time_of_day, seconds = group.first([now(), round(time.perf_counter() - began, 3)])
    record = UpdateRecord(
        number=number,
        time=time_of_day,
        counts=_counts(registry, batch),
        fingerprint=group.digest(fingerprint(lesson.x, cell)),
        recipe=recipe.name,
        seed=lesson.seed,
        versions=versions(),
        seconds=seconds,
        epochs=epochs,
        before={} if old is None else held_back_figures(old.placed(lesson.device), held),
        after=figures(model, rows.log_likelihood[: rows.first], rows.cell[: rows.first]),
        small=small,
    )
    return replace(model, log=(record,) if old is None else (*old.log, record))


def _model(
    increment: Increment, batch: Batch, old: Model | None, lesson: Lesson, epochs: int
) -> Model:
    """The model with all rows, the held-back ones too, before they have calibrated it."""
    recipe, held = lesson.recipe, increment.held
    student = increment.student.double().eval().requires_grad_(False)
    if old is not None and epochs and isinstance(increment.base, ClassLatent):
        before = old.placed(lesson.device, torch.float32)
        increment.base = followed(increment.base, before, student, increment.generator)
    total = merged(increment.moments(increment.new), increment.moments(held))
    for seen in total.values():
        refuse_overflow(seen.mean, seen.scatter)
    latent = increment.latent_with(total)
    student.cpu()
    model = Model(
        recipe=recipe,
        registry=increment.registry,
        scaler=batch.scaler,
        flow=student.flow,
        embedding=student.embedding,
        latent=latent,
        temperature=1.0 if old is None else old.temperature,
        curve=torch.zeros((0, 0), dtype=torch.float64) if old is None else old.curve,
        calibration=Calibration.empty() if old is None else old.calibration,
        seed=lesson.seed,
    )
    if isinstance(model.latent, ClassLatent) and model.latent.whole and not recipe.frozen:
        rows = batch if epochs == 0 else held
        at = rows_to_leave_out(rows, model.latent, increment.rng)
        x, cell = rows.take(at)
        left_out = LeftOut(student.z_of(x, cell), cell)
        model = chosen(model, model.latent, left_out, lesson.group)
    return model


def _batch(lesson: Lesson, cell: NDArray[np.int64], scaler: Scaler) -> Batch:
    """The batch, with the cells of all ranks' rows: every rank draws from all of them alike."""
    group = lesson.group
    everyones = group.rows(torch.from_numpy(cell)).numpy()
    start = sum(group.counts(len(cell))[: group.rank])
    return Batch(lesson.x, everyones, np.arange(len(everyones)), scaler, group, start)


def enrol(
    registry: Registry, tasks: list[Any], labels: list[Any], group: Group = ALONE
) -> tuple[Registry, NDArray[np.int64]]:
    """The registry with these rows (of all ranks) counted, and the cell of each row.

    Tasks are entered as they come, the labels of a batch in sorted order.
    """
    tally = group.counted(Counter(zip(tasks, labels, strict=True)))
    for task in dict.fromkeys(task for task, _ in tally):
        names = sorted(label for name, label in tally if name == task)
        registry = registry.extended(task, names, [tally[task, label] for label in names])
    place = {pair: registry.cell_index(*pair) for pair in tally}
    cell = [place[pair] for pair in zip(tasks, labels, strict=True)]
    return registry, np.array(cell, dtype=np.int64)


def forget(model: Model, task: Any, label: Any) -> Model:
    """The model without the statistics and contexts of a task, a label, or one of its cells."""
    names = model.registry
    gone = names.cells_matching(task, label)
    registry = names.without(gone)
    if not registry.cells:
        raise InputError("nothing would be left of the model; delete its file instead")
    kept = [at for at in range(len(names.cells)) if at not in set(gone)]
    tasks = list(dict.fromkeys(names.task_of_cell[at] for at in kept))
    embedding = model.embedding
    if embedding is not None:
        embedding = embedding.restricted(tasks, kept, torch.tensor(registry.task_of_cell))
    return replace(
        model,
        registry=registry,
        embedding=embedding,
        latent=model.latent.without(gone, registry.task_of_cell),
        calibration=model.calibration.restricted(kept),
    )


def _empty_latent(recipe: Recipe, dim: int) -> TaskLatent | ClassLatent:
    if recipe.latent == "task":
        nothing = torch.zeros((0, dim), dtype=torch.float64)
        return TaskLatent(nothing, nothing, (), (), recipe.dof)
    return ClassLatent(
        moments=(),
        within=torch.zeros((dim, dim), dtype=torch.float64),
        task_of_cell=(),
        strength=STRENGTH * dim if recipe.strength is None else recipe.strength,
        kappa=recipe.kappa,
        ridge=RIDGES[0] if recipe.ridge is None else recipe.ridge,
        blur=recipe.blur,
        memory=recipe.memory,
    )


def _with_whitening(student: Student, new: Batch) -> Student:
    """Whiten by the pooled within-cell scatter of the first batch."""
    seen = moments_of(student, new, full=True)
    pooled = sum((cell.scatter for cell in seen.values()), torch.zeros(())) / len(new)
    whitening = Whitening.of(torch.zeros(len(pooled)).double(), pooled, ridge=WHITENING_RIDGE)
    return whitened(student, whitening)


def _same_structure(old: Recipe, new: Recipe) -> None:
    for name in STRUCTURE:
        if getattr(old, name) != getattr(new, name):
            raise InputError(
                f"{name} is {getattr(old, name)!r} in this model and cannot become "
                f"{getattr(new, name)!r}; start a new model with fit"
            )


def _counts(registry: Registry, batch: Batch) -> tuple[tuple[Any, Any, int], ...]:
    tally = np.bincount(batch.cell, minlength=len(registry.cells))
    return tuple(
        (registry.tasks[task], registry.labels[label], int(count))
        for (task, label), count in zip(registry.cells, tally, strict=True)
        if count
    )


def _small_cells(registry: Registry, recipe: Recipe, batch: Batch) -> tuple[tuple[Any, Any], ...]:
    """Cells under the smallest class size, with a warning for those in this batch."""
    small = [at for at, count in enumerate(registry.counts) if count < recipe.min_class_size]
    touched = sorted(set(small) & set(batch.cells))
    if touched:
        _warn_of(recipe, [registry.labels[registry.cells[at][1]] for at in touched])
    return tuple(
        (registry.tasks[registry.cells[at][0]], registry.labels[registry.cells[at][1]])
        for at in small
    )


def warn_of_small(recipe: Recipe, record: UpdateRecord) -> None:
    """The warning that an update brings for the small classes that it touched."""
    touched = {(task, label) for task, label, _ in record.counts}
    names = [label for task, label in record.small if (task, label) in touched]
    if names:
        _warn_of(recipe, names)


def _warn_of(recipe: Recipe, names: list[Any]) -> None:
    warnings.warn(
        f"fewer than {recipe.min_class_size} samples of {', '.join(map(repr, names[:5]))}"
        f"{' and others' if len(names) > 5 else ''}: the statistics of so small a class come "
        "close to showing its samples (the mean of one sample is that sample)",
        SmallClassWarning,
        stacklevel=6,
    )
