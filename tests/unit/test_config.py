"""Recipes: every number is checked once, and the message names it."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from clbruno.config import RECIPES, TUNABLE, Recipe, recipe
from clbruno.errors import InputError


def test__recipe__paper__has_the_papers_numbers() -> None:
    paper = recipe("paper")

    assert (paper.couplings, paper.hidden, paper.context_dim) == (6, 256, 128)
    assert (paper.alpha_1, paper.alpha_2, paper.replay) == (1.0, 1.0, 128)
    assert paper.latent == "task"
    assert paper.dof == math.inf
    assert paper.replay_per_task is True
    assert paper.whiten is False


def test__recipe__default__is_label_free_with_class_latents() -> None:
    default = recipe("default")

    assert default.context_dim == 0
    assert default.latent == "class"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test__recipe__named__knows_its_name_and_is_frozen(name: str) -> None:
    found = recipe(name)

    assert found.name == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.couplings = 3  # type: ignore[misc]


def test__recipe__overrides__replace_and_keep_the_rest() -> None:
    found = recipe("paper", couplings=4, strength=2.5)

    assert dataclasses.asdict(found) == {
        **dataclasses.asdict(recipe("paper")),
        "couplings": 4,
        "strength": 2.5,
    }


def test__recipe__tunable__is_every_field_but_the_name() -> None:
    fields = [field.name for field in dataclasses.fields(Recipe)]

    assert sorted([*TUNABLE, "name"]) == sorted(fields)


@pytest.mark.parametrize("name", ["papers", "", None, 3, ["paper"]])
def test__recipe__unknown__input_error_lists_the_known(name: Any) -> None:
    with pytest.raises(InputError, match=r"unknown recipe .*; known: default, paper"):
        recipe(name)


@pytest.mark.parametrize("setting", ["coupling", "name"])
def test__recipe__unknown_setting__input_error_lists_the_known(setting: str) -> None:
    with pytest.raises(InputError, match=rf"unknown recipe setting '{setting}'; known: .*dof"):
        recipe("paper").with_overrides(**{setting: "x"})


REFUSED: dict[str, list[Any]] = {
    "couplings": [-1, 1.5, "6", None, True],
    "hidden": [0, -3, 2.0],
    "context_dim": [-1, 0.5],
    "whiten": [1, None, "yes"],
    "latent": ["tasks", None, 3],
    "dof": [2, 1.0, -math.inf, math.nan, "inf"],
    "strength": [0, -1.0, math.inf, math.nan, "1"],
    "ridge": [0, 1, 1.0, -0.1, math.nan],
    "blur": [-1, None, math.inf],
    "image_shape": [28, (28,), (28, 28, 3, 1), (7, 28), (28, 28, 0), [28, 28], (28.0, 28)],
    "kappa": [0, -1, None, math.inf],
    "memory": [0, 1.0],
    "jitter": [-0.1, math.inf, None],
    "alpha_1": [-0.1, math.inf, math.nan, None],
    "alpha_2": [-0.1, math.inf],
    "replay": [-1, 2.5],
    "replay_per_task": [0, "no"],
    "batch_size": [1, 0, 3.0],
    "learning_rate": [0, -1e-3, math.nan],
    "max_epochs": [-1, 1.5],
    "patience": [0],
    "validation_share": [-0.1, 1, 1.0, math.nan],
    "frozen": [0, "yes", None],
    "label_prior": ["count", None],
    "task_prior": ["flat", 0],
    "min_class_size": [0, 1.5],
}

ACCEPTED: dict[str, list[Any]] = {
    "couplings": [0, 12, np.int64(3)],
    "hidden": [1],
    "context_dim": [0, 16],
    "whiten": [True, False],
    "latent": ["task", "class"],
    "dof": [2.1, 3, math.inf],
    "strength": [None, 1e-9, 5, np.float64(3.0)],
    "ridge": [None, 1e-9, 0.999],
    "blur": [0, 5.0],
    "image_shape": [None, (8, 8), (32, 32, 3)],
    "kappa": [1e-9, 7],
    "memory": [1],
    "jitter": [0, 0.1],
    "alpha_1": [0, 0.0, 3],
    "alpha_2": [0, 2.5],
    "replay": [0, 1000],
    "replay_per_task": [True],
    "batch_size": [2],
    "learning_rate": [1e-9, 1],
    "max_epochs": [0],
    "patience": [1],
    "validation_share": [0, 0.0, 0.99],
    "frozen": [True, False],
    "label_prior": ["counts", "uniform"],
    "task_prior": ["counts", "uniform"],
    "min_class_size": [1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test__recipe__number_out_of_bounds__input_error_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name} must be .*, got "):
        recipe("paper", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ACCEPTED.items() for value in values]
)
def test__recipe__number_at_its_bound__accepted(name: str, value: Any) -> None:
    assert getattr(recipe("paper", **{name: value}), name) == value


def test__recipe__bounds__are_tested_for_every_setting() -> None:
    assert set(REFUSED) == set(ACCEPTED) == set(TUNABLE)
