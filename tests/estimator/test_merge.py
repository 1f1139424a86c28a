"""Two models become one: exact where statistics can be added, by replay and reported elsewhere."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from clbruno import CLBrunoClassifier, InputError, load, save
from clbruno.core.model import Model
from clbruno.learn import merging

EVERY = tuple(field.name for field in dataclasses.fields(Model))


def sites(blobs: Any, tmp_path: Any, **settings: Any) -> tuple[CLBrunoClassifier, Any, Any]:
    """A model that learned classes 0 to 2, and its file, to be learned on at two sites."""
    x, y = blobs(6, 40, 5)
    start = CLBrunoClassifier(random_state=0, **{"couplings": 0, **settings}).fit(
        x[:120], y[:120], task="A"
    )
    save(start, tmp_path / "start.clb")
    return start, x, y


def copies(tmp_path: Any) -> tuple[CLBrunoClassifier, CLBrunoClassifier]:
    return load(tmp_path / "start.clb"), load(tmp_path / "start.clb")


def assert_same_statistics(one: Model, other: Model) -> None:
    """The same counts, means and scatters, whatever the order of the classes."""
    assert type(one.latent) is type(other.latent)
    assert set(one.registry.tasks) == set(other.registry.tasks)
    names = other.registry
    for at, (task, label) in enumerate(one.registry.cells):
        pair = one.registry.tasks[task], one.registry.labels[label]
        to = names.cell_index(*pair)
        assert one.registry.counts[at] == names.counts[to], pair
        found, expected = one.latent.seen(at), other.latent.seen(to)  # type: ignore[union-attr]
        assert found.count == expected.count
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(found.scatter, expected.scatter, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        one.latent.within,
        other.latent.within,
        rtol=1e-10,
        atol=1e-10,  # type: ignore[union-attr]
    )


def test__merge__news_of_both_sites__equal_one_model_that_learned_all(
    blobs: Any, tmp_path: Any
) -> None:
    start, x, y = sites(blobs, tmp_path)
    boston, oslo = copies(tmp_path)
    boston.partial_fit(x[120:160], y[120:160], task="A")
    boston.partial_fit(x[:40] + 0.1, y[:40], task="A")
    oslo.partial_fit(x[160:], y[160:], task="B").partial_fit(x[40:80] - 0.1, y[40:80], task="A")
    whole = start.partial_fit(x[120:160], y[120:160], task="A")
    whole.partial_fit(x[:40] + 0.1, y[:40], task="A").partial_fit(x[160:], y[160:], task="B")
    whole.partial_fit(x[40:80] - 0.1, y[40:80], task="A")

    merged = boston.merge(oslo)

    assert merged.exact
    assert_same_statistics(boston.model_, whole.model_)
    assert boston.class_count_.tolist() == whole.class_count_.tolist()


def test__merge__same_old_class_at_both_sites__needs_the_base_and_is_exact_with_it(
    blobs: Any, tmp_path: Any
) -> None:
    start, x, y = sites(blobs, tmp_path)
    boston, oslo = copies(tmp_path)
    boston.partial_fit(x[:60] + 0.2, y[:60], task="A")
    oslo.partial_fit(x[:50] - 0.3, y[:50], task="A")

    with pytest.raises(InputError, match=r"'class 0' in task 'A'.*--base"):
        boston.merge(oslo)
    assert boston.n_updates_ == 2
    merged = boston.merge(oslo, base=start)
    whole = start.partial_fit(x[:60] + 0.2, y[:60], task="A")
    whole.partial_fit(x[:50] - 0.3, y[:50], task="A")

    assert merged.exact
    assert_same_statistics(boston.model_, whole.model_)
    torch.testing.assert_close(boston.model_.latent.pooled, whole.model_.latent.pooled)  # type: ignore[union-attr]


def test__merge__three_sites_in_turn__equal_one_model(blobs: Any, tmp_path: Any) -> None:
    start, x, y = sites(blobs, tmp_path)
    models = [load(tmp_path / "start.clb") for _ in range(3)]
    for at, model in enumerate(models):
        rows = slice(120 + 40 * at, 160 + 40 * at)
        model.partial_fit(x[rows], y[rows], task=f"site {at}")
        start.partial_fit(x[rows], y[rows], task=f"site {at}")

    models[0].merge(models[1])
    merged = models[2].merge(models[0])

    assert merged.exact
    assert_same_statistics(models[2].model_, start.model_)


@pytest.mark.parametrize("recipe", ["default", "couplings", "paper"])
def test__merge__log__names_both_histories_and_outlives_a_file(
    blobs: Any, settings: Any, tmp_path: Any, recipe: str
) -> None:
    _, x, y = sites(blobs, tmp_path, **settings[recipe])
    boston, oslo = copies(tmp_path)
    boston.partial_fit(x[120:160], y[120:160], task="A")
    oslo.partial_fit(x[160:200], y[160:200], task="B").partial_fit(x[200:], y[200:], task="B")

    merged = boston.merge(oslo, names=("Boston", "Oslo"))

    save(boston, tmp_path / "both.clb")
    log = load(tmp_path / "both.clb").model_.log
    exact = recipe == "default"
    assert merged.exact == exact
    assert [record.number for record in log] == list(range(1, len(log) + 1))
    sources = [record.source for record in log[:-1]]
    assert sources == ["", "Boston", *["Oslo"] * (2 if exact else 0)]
    assert log[-1].source.startswith(
        "merged Boston: updates 2 to 2 and Oslo: updates 2 to 3 after 1 in common; "
    )
    assert ("by replay" in log[-1].source) == (not exact)
    assert set(log[-1].after) == {f"accuracy on replay of {name}" for name in ("Boston", "Oslo")}
    assert boston.predict(x).shape == (240,)
    assert set(boston.classes_) == {f"class {at}" for at in range(6)}


def test__merge__strangers__are_learned_by_replay_and_the_loss_is_reported(blobs: Any) -> None:
    x, y = blobs(6, 60, 5)
    boston = CLBrunoClassifier(random_state=0).fit(x[:180], y[:180], task="A")
    oslo = CLBrunoClassifier(random_state=1).fit(x[180:], y[180:], task="B")

    merged = boston.merge(oslo)

    assert not merged.exact
    assert "no common model" in merged.how
    assert boston.class_count_.tolist() == [60] * 6
    assert float((boston.predict(x) == y).mean()) > 0.95
    assert min(merged.before) > 0.9
    assert min(merged.after) > 0.9


def test__merge__features_by_name__are_matched(blobs: Any) -> None:
    import pandas as pd

    x, y = blobs(4, 60, 3)
    frame = pd.DataFrame(x * [1, 2, 4], columns=["a", "b", "c"])
    boston = CLBrunoClassifier(random_state=0).fit(frame[:120], y[:120])
    oslo = CLBrunoClassifier(random_state=1).fit(frame[120:][["c", "a", "b"]], y[120:])

    boston.merge(oslo)

    assert float((boston.predict(frame) == y).mean()) > 0.95
    other = CLBrunoClassifier(random_state=1).fit(frame[["a", "b"]], y)
    with pytest.raises(InputError, match="missing: 'c'"):
        boston.merge(other)


def test__merge__trained_flow__is_replayed(blobs: Any, settings: Any, tmp_path: Any) -> None:
    quick = {**settings["couplings"], "learning_rate": 0.01, "max_epochs": 5}
    _, x, y = sites(blobs, tmp_path, **quick)
    boston, oslo = copies(tmp_path)
    oslo.partial_fit(x[120:], y[120:], task="B")
    assert not merging._same(boston.model_.flow, oslo.model_.flow)

    merged = boston.merge(oslo)

    assert not merged.exact
    assert "the flow has changed" in merged.how


@pytest.mark.parametrize("recipe", ["couplings", "paper"])
def test__merge__flow_frozen_since__is_exact(
    blobs: Any, settings: Any, tmp_path: Any, recipe: str
) -> None:
    start, x, y = sites(blobs, tmp_path, **settings[recipe])
    boston, oslo = copies(tmp_path)
    for model in (start, boston, oslo):
        model.set_params(frozen=True)
    boston.partial_fit(x[:40] + 0.1, y[:40], task="A")
    oslo.partial_fit(x[40:80] + 0.1, y[40:80], task="A")

    merged = boston.merge(oslo, base=start)
    start.partial_fit(x[:40] + 0.1, y[:40], task="A").partial_fit(
        x[40:80] + 0.1, y[40:80], task="A"
    )

    assert merged.exact
    np.testing.assert_allclose(boston.predict_proba(x), start.predict_proba(x), atol=1e-9)
    np.testing.assert_allclose(boston.score_samples(x), start.score_samples(x), rtol=1e-9)


def test__merge__forgotten_in_one__is_refused_and_changes_nothing(
    blobs: Any, tmp_path: Any
) -> None:
    _, x, y = sites(blobs, tmp_path)
    boston, oslo = copies(tmp_path)
    oslo.partial_fit(x[120:160], y[120:160], task="B").forget(label="class 1")
    before = boston.model_

    with pytest.raises(InputError, match=r"'class 1' in task 'A' was forgotten"):
        boston.merge(oslo)
    assert boston.model_ is before
    boston.forget(label="class 1")
    assert boston.merge(oslo).exact
    assert sorted(boston.classes_) == ["class 0", "class 2", "class 3"]


def test__merge__the_same_model_again__is_refused_and_counts_once(
    blobs: Any, tmp_path: Any
) -> None:
    _, x, y = sites(blobs, tmp_path)
    boston, oslo = copies(tmp_path)
    bergen = load(tmp_path / "start.clb").partial_fit(x[200:], y[200:], task="C")
    boston.partial_fit(x[120:160], y[120:160], task="A")
    oslo.partial_fit(x[160:200], y[160:200], task="B")
    boston.merge(oslo)
    bergen.merge(oslo)
    before = boston.class_count_.tolist()

    for other in (oslo, bergen):  # one that was merged, and one that brings it along
        with pytest.raises(InputError, match="count twice"):
            boston.merge(other)

    assert boston.class_count_.tolist() == before


def test__merge__wrong_base__is_refused(blobs: Any, tmp_path: Any) -> None:
    _, x, y = sites(blobs, tmp_path)
    boston, oslo = copies(tmp_path)
    other = CLBrunoClassifier(random_state=5, couplings=0).fit(x[:120], y[:120], task="A")

    for base in (other, load(tmp_path / "start.clb").partial_fit(x, y, task="C")):
        with pytest.raises(InputError, match="the base is not the model"):
            boston.merge(oslo, base=base)


def test__merge__thin_classes__are_added_to_their_rank_and_not_called_exact(
    blobs: Any, tmp_path: Any
) -> None:
    _, x, y = sites(blobs, tmp_path, memory=60)
    boston, oslo = copies(tmp_path)
    boston.partial_fit(x[120:160], y[120:160], task="A")
    oslo.partial_fit(x[160:], y[160:], task="A")

    merged = boston.merge(oslo)

    assert not merged.exact
    assert "thin" in merged.how
    assert float((boston.predict(x) == y).mean()) > 0.95


def test__merge__every_part_of_a_model__is_known() -> None:
    """Whoever adds a part to the model says here how two of them become one."""
    assert set(EVERY) == {*merging.SHARED, *merging.COMBINED}
