"""Promises about uncertainty, on exchangeable data: each goes red without the held-back rows."""

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from crepes.base import ConformalClassifier
from numpy.typing import NDArray

from clbruno import CLBrunoClassifier, InputError
from clbruno.core.calibration import KEPT, PLAIN, Calibration, mass_above
from clbruno.errors import MissingWarning
from clbruno.learn import calibrate

SEEDS = 20


def overlapping(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Three heavy-tailed classes that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = np.c_[np.cos(2.1 * y), np.sin(2.1 * y)] + 0.6 * rng.standard_t(4, size=(n, 2))
    return x, np.array(["a", "b", "c"])[y]


def learned(seed: int) -> CLBrunoClassifier:
    """Two updates of the same classes."""
    x, y = overlapping(600, 1000 + seed)
    model = CLBrunoClassifier(random_state=seed)
    return model.partial_fit(x[:300], y[:300], task="A").partial_fit(x[300:], y[300:], task="A")


def uncalibrated(model: CLBrunoClassifier) -> CLBrunoClassifier:
    """The same model as if nothing had been held back."""
    nothing = Calibration.empty().grown(len(model.model_.registry.cells))
    model.model_ = dataclasses.replace(model.model_, calibration=nothing)
    return model


def ece(model: CLBrunoClassifier, x: NDArray[np.float64], y: NDArray[Any]) -> float:
    proba = model.predict_proba(x)
    right, confidence = model.classes_[proba.argmax(1)] == y, proba.max(1)
    place = np.minimum((15 * confidence).astype(int), 14)
    gaps = [abs((right - confidence)[place == at].sum()) for at in range(15)]
    return float(sum(gaps) / len(y))


@pytest.fixture(scope="module")
def runs() -> list[dict[str, float]]:
    """Coverage and false alarms of twenty models, each on its own fresh rows."""
    found = []
    for seed in range(SEEDS):
        model = learned(seed)
        x, y = overlapping(400, seed)
        truth = np.searchsorted(model.classes_, y)
        run = {}
        for level in (0.8, 0.9):
            run[f"coverage {level}"] = model.predict_set(x, level)[np.arange(400), truth].mean()
        for alpha in (0.05, 0.1):
            run[f"alarms {alpha}"] = (model.typicality(x) <= alpha).mean()
        found.append(run)
    return found


def within_two_errors(values: list[float], target: float) -> bool:
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return bool(abs(np.mean(values) - target) <= 2 * error)


def test__predict_set__twenty_seeds__covers_as_promised(runs: list[dict[str, float]]) -> None:
    covered = [run["coverage 0.9"] for run in runs]

    assert within_two_errors(covered, 0.9), np.mean(covered)
    # More than a set of 0.8 can be made of: the most probable label alone is right more often.
    assert np.mean([run["coverage 0.8"] for run in runs]) >= 0.8


@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test__typicality__twenty_seeds__false_alarms_are_the_level(
    runs: list[dict[str, float]], alpha: float
) -> None:
    alarms = [run[f"alarms {alpha}"] for run in runs]

    assert within_two_errors(alarms, alpha), np.mean(alarms)


def test__predict_set__against_crepes__the_same_sets() -> None:
    model = learned(0)
    x, _ = overlapping(200, 5)
    scores = model.model_.calibration
    asked = mass_above(torch.from_numpy(model.predict_proba(x))).numpy()
    expected = np.zeros((200, 3), dtype=bool)
    for label in range(3):
        kept = scores.of([label], 0).numpy()
        oracle = ConformalClassifier().fit(kept)
        p = oracle.predict_p(asked[:, [label]], smoothing=False)[:, 0]
        expected[:, label] = p > 0.1 + 1e-9

    np.testing.assert_array_equal(model.predict_set(x, 0.9), expected)
    assert expected.sum(1).max() > 1


def test__predict_set__nothing_was_held_back__holds_every_label() -> None:
    model = uncalibrated(learned(0))

    assert model.predict_set(overlapping(20, 5)[0]).all()


def test__predict_set__task_known__only_its_labels_and_always_the_best() -> None:
    x, y = overlapping(300, 3)
    model = CLBrunoClassifier(random_state=0).partial_fit(x, y, task="A")
    model.partial_fit(x[:90] + 30, ["d", "e", "f"] * 30, task="B")

    inside = model.predict_set(x, 0.9, task="A")

    assert not inside[:, 3:].any()
    best = model.predict_proba(x, task="A").argmax(1)
    assert inside[np.arange(300), best].all()


def test__calibration__heavy_tails__halves_the_error() -> None:
    x, y = overlapping(3000, 1)
    model = CLBrunoClassifier(random_state=0, ridge=0.1, couplings=0).partial_fit(
        x[:1500], y[:1500]
    )
    model.partial_fit(x[1500:], y[1500:])
    x, y = overlapping(4000, 9)
    calibrated = ece(model, x, y)

    model.model_ = dataclasses.replace(
        model.model_, calibration=dataclasses.replace(model.model_.calibration, link=PLAIN)
    )

    assert calibrated < 0.03
    assert calibrated < ece(model, x, y) / 2


def test__calibration__frozen_updates__leave_it_alone() -> None:
    x, y = overlapping(200, 3)
    model = CLBrunoClassifier(random_state=0, frozen=True).fit(x, y)
    model.partial_fit(x, y)

    assert model.model_.calibration.held == (0, 0, 0)


def test__calibration__many_updates__keeps_a_bounded_number_of_scores() -> None:
    x, y = overlapping(300, 3)
    model = CLBrunoClassifier(random_state=0, couplings=0)
    for _ in range(6):
        model.partial_fit(x, y)

    assert max(model.model_.calibration.held) == KEPT


def test__forget__drops_the_scores_of_what_is_forgotten() -> None:
    model = learned(0).forget(label="b")

    assert len(model.model_.calibration.held) == 2
    assert model.predict_set(overlapping(10, 1)[0]).shape == (10, 2)


def test__log__after_an_update__tells_calibration_before_and_after() -> None:
    record = learned(0).model_.log[-1]

    for figures in (record.before, record.after):
        assert {"ece", "brier", "log_loss"} <= figures.keys()


def test__predict__abstain__answers_none_where_unsure_or_strange() -> None:
    model = learned(0)
    x, _ = overlapping(300, 4)
    strange = np.vstack([x, [[60.0, 60.0]]])

    answers = model.predict(strange, abstain=0.05)

    assert answers[-1] is None
    sure = np.array([answer is not None for answer in answers])
    assert 0 < sure.sum() < 300
    assert answers[sure].tolist() == model.predict(strange)[sure].tolist()
    single = model.predict_set(strange, 0.95).sum(1) == 1
    assert (sure <= single).all()


@pytest.mark.parametrize("share", [0, 1, -0.1, "0.9", None, True])
def test__predict_set__impossible_coverage__says_so(share: Any) -> None:
    with pytest.raises(InputError, match="coverage must"):
        learned(0).predict_set(overlapping(3, 1)[0], share)


def test__typicality__against_what_is_unknown__says_so() -> None:
    with pytest.raises(InputError, match="against must be"):
        learned(0).typicality(overlapping(3, 1)[0], against="real")


@pytest.fixture(scope="module")
def gaps() -> tuple[CLBrunoClassifier, NDArray[np.float64], NDArray[Any]]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    x = rng.normal(size=(900, 5)) + 2.5 * np.eye(3, 5)[y]
    return CLBrunoClassifier(random_state=0, missing="marginal").fit(x[:600], y[:600]), x[600:], y


def test__missing__features_go__answers_widen_and_stay_calibrated(gaps: Any) -> None:
    model, x, y = gaps
    confidence = []
    for gone in range(4):
        rows = x.copy()
        rows[1:, :gone] = np.nan
        proba = model.predict_proba(rows)
        confidence.append(proba[1:].max(1).mean())
        right = (proba[1:].argmax(1) == y[601:]).mean()
        assert abs(right - confidence[-1]) < 0.08  # three standard errors of 299 rows
        np.testing.assert_allclose(proba[0], model.predict_proba(x[:1])[0], rtol=0, atol=1e-12)

    assert all(one > other for one, other in itertools.pairwise(confidence))


def test__missing__nothing_is_known__is_the_prior(gaps: Any) -> None:
    model, _, _ = gaps
    empty = np.full((2, 5), np.nan)
    with pytest.warns(MissingWarning, match="5 of 5 features are missing"):
        proba = model.predict_proba(empty)

    count = model.class_count_ / model.class_count_.sum()
    unbent = dataclasses.replace(model.model_.calibration.link, slope=1.0, offset=0.0)
    plain = CLBrunoClassifier(missing="marginal")
    plain.__dict__ = {**vars(model)}
    plain.model_ = dataclasses.replace(
        model.model_, calibration=dataclasses.replace(model.model_.calibration, link=unbent)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingWarning)
        np.testing.assert_allclose(plain.predict_proba(empty)[0], count, atol=1e-12)
    assert proba.sum() == pytest.approx(2)


def test__missing__a_whole_column__names_itself_and_what_the_rest_carries(gaps: Any) -> None:
    model, x, _ = gaps
    rows = x.copy()
    rows[:, 0] = np.nan

    with pytest.warns(MissingWarning, match=r"1 of 5 features .*'column 0'.* carry \d+%"):
        model.predict(rows)


def test__missing__typicality__false_alarms_stay_near_the_level(gaps: Any) -> None:
    model, x, _ = gaps
    rows = x.copy()
    rows[:150, 3], rows[150:, 4] = np.nan, np.nan

    assert (model.typicality(rows) <= 0.1).mean() == pytest.approx(0.1, abs=0.06)


def test__missing__not_asked_for__is_an_error_and_so_is_learning_from_gaps(gaps: Any) -> None:
    _, x, _ = gaps
    rows = x.copy()
    rows[0, 0] = np.nan
    with pytest.raises(InputError, match="NaN"):
        CLBrunoClassifier(random_state=0).fit(x[:50], [0, 1] * 25).predict(rows)
    with pytest.raises(InputError, match="NaN"):
        CLBrunoClassifier(missing="marginal").fit(rows, [0, 1] * 150)
    with pytest.raises(InputError, match="missing must be"):
        CLBrunoClassifier(missing="guess").fit(x, [0, 1] * 150).predict(x)


def test__compare__same_site__rarely_alarms_and_a_shift_is_named(gaps: Any) -> None:
    model, _, _ = gaps

    def batch(seed: int, shift: float = 0.0) -> NDArray[np.float64]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(100, 5)) + 2.5 * np.eye(3, 5)[rng.integers(0, 3, 100)]
        x[:, 3] += shift
        return x

    p = np.array([model.compare(batch(seed)).p_value for seed in range(40)])
    assert (p < 0.05).mean() <= 0.125
    moved = model.compare(batch(99, 0.7))
    assert moved.p_value < 1e-3
    assert moved.matches[0].differences[0].feature == "column 3"
    assert moved.matches[0].differences[0].shift == pytest.approx(0.7, abs=0.3)


def test__compare__other_classes_in_other_shares__is_no_drift(gaps: Any) -> None:
    model, _, _ = gaps
    rng = np.random.default_rng(5)
    x = rng.normal(size=(100, 5)) + 2.5 * np.eye(3, 5)[rng.choice(3, 100, p=[0.9, 0.1, 0])]

    assert model.compare(x).p_value > 0.01


def test__compare__two_sites__tells_the_nearest_with_its_share() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    model = CLBrunoClassifier(random_state=0).partial_fit(x[:200], ["a", "b"] * 100, task="A")
    model.partial_fit(x[200:] + 1.5, ["a", "b"] * 100, task="B")

    found = model.compare(rng.normal(size=(80, 4)) + 1.5)

    assert found.nearest == "B"
    by_task = {match.task: match for match in found.matches}
    low, high = by_task["B"].interval
    assert low < by_task["B"].share < high
    assert by_task["A"].p_value < 1e-6 < by_task["B"].p_value
    assert [match.task for match in model.compare(x[:50], task="A").matches] == ["A"]


def test__held_out__class_of_few_rows__takes_turns_until_each_has_some() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(46, 3)) + np.repeat([0, 4], [40, 6])[:, None]
    model = CLBrunoClassifier(random_state=0, couplings=0).fit(
        x, np.repeat(["big", "few"], [40, 6])
    )

    assert calibrate.MOST_FOLDS == 5
    assert model.model_.calibration.held == (20, 4)
