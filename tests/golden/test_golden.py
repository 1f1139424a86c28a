"""Files of every released protocol are read, and answer as they did when they were written."""

import json
from pathlib import Path

import numpy as np
import pytest

from clbruno import load
from clbruno.persist import verify
from clbruno.persist.container import PROTOCOL

FILES = sorted(Path(__file__).parent.glob("*.clb"))


def test__golden__every_protocol_up_to_now__has_files() -> None:
    kept = {int(path.name.split("-")[1]) for path in FILES}
    assert kept == set(range(1, PROTOCOL + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test__load__golden_file__answers_as_it_did(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model, rows = load(path), np.array(expected["rows"])
    verify(path)
    assert model.classes_.tolist() == expected["classes"]
    assert model.tasks_.tolist() == expected["tasks"]
    assert model.class_count_.tolist() == expected["counts"]
    assert model.n_updates_ == 2
    for name in ("predict_proba", "predict_task_proba", "score_samples"):
        np.testing.assert_allclose(
            getattr(model, name)(rows), expected[name], rtol=1e-8, atol=1e-10
        )
    # A p-value counts generated samples: another machine's last bit may move one of a thousand.
    np.testing.assert_allclose(model.typicality(rows), expected["typicality"], atol=0.0025)
