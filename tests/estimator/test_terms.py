"""The terms of the loss do what they are for: each, weighted up, pulls its own figure down."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier
from clbruno.core.model import Model
from clbruno.learn.replay import Replay, Teacher

SETTINGS = {"hidden": 16, "context_dim": 4, "couplings": 2, "batch_size": 20, "learning_rate": 0.01}
LENGTH = {"max_epochs": 6, "patience": 6, "validation_share": 0.0}


@pytest.fixture(scope="module")
def old() -> tuple[CLBrunoClassifier, Replay]:
    """A model of one task, and pseudo-data of it."""
    x, y = np.random.default_rng(0).normal(size=(60, 3)), ["a", "b"] * 30
    model = CLBrunoClassifier("paper", random_state=0, **SETTINGS, **LENGTH).fit(x, y, task="A")
    pseudo = Teacher(model.model_, 400, per_task=True).draw(torch.Generator().manual_seed(0))
    return model, pseudo


def updated(old: CLBrunoClassifier, **weights: Any) -> Model:
    """The old model after a second task that is far from the first."""
    x, y = 6 + 3 * np.random.default_rng(1).normal(size=(60, 3)), ["c", "d"] * 30
    model = CLBrunoClassifier("paper", random_state=0, **SETTINGS, **LENGTH, **weights)
    model.model_, model.n_features_in_ = old.model_, old.n_features_in_
    return model.partial_fit(x, y, task="B").model_


def drift(new: Model, pseudo: Replay) -> float:
    """R of eq. 4, per row: the mean of || f_new^-1(z') - x' ||^2."""
    with torch.no_grad():
        again = new.flow.inverse(pseudo.z.double(), new.context(pseudo.cell))
    return float((again - pseudo.x.double()).square().sum(1).mean())


def surprise(new: Model, old: Model, pseudo: Replay) -> float:
    """L' of eq. 6, per row: pseudo-data under the new flow and the old predictive laws."""
    with torch.no_grad():
        z, ladj = new.flow(pseudo.x.double(), new.context(pseudo.cell))
    return -float((old.latent.log_prob(z, [0])[:, 0] + ladj).mean())


def test__alpha_2__weighted_up__the_old_samples_stay_where_they_were(old: Any) -> None:
    model, pseudo = old

    left = {weight: drift(updated(model, alpha_1=0, alpha_2=weight), pseudo) for weight in (0, 30)}

    assert drift(model.model_, pseudo) < 1e-20
    assert left[30] < 0.3 * left[0]


def test__alpha_1__weighted_up__the_old_samples_stay_as_likely(old: Any) -> None:
    model, pseudo = old
    before = surprise(model.model_, model.model_, pseudo)

    lost = {
        weight: surprise(updated(model, alpha_1=weight, alpha_2=0), model.model_, pseudo) - before
        for weight in (0, 30)
    }

    assert lost[0] > 0.2
    assert lost[30] < 0.4 * lost[0]


def test__new_class_of_a_known_task__is_drawn_to_what_was_seen_of_it__equation_8(old: Any) -> None:
    rng = np.random.default_rng(2)
    model = copy.copy(old[0]).partial_fit(8 + rng.normal(size=(60, 3)), ["c"] * 60, task="B")
    law = model.model_.latent.predictive[1]
    assert law.mean.min() > 2  # the law of a task without samples has mean zero

    x = rng.normal(size=(60, 3))
    model.set_params(max_epochs=40, patience=40, replay=32).partial_fit(x, ["d"] * 60, task="B")

    new = model.model_
    cell = torch.full((60,), new.registry.cell_index("B", "d"))
    with torch.no_grad():
        z, _ = new.flow(new.scaler.forward(torch.from_numpy(x)), new.context(cell))
    assert float((z.mean(0) - law.mean).abs().max()) < 0.5
