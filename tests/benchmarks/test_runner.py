"""The command, the runner and the records, on small made data."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bulk, machine, metrics, runner
from benchmarks.__main__ import main, orders, parser, seeds_of
from benchmarks.experiments import EXPERIMENTS
from benchmarks.methods import METHODS
from benchmarks.ours import QUICK, Ours, count_numbers
from benchmarks.rivals.lda import StreamingLDA
from clbruno import CLBrunoClassifier


def test__measure__matrix__last_row_is_the_answer_at_the_end() -> None:
    stream = EXPERIMENTS["pancan"](None, 0, False)
    figures, extra = runner.measure(StreamingLDA(), stream, "cpu")
    matrix = extra["accuracy_matrix"]
    assert matrix[0][1] is None
    again = runner.learn(StreamingLDA(), stream)
    right = [again.predict(test.x) == test.y for test in stream.tests]
    assert matrix[-1] == [float(part.mean()) for part in right]
    assert figures["accuracy"] == float(np.concatenate(right).mean())
    assert [len(line) for line in extra["by_step"].values()] == [len(stream.steps)] * 2
    assert [extra["by_step"][name][-1] for name in ("ece", "nll")] == [
        figures["ece"],
        figures["nll"],
    ]
    step = stream.steps[0]
    first = StreamingLDA().partial_fit(step.x, step.y, step.task)
    answers = [runner.answer(first, stream.tests[0])]
    assert extra["by_step"]["nll"][0] == metrics.nll(*runner.stacked(answers, "label"))


def test__scatter__generated_rows__lie_among_the_test_rows_of_their_class() -> None:
    stream = EXPERIMENTS["synthetic"](None, 0, True)
    model = runner.learn(Ours("default", seed=0), stream)
    for group in runner.scatter(model, stream):
        for code in {row[2] for row in group["test"]}:
            test, made = (
                np.array([row[:2] for row in group[kind] if row[2] == code])
                for kind in ("test", "generated")
            )
            assert np.abs(made.mean(axis=0) - test.mean(axis=0)).max() < 1.5


def test__by_response__groups__average_to_the_heat_map() -> None:
    record = runner.run(runner.Order("ici", "lda", 0, None, quick=True))
    for place, task in enumerate(record["tasks"]):
        groups = [g for g in record["task_by_response"] if g["task"] == task]
        weights = [g["rows"] for g in groups]
        mean = np.average([g["mean"] for g in groups], axis=0, weights=weights)
        np.testing.assert_allclose(mean, record["task_heat"][place])


def test__first_answerable__labels_seen_in_another_task__count() -> None:
    assert runner.first_answerable(EXPERIMENTS["synthetic"](None, 0, True)) == [
        False,
        False,
        False,
        True,
        False,
    ]


def test__tune__grid__takes_the_best_validation_score_and_lists_all() -> None:
    stream = EXPERIMENTS["pancan"](None, 0, True)
    order = runner.Order("pancan", "lda", 0, None, quick=True)
    grid = [{"ridge": 1e-4}, {"ridge": 1.0}]
    chosen, trials = runner.tune(METHODS["lda"], stream, order, grid)
    assert [trial["settings"] for trial in trials] == grid
    best = max(trials, key=lambda trial: (trial["score"], -trial["nll"]))
    assert chosen == best["settings"]


@pytest.mark.parametrize("method", ["lda", "shrunk", "fecam", "ranpac"])
def test__tune__settings_changed_after_the_fit__equal_a_new_fit(method: str) -> None:
    spec, stream = METHODS[method], EXPERIMENTS["pancan"](None, 0, True)
    order = runner.Order("pancan", method, 0, None, quick=True)
    last = spec.settings("pancan")[-1]
    changed = runner.learn(runner.build(spec, order, spec.settings("pancan")[0]), stream)
    changed.predict_proba(stream.tests[0].x)
    changed.change(**{name: last[name] for name in changed.after_fit})
    fresh = runner.learn(runner.build(spec, order, last), stream)
    x = stream.tests[0].x
    np.testing.assert_allclose(changed.predict_proba(x), fresh.predict_proba(x), atol=1e-6)


def test__order__command__repeats_the_run() -> None:
    order = runner.Order("mnist", "ewc", 3, Path("DIR"), device="cuda")
    asked = parser().parse_args(order.command.split()[3:])
    assert orders(asked) == [order]


def test__jobs__one_row_fails__the_others_are_written_and_only_it_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["ici", "--quick", "--methods", "ncm,lda", "--results", str(tmp_path), "--missing"]
    (tmp_path / "ici").mkdir()
    blocked = tmp_path / "ici" / "lda-seed0.json"
    blocked.mkdir()  # a folder in the place of the file: writing this row fails
    assert main([*asked, "--jobs", "2"]) == 1
    out, err = capfd.readouterr()
    assert "error: ici lda seed 0: IsADirectoryError" in err
    assert (tmp_path / "ici" / "ncm-seed0.json").is_file()
    counts = [line.split()[2:5] for line in out.splitlines()[-2:]]
    assert counts == [["0", "1", "0"], ["1", "0", "0"]]
    written = (tmp_path / "errors.txt").read_text()
    assert "lda seed 0: IsADirectoryError" in written
    assert "Traceback" in written
    blocked.rmdir()
    assert main(asked) == 0
    out = capfd.readouterr().out
    assert "lda seed 0: error_task_known" in out
    assert "ncm" not in out
    assert "2 runs at a time" in (tmp_path / "ici" / "ncm-seed0.json").read_text()


def test__seconds__over__ends_what_runs_and_says_what_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["mnist", "--methods", "ncm,boo-vae", "--seeds", "0", "--results", str(tmp_path)]
    assert main([*asked, "--seconds", "1"]) == 0
    assert "mnist boo-vae seed 0: no time left" in capfd.readouterr().out
    assert not (tmp_path / "mnist" / "boo-vae-seed0.json").exists()


def test__worker__killed__the_other_runs_go_on(tmp_path: Path) -> None:
    found = [runner.Order("ici", method, 0, None, True) for method in ("ncm", "lda", "fecam")]
    outcomes = []
    for outcome in bulk.run_all(found, 2, tmp_path):
        outcomes.append(outcome)
        for process in multiprocessing.active_children()[:1] if len(outcomes) == 1 else []:
            os.kill(process.pid or 0, signal.SIGKILL)
    assert len(outcomes) == 3
    assert sum("killed" in outcome.error for outcome in outcomes) <= 1
    assert sum(outcome.figure is not None for outcome in outcomes) >= 2


@pytest.mark.filterwarnings("ignore::clbruno.errors.SmallClassWarning")
@pytest.mark.parametrize("recipe", ["default", "paper"])
def test__ours__same_stream__equals_the_estimator(recipe: str) -> None:
    stream = EXPERIMENTS["ici"](None, 0, True)
    bare = Ours(recipe, seed=3, **QUICK)
    skin = CLBrunoClassifier(recipe, device="cpu", random_state=3, **QUICK)
    for step in stream.steps[:2]:
        bare.partial_fit(step.x, step.y, step.task)
        skin.partial_fit(step.x, step.y, task=step.task)
    x, task = stream.tests[0].x, stream.tests[0].task
    assert bare.classes_.tolist() == skin.classes_.tolist()
    assert bare.predict(x, task).tolist() == skin.predict(x, task).tolist()
    for found, expected in (
        (bare.predict_proba(x), skin.predict_proba(x)),
        (bare.predict_proba(x, task), skin.predict_proba(x, task)),
        (bare.predict_task_proba(x), skin.predict_task_proba(x)),
        (bare.score_samples(x), skin.score_samples(x)),
        (bare.typicality(x), skin.typicality(x)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("option", [["outliers"], ["mnist", "--jobs", "0"]])
def test__command__unknown_name_or_no_jobs__exits_with_2(option: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(option)
    assert stop.value.code == 2


def test__seeds_of__ranges_and_lists__are_read() -> None:
    assert seeds_of("0-2,5") == [0, 1, 2, 5]


@pytest.mark.parametrize("wrong", ["x", "1-b", "-3"])
def test__command__wrong_seeds__exits_with_2(wrong: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["mnist", f"--seeds={wrong}"])
    assert stop.value.code == 2


def test__command__no_data_file__says_which_and_returns_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["mnist", "--data", str(tmp_path), "--methods", "lda"]
    assert main([*asked, "--results", str(tmp_path)]) == 2
    assert "mnist.npz" in capsys.readouterr().err


def test__orders__methods_without_chance_on_fixed_data__run_once() -> None:
    asked = parser().parse_args(["cifar100", "--methods", "lda,ranpac", "--seeds", "0-2"])
    found = [(order.method, order.seed) for order in orders(asked)]
    assert found == [("lda", 0), ("ranpac", 0), ("ranpac", 1), ("ranpac", 2)]


def test__orders__several_seeds__new_splits_come_before_new_starts() -> None:
    asked = parser().parse_args(["mnist,ici", "--methods", "ewc,si", "--seeds", "0-1"])
    found = [(order.experiment, order.method, order.seed) for order in orders(asked)]
    first = [("mnist", "ewc", 0), ("ici", "ewc", 0), ("mnist", "si", 0), ("ici", "si", 0)]
    assert found[:4] == first
    assert found[4:6] == [("ici", "ewc", 1), ("ici", "si", 1)]
    assert found[6:] == [("mnist", "ewc", 1), ("mnist", "si", 1)]


def test__meter__allocation__is_seen_where_the_system_tells() -> None:
    with machine.Meter("cpu") as meter:
        np.ones(30_000_000).sum()
    assert meter.seconds > 0
    if meter.peak_mib is not None:
        assert 200 < meter.peak_mib < 400


def test__count_numbers__nested__adds_up() -> None:
    assert count_numbers({"a": np.zeros((2, 3)), "b": [np.zeros(4), "x"]}) == 10
