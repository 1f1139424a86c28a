"""Held-out classes and tasks as outliers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import outliers
from benchmarks.__main__ import main
from benchmarks.experiments import EXPERIMENTS
from benchmarks.rivals.shrunk import ShrunkCovariances
from benchmarks.rivals.vae import ClassVAEs
from benchmarks.stream import Stream


def test__held_out__class_or_task__is_gone_from_learning_and_tests() -> None:
    stream = EXPERIMENTS["mnist"](None, 0, True)
    cases = outliers.held_out(stream)
    assert [name for name, _, _ in cases] == [str(digit) for digit in range(10)]
    name, rest, strange = cases[3]
    assert all(int(name) not in part.y for part in rest.steps + rest.tests)
    assert len(strange) == sum((test.y == 3).sum() for test in stream.tests)
    ici = EXPERIMENTS["ici"](None, 0, True)
    assert [name for name, _, _ in outliers.held_out(ici)] == list(ici.tasks)
    assert "Nivo" not in outliers.held_out(ici)[2][1].tasks


def learned(stream: Stream) -> outliers.Learned:
    return outliers.Learned.of(lambda: ShrunkCovariances(10.0), stream, 0)


def test__one__far_outliers__are_all_found_at_few_false_alarms() -> None:
    _, rest, strange = outliers.held_out(EXPERIMENTS["pancan"](None, 0, False))[31]
    found = outliers.one(learned(rest), rest, strange + 50)
    assert found["auroc"] == 1.0
    assert found["outliers_found"] == 1.0
    assert found["false_alarms"] < 0.2


def test__one__rows_like_the_known__are_no_outliers() -> None:
    _, rest, _ = outliers.held_out(EXPERIMENTS["pancan"](None, 0, False))[0]
    rows = np.concatenate([test.x for test in rest.tests])
    found = outliers.one(learned(rest), rest, rows)
    assert found["auroc"] == pytest.approx(0.5)
    assert found["outliers_found"] == found["false_alarms"]


@pytest.mark.filterwarnings("ignore::clbruno.errors.SmallClassWarning")
def test__quick__outliers__both_kinds_of_threshold_run(tmp_path: Path) -> None:
    asked = ["outliers-ici", "--quick", "--methods", "shrunk,clbruno,lda"]
    assert main([*asked, "--results", str(tmp_path)]) == 0
    names = sorted(path.name for path in tmp_path.glob("*/*.json"))
    assert names == ["clbruno-seed0.json", "shrunk-seed0.json"]


def test__without__one_class__scores_as_if_it_had_never_come() -> None:
    stream = EXPERIMENTS["mnist"](None, 0, True)
    settings = {"hidden": 16, "latent": 2, "epochs": 2, "samples": 4}
    whole = outliers.Learned.of(lambda: ClassVAEs(**settings), stream, 0)
    _, rest, strange = outliers.held_out(stream)[9]  # the last, so that no other seed changes
    alone = ClassVAEs(**settings)
    for step in rest.steps:
        alone.partial_fit(step.x, step.y, step.task)
    less = whole.without(9)
    assert less.model.classes_.tolist() == list(range(9))
    assert all(9 not in test.y for test in less.held)
    np.testing.assert_allclose(less.model.score_samples(strange), alone.score_samples(strange))
    assert whole.model.classes_.tolist() == list(range(10))
