"""The numbers behind the pictures, against slow and obvious references."""

from collections.abc import Callable

import numpy as np
import pytest

from clbruno import CLBrunoClassifier, InputError
from clbruno.report import exam as exams
from clbruno.report import facts, measures
from clbruno.report.exam import Exam, Piece, examine, examine_arrays
from clbruno.report.retention import of_log, of_record
from tests.report.conftest import Case, blobs, grown


def an_exam(truth: list[int], label: list[int], probability: list[float]) -> Exam:
    """An exam of rows whose answers are given, over three labels and one task."""
    n = len(truth)
    zeros = np.zeros(n)
    return Exam(
        labels=("a", "b", "c"),
        tasks=("t",),
        known_labels=2,
        known_tasks=1,
        names=tuple(f"row {at + 1}" for at in range(n)),
        truth=np.array(truth),
        true_task=np.zeros(n, dtype=np.int64),
        label=np.array(label),
        probability=np.array(probability),
        runner_up=np.zeros(n, dtype=np.int64),
        runner_up_probability=zeros,
        label_in_task=np.array(label),
        task=np.zeros(n, dtype=np.int64),
        task_proba=np.ones((n, 1)),
        typicality=np.linspace(0, 1, n).round(),
        log_density=-np.arange(n),
        at=np.arange(n),
        x=np.zeros((n, 2)),
        named={},
    )


def test__examine__rows_in_pieces__answers_as_the_model_does(
    cases: Callable[[str], Case],
) -> None:
    case = cases("five tasks")
    assert case.x is not None
    x, y, task = case.x, case.y, case.task

    whole = examine_arrays(case.model, x, y, task)
    names = [f"row {at + 1}" for at in range(len(x))]
    cut = 17
    pieces = [
        Piece(x[:cut], names[:cut], y[:cut].tolist(), task[:cut].tolist()),
        Piece(x[cut:], names[cut:], y[cut:].tolist(), task[cut:].tolist()),
    ]
    parts = examine(case.model, pieces, wanted=["row 20"])

    classes = np.array(whole.labels)
    assert (classes[whole.label] == case.model.predict(x)).all()
    assert (classes[whole.truth] == y).all()
    known = case.model.predict(x, task=task)
    assert (classes[whole.label_in_task] == known).all()
    np.testing.assert_allclose(whole.probability, case.model.predict_proba(x).max(1))
    second = np.sort(case.model.predict_proba(x), axis=1)[:, -2]
    np.testing.assert_allclose(whole.runner_up_probability, second)
    np.testing.assert_allclose(whole.task_proba, case.model.predict_task_proba(x))
    np.testing.assert_allclose(whole.typicality, case.model.typicality(x))
    for name in ("label", "truth", "true_task", "task", "at"):
        assert (getattr(whole, name) == getattr(parts, name)).all(), name
    np.testing.assert_allclose(parts.named["row 20"], x[19])


def test__examine__name_that_is_not_there__is_refused(cases: Callable[[str], Case]) -> None:
    case = cases("one task")
    assert case.x is not None

    with pytest.raises(InputError, match="no row called 'P1'"):
        examine(case.model, [Piece(case.x, ["p"] * len(case.x))], wanted=["P1"])


def test__examine__more_rows_than_are_kept__keeps_every_second_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exams, "KEPT", 10)
    x, y = blobs(["a", "b"], 19)
    model = CLBrunoClassifier(random_state=0).fit(x, y)
    pieces = [Piece(x[at : at + 7], ["r"] * len(x[at : at + 7])) for at in range(0, len(x), 7)]

    found = examine(model, pieces)

    assert found.at.tolist() == list(range(0, 38, 4))
    np.testing.assert_array_equal(found.x, x[::4])


def test__reliability__few_rows__is_the_sum_over_bins() -> None:
    exam = an_exam([0, 0, 1, 1, -1], [0, 0, 0, 1, 0], [0.95, 0.97, 0.55, 0.5, 0.99])

    found = measures.reliability(exam)

    # Bins of 1 / 15: 0.5 is in the 8th, 0.55 in the 9th, two in the 15th; one has no label.
    gaps = [abs(1 - 0.96) * 2, abs(0 - 0.55), abs(1 - 0.5)]
    assert found.ece == pytest.approx(sum(gaps) / 4)
    assert found.count.tolist() == [1, 1, 2]


def test__confusion__unknown_labels__have_rows_and_no_column() -> None:
    table = measures.confusion(an_exam([0, 0, 1, 2, -1], [0, 1, 1, 0, 0], [1.0] * 5))

    assert table.tolist() == [[1, 1], [0, 1], [1, 0]]


def test__wilson__coins__covers_the_truth_as_often_as_it_says() -> None:
    heads = np.random.default_rng(0).binomial(50, 0.3, 4000)

    low, high = measures.wilson(heads / 50, np.full(4000, 50))

    assert 0.93 < ((low <= 0.3) & (high >= 0.3)).mean() < 0.97


def test__two_sample__equal_and_shifted_and_wider__is_a_half_and_more() -> None:
    rng = np.random.default_rng(0)
    real = rng.normal(size=(450, 4))
    made = rng.normal(size=(450, 4))
    made[150:300] += 1.5
    made[300:] *= 2.5
    pair = measures.Pairing(real, made, np.repeat([0, 1, 2], 150), ("same", "moved", "wider"))

    found = measures.two_sample(pair)

    assert 0.5 <= found[0] < 0.6
    assert found[1] > 0.9
    assert found[2] > 0.8


def test__two_sample__classes_of_few_rows__have_none() -> None:
    pair = measures.Pairing(np.zeros((9, 2)), np.ones((9, 2)), np.zeros(9, np.int64), ("a",))

    assert measures.two_sample(pair) == {}


def test__pairing__known_and_unknown_labels__matches_the_known_ones(
    cases: Callable[[str], Case],
) -> None:
    case = cases("never learned")

    pair = measures.pairing(case.model, examine_arrays(case.model, case.x, case.y))

    assert np.bincount(pair.cell).tolist() == [6, 6]
    assert pair.real.shape == pair.made.shape == (12, 6)


@pytest.mark.parametrize("settings", [{}, {"couplings": 2, "hidden": 8, "max_epochs": 2}])
def test__pull__any_flow__contributions_add_up_to_the_change(settings: dict[str, int]) -> None:
    x, y = blobs(["a", "b", "c"], 40)
    model = CLBrunoClassifier(random_state=0, **settings).fit(x, y)

    found = measures.pull(model, x[0] + 0.5, 0, 1)

    log_label = model.predict_log_proba(x[:1] + 0.5)[0]
    assert found.end == pytest.approx(log_label[0] - log_label[1], abs=1e-6)
    assert found.features.sum() == pytest.approx(found.end - found.start, rel=0.05)


def test__pull__one_feature_tells_the_classes_apart__is_the_longest() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    x[100:, 3] += 6
    y = np.repeat(["a", "b"], 100)
    model = CLBrunoClassifier(random_state=0).fit(x, y)

    found = measures.pull(model, x[150], 1, 0)

    assert np.abs(found.features).argmax() == 3
    assert found.features[3] > 0.8 * (found.end - found.start)


def test__retention__validation_figures__begin_when_a_task_is_learned(
    cases: Callable[[str], Case],
) -> None:
    curves = of_log(cases("five tasks").model.model_)

    assert curves.kind == "task"
    assert curves.source == "validation"
    assert [points[0][0] for points in curves.lines.values()] == [1, 2, 3, 4, 5]
    assert [len(points) for points in curves.lines.values()] == [5, 4, 3, 2, 1]


def test__retention__no_validation__falls_back_on_what_was_held_back() -> None:
    curves = of_log(grown([["a", "b"], ["c", "d"]], n=30).model.model_)

    # Where one task is known there is nothing to tell apart; its figure is that of all rows.
    assert curves.source == "held back"
    assert curves.updates == 2
    assert {name for points in curves.lines.values() for name, _ in points} <= {1, 2}


def test__retention__record__is_read_below_the_diagonal() -> None:
    curves = of_record({"accuracy_matrix": [[0.9, 0.1], [0.7, 0.8]], "tasks": ["one", "two"]})

    assert curves.lines == {"one": [(1, 0.9), (2, 0.7)], "two": [(2, 0.8)]}
    assert curves.drops() == pytest.approx({"one": 0.2, "two": 0.0})


def test__log__several_tasks__holds_the_accuracy_of_each() -> None:
    x, y = blobs(["a", "b"], 60)
    model = CLBrunoClassifier(random_state=0)
    model.partial_fit(x, y, task=["north", "south"] * 60)

    after = model.model_.log[0].after

    assert after.keys() >= {"accuracy, task north", "accuracy, task south"}
    assert 0.8 < after["accuracy, task north"] <= 1


def test__facts__rows_to_look_at__are_in_the_order_of_need() -> None:
    exam = an_exam([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [0.9, 0.99, 0.6, 0.7, 0.95])

    assert [row["name"] for row in facts.sure_and_wrong(exam)] == ["row 2", "row 5", "row 3"]
    assert [row["name"] for row in facts.unsure(exam)][:2] == ["row 3", "row 4"]
    assert [row["name"] for row in facts.atypical(exam)][:3] == ["row 3", "row 2", "row 1"]
    worst = facts.classes(exam, {0: 0.6})[0]
    assert (worst["label"], worst["known"], worst["found"]) == ("c", False, 0.0)
