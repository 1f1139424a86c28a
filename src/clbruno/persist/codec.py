"""A model as a header and tensors, and back, with every bound checked before anything is built."""

import dataclasses
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clbruno.config import Recipe
from clbruno.core.flow import CellEmbedding
from clbruno.core.model import Model
from clbruno.data.scaling import Scaler
from clbruno.errors import CLBrunoError, ModelFileError
from clbruno.history import UpdateRecord
from clbruno.learn.tuning import RIDGES, TEMPERATURES
from clbruno.persist import calibrations, flows, latents
from clbruno.persist.checks import Fields, require, shaped
from clbruno.registry import Registry


@dataclass(frozen=True)
class Saved:
    """What a file holds: the learned state, and the names of its features if they have any."""

    model: Model
    features: tuple[str, ...] | None = None


def encode(saved: Saved) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a model."""
    model = saved.model
    latent, latent_tensors = latents.encode(model.latent)
    flow, flow_tensors = flows.encode(model.flow)
    calibration, calibration_tensors = calibrations.encode(model.calibration)
    header = {
        "library": "clbruno",
        "recipe": _encode_recipe(model.recipe),
        "registry": _encode_registry(model.registry),
        "features": None if saved.features is None else list(saved.features),
        "seed": model.seed,
        "temperature": model.temperature,
        "scaler": {"unit": model.scaler.unit, "root": model.scaler.root},
        "calibration": calibration,
        "latent": latent,
        "flow": flow,
        "log": [_encode_record(record) for record in model.log],
    }
    tensors = {
        "scaler.center": model.scaler.center,
        "scaler.scale": model.scaler.scale,
        "curve": model.curve,
        **calibration_tensors,
        **latent_tensors,
        **flow_tensors,
    }
    if model.embedding is not None:
        tensors["embedding.task"] = flows.compact(model.embedding.task)
        tensors["embedding.label"] = flows.compact(model.embedding.label)
    return header, tensors


def decode(header: dict[str, Any], tensors: dict[str, Tensor]) -> Saved:
    """The model of a header and its tensors, or a `ModelFileError` that says what is wrong."""
    fields = Fields(header, "the header")
    require(fields.text("library") == "clbruno", "the file was written by another program")
    rest = dict(tensors)
    try:
        recipe = _decode_recipe(fields.child("recipe"))
        registry = _decode_registry(fields.child("registry"))
        scaler = _decode_scaler(fields.child("scaler"), rest)
        dim = scaler.center.shape[0]
        model = Model(
            recipe=recipe,
            registry=registry,
            scaler=scaler,
            flow=flows.decode(fields.items("flow"), rest, dim, recipe),
            embedding=_decode_embedding(rest, recipe, registry),
            latent=latents.decode(fields.child("latent"), rest, dim, recipe, registry),
            temperature=fields.positive("temperature"),
            curve=_decode_curve(rest, recipe),
            calibration=calibrations.decode(fields.child("calibration"), rest, len(registry.cells)),
            seed=fields.whole("seed", 0, 2**32),
            log=tuple(_decode_record(Fields(r, "a log entry")) for r in fields.items("log")),
        )
        front = model.front
        fits = front is None or front.features == dim
        require(fits, "the front for images and the scale are of different sizes")
        saved = Saved(model, _decode_features(fields.get("features"), model.width))
    except CLBrunoError as error:
        raise error if isinstance(error, ModelFileError) else ModelFileError(str(error)) from error
    fields.end()
    require(not rest, f"the tensor {next(iter(rest), '')[:80]!r} belongs to no part of the model")
    return saved


def _encode_recipe(recipe: Recipe) -> dict[str, Any]:
    # JSON has no infinity, and the Gaussian is the Student-t of infinite degrees of freedom.
    return {
        name: "inf" if value == math.inf else _plain(value)
        for name, value in dataclasses.asdict(recipe).items()
    }


def _decode_recipe(fields: Fields) -> Recipe:
    known = {part.name for part in dataclasses.fields(Recipe)}
    require(fields.values.keys() == known, "the recipe does not have the settings that it should")
    values: dict[str, Any] = dict(fields.values)
    values["dof"] = fields.real_or_inf("dof")
    if isinstance(values["image_shape"], list):
        values["image_shape"] = tuple(values["image_shape"])
    return Recipe(**values)


def _encode_registry(registry: Registry) -> dict[str, Any]:
    return {
        "tasks": [_plain(name) for name in registry.tasks],
        "labels": [_plain(name) for name in registry.labels],
        "cells": [list(cell) for cell in registry.cells],
        "counts": list(registry.counts),
    }


def _decode_registry(fields: Fields) -> Registry:
    tasks, labels = fields.names("tasks"), fields.names("labels")
    cells = [Fields.whole_list(cell, "a cell", 2) for cell in fields.items("cells")]
    counts = Fields.whole_list(fields.items("counts"), "the counts", len(cells))
    fields.end()
    require({task for task, _ in cells} == set(range(len(tasks))), "a task has no class")
    require({label for _, label in cells} == set(range(len(labels))), "a label is in no task")
    require(len({(task, label) for task, label in cells}) == len(cells), "a class stands twice")
    return Registry(tasks, labels, tuple((task, label) for task, label in cells), tuple(counts))


def _decode_scaler(fields: Fields, tensors: dict[str, Tensor]) -> Scaler:
    require("scaler.center" in tensors, "the scaling of the inputs is missing")
    dim = tensors["scaler.center"].numel()
    require(dim > 0, "the model has no features")
    center = shaped(tensors, "scaler.center", (dim,), torch.float64)
    scale = shaped(tensors, "scaler.scale", (dim,), torch.float64)
    require(bool((scale > 0).all()), "the scaling of the inputs is not positive")
    scaler = Scaler(fields.positive("unit"), fields.flag("root"), center, scale)
    fields.end()
    return scaler


def _decode_curve(tensors: dict[str, Tensor], recipe: Recipe) -> Tensor:
    ridges = len(RIDGES) if recipe.ridge is None else 1
    empty = "curve" in tensors and tensors["curve"].numel() == 0
    return shaped(tensors, "curve", (0, 0) if empty else (ridges, len(TEMPERATURES)), torch.float64)


def _decode_features(value: object, dim: int) -> tuple[str, ...] | None:
    if value is None:
        return None
    require(
        isinstance(value, list) and all(isinstance(name, str) for name in value),
        "the feature names are not names",
    )
    assert isinstance(value, list)
    require(len(set(value)) == len(value) == dim, "there is not one name for each feature")
    return tuple(value)


def _decode_embedding(
    tensors: dict[str, Tensor], recipe: Recipe, registry: Registry
) -> CellEmbedding | None:
    if recipe.context_dim == 0:
        return None
    length, tasks, cells = recipe.context_dim, len(registry.tasks), len(registry.cells)
    task = shaped(tensors, "embedding.task", (tasks, length)).double()
    label = shaped(tensors, "embedding.label", (cells, length)).double()
    embedding = CellEmbedding(task, label, torch.tensor(registry.task_of_cell))
    return embedding.requires_grad_(False)


def _encode_record(record: UpdateRecord) -> dict[str, Any]:
    values = {part.name: getattr(record, part.name) for part in dataclasses.fields(record)}
    if not record.source:
        del values["source"]
    return {name: _plain(value) for name, value in values.items()}


def _decode_record(fields: Fields) -> UpdateRecord:
    record = UpdateRecord(
        number=fields.whole("number", 1, 2**53),
        time=fields.text("time"),
        counts=tuple(_count(row) for row in fields.items("counts")),
        fingerprint=fields.text("fingerprint"),
        recipe=fields.text("recipe"),
        seed=None if fields.is_null("seed") else fields.whole("seed", 0, 2**32),
        versions=fields.texts("versions"),
        seconds=fields.real("seconds", 0),
        epochs=fields.whole("epochs", 0, 2**53),
        before=fields.reals("before"),
        after=fields.reals("after"),
        small=tuple(_pair(row) for row in fields.items("small")),
        source=fields.text("source") if "source" in fields.values else "",
    )
    fields.end()
    return record


def _count(row: object) -> tuple[Hashable, Hashable, int]:
    require(isinstance(row, list) and len(row) == 3, "a log entry's counts are not counts")
    assert isinstance(row, list)
    return (*Fields.name_list(row[:2]), *Fields.whole_list(row[2:], "a count", 1))  # type: ignore[return-value]


def _pair(row: object) -> tuple[Hashable, Hashable]:
    require(isinstance(row, list) and len(row) == 2, "a log entry does not name its small classes")
    assert isinstance(row, list)
    return Fields.name_list(row)  # type: ignore[return-value]


def _plain(value: Any) -> Any:
    """The value in the types that JSON knows."""
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise ModelFileError(
        f"a {type(value).__name__} cannot be written to a file: {str(value)[:60]!r}; use texts or "
        "numbers as names"
    )
