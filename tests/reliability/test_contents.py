"""What is in the file: everything of the model, to the last bit, and nothing of the data."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier, InputError, SmallClassWarning, load, save
from clbruno.persist import container, verify

ANSWERS = ("predict_proba", "predict_task_proba", "score_samples", "typicality")
WINDOW = 32


def answers(model: CLBrunoClassifier, x: np.ndarray) -> dict[str, bytes]:
    """All that a model says about some rows, to the bit."""
    given = {name: getattr(model, name)(x).tobytes() for name in ANSWERS}
    given["sample"] = model.sample(20, random_state=3)[0].tobytes()
    given["task known"] = model.predict_proba(x, task=model.tasks_[0]).tobytes()
    return given


def test__load__after_save__answers_bit_for_bit_the_same(learned: Any) -> None:
    again = load(learned.path)
    assert answers(again, learned.x) == answers(learned.model, learned.x)
    assert again.predict(learned.x).tolist() == learned.model.predict(learned.x).tolist()


def test__load__after_save__is_the_same_estimator(learned: Any) -> None:
    again, model = load(learned.path), learned.model
    for name in ("classes_", "tasks_", "class_count_"):
        assert getattr(again, name).tolist() == getattr(model, name).tolist()
    assert again.n_features_in_ == model.n_features_in_
    assert again.model_.log == model.model_.log
    assert again.model_.recipe == model.model_.recipe


def test__save__of_what_was_loaded__gives_the_same_bytes(learned: Any, tmp_path: Path) -> None:
    save(load(learned.path), tmp_path / "again.clb")
    assert (tmp_path / "again.clb").read_bytes() == learned.path.read_bytes()


def test__partial_fit__after_load__equals_going_on_without_the_file(learned: Any) -> None:
    resumed, straight = load(learned.path), load(learned.path)
    straight.model_ = learned.model.model_
    x, y = learned.x + 2, ["class 1", "class 9"] * 30
    for model in (resumed, straight):
        model.partial_fit(x, y, task="Oslo")
    assert answers(resumed, x) == answers(straight, x)
    without_clock = [
        dataclasses.replace(model.model_.log[-1], time="", seconds=0.0, fingerprint="")
        for model in (resumed, straight)
    ]
    assert without_clock[0] == without_clock[1]


def test__log__after_a_later_update__still_holds_the_earlier_entries(
    learned: Any, tmp_path: Path
) -> None:
    model = load(learned.path)
    old = model.model_.log
    model.partial_fit(learned.x, ["class 0", "class 1"] * 30, task="Turku")
    save(model, tmp_path / "m.clb")
    log = load(tmp_path / "m.clb").model_.log
    assert log[:-1] == old
    assert [record.number for record in log] == [1, 2, 3]
    assert log[-1].counts == (("Turku", "class 0", 30), ("Turku", "class 1", 30))


def test__save__weights_finer_than_float32__keeps_every_bit(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), ["a", "b"] * 20
    model = CLBrunoClassifier(max_epochs=1, random_state=0, couplings=2, hidden=4).fit(x, y)
    finer = copy.deepcopy(model.model_.flow)
    for at, weights in enumerate(finer.parameters()):
        weights += 1e-12 * (at + 1)
    model.model_ = dataclasses.replace(model.model_, flow=finer)
    save(model, tmp_path / "m.clb")
    again = load(tmp_path / "m.clb")
    for name, weights in finer.state_dict().items():
        assert torch.equal(again.model_.flow.state_dict()[name], weights)
    assert answers(again, x) == answers(model, x)


@pytest.mark.parametrize(
    ("labels", "tasks"),
    [
        (["01", "1"], ["a", "b"]),
        ([1, 2], [3, 4]),
        ([True, False], ["x", "y"]),
        (["Zürich \u2028 \U0001f600", 'quo"te\\'], ["", " "]),
    ],
)
def test__load__names_of_any_kind__keep_kind_and_text(
    tmp_path: Path, labels: list[Any], tasks: list[Any]
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = CLBrunoClassifier(max_epochs=1, random_state=0, hidden=4)
    for task in tasks:
        model.partial_fit(x, labels * 20, task=task)
    save(model, tmp_path / "m.clb")
    registry = load(tmp_path / "m.clb").model_.registry
    assert registry == model.model_.registry
    assert [type(name) for name in registry.labels] == [type(name) for name in sorted(labels)]


@pytest.mark.parametrize("dim", [1, 2, 7, 512])
def test__load__any_width__answers_bit_for_bit_the_same(tmp_path: Path, dim: int) -> None:
    rng = np.random.default_rng(dim)
    x, y = rng.normal(size=(60, dim)), ["a", "b", "c"] * 20
    model = CLBrunoClassifier(max_epochs=1, random_state=0, hidden=8).fit(x, y)
    save(model, tmp_path / "m.clb")
    assert answers(load(tmp_path / "m.clb"), x) == answers(model, x)


def test__save__names_of_features__are_kept_and_checked(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"])
    model = CLBrunoClassifier(max_epochs=1, random_state=0).fit(frame, ["x", "y"] * 20)
    save(model, tmp_path / "m.clb")
    again = load(tmp_path / "m.clb")
    assert list(again.feature_names_in_) == ["a", "b", "c"]
    assert answers(again, frame[["c", "a", "b"]]) == answers(model, frame)


def test__save__before_fit__is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to save"):
        save(CLBrunoClassifier(), tmp_path / "m.clb")
    assert list(tmp_path.iterdir()) == []


def windows(data: bytes, step: int = 1) -> set[bytes]:
    """All pieces of `WINDOW` bytes."""
    return {data[at : at + WINDOW] for at in range(0, len(data) - WINDOW + 1, step)}


@pytest.mark.parametrize("recipe", ["default", "paper"])
def test__save__of_10000_rows__holds_no_piece_of_any_row(tmp_path: Path, recipe: str) -> None:
    rng = np.random.default_rng(0)
    x = np.vstack([rng.normal(at, 1, (2000, 16)) for at in range(5)])
    model = CLBrunoClassifier(recipe, random_state=0, max_epochs=1, hidden=32, batch_size=1000)
    model.partial_fit(x[:6000], np.repeat(["a", "b", "c"], 2000), task="one")
    model.partial_fit(x[6000:], np.repeat(["d", "e"], 2000), task="two")
    path = tmp_path / "m.clb"
    save(model, path)
    stored = windows(path.read_bytes())
    for rows in (x, x.astype(np.float32), x.astype(">f8")):
        for row in rows:
            assert stored.isdisjoint(windows(row.tobytes()))
    # The search itself finds what does stand there.
    center = model.model_.scaler.center.numpy().tobytes()
    assert windows(center) <= stored


@pytest.mark.parametrize("recipe", ["default", "paper"])
def test__save__of_100_and_of_100000_rows__has_the_same_size(tmp_path: Path, recipe: str) -> None:
    sizes = []
    for n in (100, 100_000):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(n, 4)), np.array(["a", "b"] * (n // 2))
        model = CLBrunoClassifier(
            recipe, random_state=0, max_epochs=1, hidden=16, batch_size=10_000
        ).fit(x + 4 * (y == "b")[:, None], y)
        save(model, tmp_path / "m.clb")
        sizes.append((tmp_path / "m.clb").stat().st_size)
    assert abs(sizes[1] - sizes[0]) <= 64


def test__log__of_the_same_rows__has_another_fingerprint_each_time(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 2)), ["a", "b"] * 20
    model = CLBrunoClassifier(max_epochs=1, random_state=0)
    model.partial_fit(x, y).partial_fit(x, y)
    save(model, tmp_path / "m.clb")
    first, second = load(tmp_path / "m.clb").model_.log
    assert len(first.fingerprint) == 64
    assert first.fingerprint != second.fingerprint


def test__log__small_classes__are_named(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(33, 2)), ["a", "b"] * 15 + ["rare"] * 3
    model = CLBrunoClassifier(max_epochs=1, random_state=0)
    with pytest.warns(SmallClassWarning, match="'rare'"):
        model.fit(x, y)
    save(model, tmp_path / "m.clb")
    assert load(tmp_path / "m.clb").model_.log[0].small == (("default", "rare"),)


def test__forget__label__is_gone_from_the_file(learned: Any, tmp_path: Path) -> None:
    model = load(learned.path)
    gone = model.model_.registry.labels[0]
    kept = len(model.model_.registry.cells) - 1
    model.forget(label=gone)
    save(model, tmp_path / "m.clb")
    header, tensors = container.read(tmp_path / "m.clb")
    assert gone not in json.dumps(header["registry"])
    rows = kept if model.recipe == "default" else 2
    assert tensors["latent.mean"].shape[0] == rows
    again = load(tmp_path / "m.clb")
    assert answers(again, learned.x) == answers(model, learned.x)
    verify(tmp_path / "m.clb")


def test__verify__whole_file__says_nothing(learned: Any) -> None:
    before = torch.get_rng_state()
    verify(learned.path)
    assert torch.equal(before, torch.get_rng_state())
