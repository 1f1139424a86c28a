"""`clbruno inspect`, `clbruno log` and `clbruno verify`."""

import dataclasses
import math
import os
from collections.abc import Hashable, Iterator
from typing import Any

from clbruno.cli import console
from clbruno.config import RECIPES
from clbruno.estimator import CLBrunoClassifier
from clbruno.history import UpdateRecord
from clbruno.persist import container, load
from clbruno.persist import verify as verify_file

_SHOWN = 5


def inspect(model: str, as_json: bool) -> None:
    """Show what a model knows."""
    facts = _facts(load(model), model)
    if as_json:
        console.show_json(facts)
        return
    console.show_table(
        ["task", "label", "samples", ""],
        [
            (c["task"], c["label"], c["samples"], "small: close to showing them" * c["small"])
            for c in facts["classes"]
        ],
    )
    names = facts["features"]
    shown = (
        ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "") if names else "unnamed"
    )
    changed = ", ".join(f"{name}={value}" for name, value in facts["settings"].items())
    console.say(
        f"features  {facts['n_features']:,} ({shown})\n"
        f"recipe    {facts['recipe']}{f' ({changed})' if changed else ''}\n"
        f"updates   {facts['updates']}\n"
        f"size      {facts['bytes']:,} bytes, protocol {facts['protocol']}"
    )


def _facts(model: CLBrunoClassifier, path: str) -> dict[str, Any]:
    registry, recipe = model.model_.registry, model.model_.recipe
    defaults = RECIPES[recipe.name]
    return {
        "model": path,
        "bytes": os.path.getsize(path),
        "protocol": container.PROTOCOL,
        "tasks": list(registry.tasks),
        "labels": list(registry.labels),
        "classes": [
            {
                "task": registry.tasks[task],
                "label": registry.labels[label],
                "samples": count,
                "small": count < recipe.min_class_size,
            }
            for (task, label), count in zip(registry.cells, registry.counts, strict=True)
        ],
        "n_features": model.n_features_in_,
        "features": list(map(str, getattr(model, "feature_names_in_", []))),
        "recipe": recipe.name,
        "settings": {
            name: str(value) if value == math.inf else value
            for name, value in dataclasses.asdict(recipe).items()
            if value != getattr(defaults, name)
        },
        "updates": model.n_updates_,
    }


def log(model: str, as_json: bool) -> None:
    """Show the update log of a model."""
    records = load(model).model_.log
    if as_json:
        console.show_json([dataclasses.asdict(record) for record in records])
        return
    console.show_table(
        ["update", "time (UTC)", "learned", "accuracy", "seconds", "epochs", "recipe", "seed"],
        [
            (
                str(record.number),
                record.time,
                _learned(record),
                _change(record, "accuracy"),
                record.seconds,
                record.epochs,
                record.recipe,
                str(record.seed),
            )
            for record in records
        ],
    )
    for record in records:
        for line in _details(record):
            console.say(f"update {record.number}: {line}")


def _learned(record: UpdateRecord) -> str:
    """Counts by task, the first few labels of each."""
    tasks: dict[Hashable, list[str]] = {}
    for task, label, count in record.counts:
        tasks.setdefault(task, []).append(f"{label} {count:,}")
    return "; ".join(
        f"{task}: {', '.join(labels[:_SHOWN])}{' ...' * (len(labels) > _SHOWN)}"
        for task, labels in tasks.items()
    )


def _change(record: UpdateRecord, figure: str) -> str:
    """A held-back figure before and after the update, where it could be measured."""
    before, after = record.before.get(figure), record.after.get(figure)
    shown = ["-" if value is None else f"{value:.3f}" for value in (before, after)]
    return " -> ".join(shown)


def _details(record: UpdateRecord) -> Iterator[str]:
    if record.source:
        yield record.source
    if record.small:
        yield "few samples of " + ", ".join(f"{label} in {task}" for task, label in record.small)
    for name in record.after:
        if name.startswith(("validation", "accuracy on replay")):
            yield f"{name}: {_change(record, name)}"
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield f"data {record.fingerprint[:16]}, {versions}"


def verify(model: str, as_json: bool) -> None:
    """Check a model file whole; an error says what is wrong."""
    verify_file(model)
    if as_json:
        console.show_json({"model": model, "whole": True, "protocol": container.PROTOCOL})
    else:
        console.say(f"{model} is whole (protocol {container.PROTOCOL}).")
