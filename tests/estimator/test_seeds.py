"""Seeds, names and counts: the same call gives the same bits, and nobody else's dice are thrown."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from clbruno import CLBrunoClassifier

ALL = ["default", "couplings", "paper"]


def life(model: CLBrunoClassifier, blobs: Callable[..., Any]) -> CLBrunoClassifier:
    """Two updates: a task, then a new class in it and a second task."""
    x, y = blobs(4, 24, 4)
    model.partial_fit(x[:48], y[:48], task="A")
    return model.partial_fit(x[48:], y[48:], task=["A"] * 24 + ["B"] * 24)


@pytest.mark.parametrize("recipe", ALL)
def test__same_seed__repeated__bit_equal(
    blobs: Any, answers: Any, same: Any, settings: Any, recipe: str
) -> None:
    x, _ = blobs(4, 5, 4, seed=7)
    first, second = (
        life(CLBrunoClassifier(random_state=3, **settings[recipe]), blobs) for _ in range(2)
    )

    same(answers(first, x), answers(second, x))


@pytest.mark.parametrize("recipe", ALL)
def test__same_seed__after_fit_of_a_used_model__bit_equal(
    blobs: Any, answers: Any, same: Any, settings: Any, recipe: str
) -> None:
    x, y = blobs(4, 24, 4)
    fresh = CLBrunoClassifier(random_state=3, **settings[recipe]).fit(x, y)

    used = life(CLBrunoClassifier(random_state=3, **settings[recipe]), blobs).fit(x, y)

    same(answers(used, x), answers(fresh, x))


@pytest.mark.parametrize("recipe", ["couplings", "paper"])
def test__other_seed__other_flow(blobs: Any, settings: Any, recipe: str) -> None:
    x, _ = blobs(4, 5, 4, seed=7)

    first, second = (
        life(CLBrunoClassifier(random_state=seed, **settings[recipe]), blobs) for seed in (0, 1)
    )

    assert not np.array_equal(first.score_samples(x), second.score_samples(x))


@pytest.mark.parametrize("recipe", ALL)
def test__learning_and_answering__global_generators__untouched(
    blobs: Any, answers: Any, settings: Any, recipe: str
) -> None:
    random.seed(11)
    np.random.seed(11)  # noqa: NPY002
    torch.manual_seed(11)

    def states() -> tuple[Any, ...]:
        kind, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), kind, keys.tobytes(), rest, torch.get_rng_state().tolist()

    before = states()
    for seed in (0, None):
        model = life(CLBrunoClassifier(random_state=seed, **settings[recipe]), blobs)
        answers(model, blobs(4, 5, 4)[0])
        model.sample(3)

    assert states() == before


@pytest.mark.parametrize("recipe", ["couplings", "paper"])
def test__global_generators__in_another_state__same_answers(
    blobs: Any, answers: Any, same: Any, settings: Any, recipe: str
) -> None:
    x, _ = blobs(4, 5, 4, seed=7)
    found = []
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        model = life(CLBrunoClassifier(random_state=3, **settings[recipe]), blobs)
        found.append(answers(model, x))

    same(*found)


def test__no_seed__every_model__gets_its_own(blobs: Any) -> None:
    x, y = blobs(2, 20, 3)

    seeds = {CLBrunoClassifier().fit(x, y).model_.seed for _ in range(4)}

    assert len(seeds) == 4


def test__no_seed__a_model__keeps_its_own_over_its_updates(blobs: Any) -> None:
    model = CLBrunoClassifier()

    seed = model.fit(*blobs(2, 20, 3)).model_.seed

    assert model.partial_fit(*blobs(2, 20, 3, seed=1)).model_.seed == seed


def test__random_state__an_instance__is_drawn_from(blobs: Any, answers: Any, same: Any) -> None:
    x, y = blobs(3, 20, 3)
    state = np.random.RandomState(5)
    first, second = (CLBrunoClassifier(random_state=state).fit(x, y) for _ in range(2))
    again = CLBrunoClassifier(random_state=np.random.RandomState(5)).fit(x, y)

    assert first.model_.seed != second.model_.seed
    same(answers(again, x), answers(first, x))


@pytest.mark.parametrize("seed", [0, 3, 2**40, np.int64(3), np.uint8(3)])
def test__random_state__any_whole_number__works(blobs: Any, seed: Any) -> None:
    assert CLBrunoClassifier(random_state=seed).fit(*blobs(2, 20, 3)).model_.seed >= 0


def test__sample__seeded__repeats__unseeded__does_not(blobs: Any) -> None:
    model = CLBrunoClassifier(random_state=0).fit(*blobs(3, 20, 3))

    (x, y), (again, labels) = model.sample(50, random_state=1), model.sample(50, random_state=1)

    assert np.array_equal(x, again)
    assert np.array_equal(y, labels)
    assert not np.array_equal(x, model.sample(50, random_state=2)[0])
    assert not np.array_equal(model.sample(50)[0], model.sample(50)[0])


def test__sample__no_task__follows_the_priors(blobs: Any) -> None:
    x, y = blobs(3, 40, 3)
    keep = np.r_[0:40, 40:50, 80:120]
    model = CLBrunoClassifier(random_state=0)
    model.fit(x[keep], y[keep], task=["A"] * 50 + ["B"] * 40)

    _, labels = model.sample(4000, random_state=0)

    share = [float(np.mean(labels == name)) for name in model.classes_]
    assert share == pytest.approx([0.4, 0.1, 0.5], abs=0.03)


@pytest.mark.parametrize("recipe", ALL)
def test__sample__rows__look_like_their_label(blobs: Any, settings: Any, recipe: str) -> None:
    model = life(CLBrunoClassifier(random_state=0, **settings[recipe]), blobs)

    for task, label in (("A", "class 0"), ("B", "class 3")):
        x, y = model.sample(200, task=task, label=label, random_state=0)
        assert set(y) == {label}
        assert float(np.mean(model.predict_task(x) == task)) > 0.8
        assert float(np.mean(model.predict(x, task=task) == label)) > (
            0.95 if recipe != "paper" else 0.3
        )


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["b", "a", "c"], "U"),
        ([30, 10, 20], "i"),
        ([3.0, 1.0, 2.0], "f"),
        ([True, False], "b"),
    ],
)
def test__labels__of_any_kind__are_kept(blobs: Any, names: list[Any], kind: str) -> None:
    x, _ = blobs(len(names), 20, 3)
    y = np.repeat(np.array(names), 20)
    model = CLBrunoClassifier(random_state=0).fit(x, y)

    assert model.classes_.dtype.kind == kind
    assert model.predict(x).dtype.kind == kind
    assert model.sample(3)[1].dtype.kind == kind
    assert model.classes_.tolist() == sorted(names)
    assert np.mean(model.predict(x) == y) > 0.95
    model.partial_fit(x, y.tolist())
    assert model.classes_.tolist() == sorted(names)


def test__labels__longer_texts_later__are_not_cut(blobs: Any) -> None:
    x, _ = blobs(2, 20, 3)
    model = CLBrunoClassifier(random_state=0).fit(x[:20], ["a"] * 20)

    model.partial_fit(x[20:], ["a much longer name"] * 20)

    assert model.predict(x[20:]).tolist() == ["a much longer name"] * 20


def test__names__order__sorted_within_a_batch_and_appended_after(blobs: Any) -> None:
    x, _ = blobs(4, 20, 3)
    model = CLBrunoClassifier(random_state=0)
    model.partial_fit(x[20:], ["z"] * 20 + ["m"] * 40, task=["T2"] * 30 + ["T1"] * 30)
    model.partial_fit(x[:40], ["a"] * 20 + ["m"] * 20, task="T0")

    assert model.classes_.tolist() == ["m", "z", "a"]
    assert model.tasks_.tolist() == ["T2", "T1", "T0"]
    assert model.class_count_.tolist() == [60, 20, 20]
    assert model.class_count_.dtype == np.int64
    assert model.n_updates_ == 2
    assert model.n_features_in_ == 3


def test__names__renamed__nothing_but_the_names_changes(blobs: Any) -> None:
    x, y = blobs(4, 24, 4)
    first = life(CLBrunoClassifier(random_state=0), blobs)
    renamed = CLBrunoClassifier(random_state=0)
    other = np.char.replace(y, "class", "kind")
    renamed.partial_fit(x[:48], other[:48], task=1)
    renamed.partial_fit(x[48:], other[48:], task=[1] * 24 + [0] * 24)

    assert np.array_equal(first.predict_proba(x), renamed.predict_proba(x))
    assert np.array_equal(first.predict_task_proba(x), renamed.predict_task_proba(x))


@pytest.mark.parametrize("recipe", ALL)
def test__frames__columns_in_another_order__same_model(
    blobs: Any, answers: Any, same: Any, settings: Any, recipe: str
) -> None:
    x, y = blobs(3, 24, 4)
    names, order = list("pqrs"), list("rsqp")
    frame = pd.DataFrame(x, columns=names)
    model = CLBrunoClassifier(random_state=0, **settings[recipe]).fit(frame, y, task="A")
    expected = answers(copy.deepcopy(model).partial_fit(frame, y, task="B"), frame)

    for other in (frame[order], pl.DataFrame(x, schema=names)[order]):
        found = copy.deepcopy(model).partial_fit(other, y, task="B")
        same(answers(found, other), expected)
        assert found.feature_names_in_.tolist() == names


def test__features__of_the_first_batch_without_names__are_matched_by_position(blobs: Any) -> None:
    x, y = blobs(3, 24, 4)
    model = CLBrunoClassifier(random_state=0).fit(x, y)

    assert not hasattr(model, "feature_names_in_")
    frame = pd.DataFrame(x, columns=list("pqrs"))
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(x))
    assert hasattr(model.fit(frame, y), "feature_names_in_")
    assert not hasattr(model.fit(x, y), "feature_names_in_")


def test__progress__verbose__changes_no_answer(
    blobs: Any, answers: Any, same: Any, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x, _ = blobs(4, 5, 4)
    quiet, loud = (
        life(CLBrunoClassifier(random_state=0, verbose=verbose, **settings["couplings"]), blobs)
        for verbose in (0, 1)
    )

    same(answers(loud, x), answers(quiet, x))
    assert capsys.readouterr().out == ""
