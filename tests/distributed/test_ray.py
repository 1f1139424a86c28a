"""The worker of Ray Data without a cluster; `test_readme.py` runs it on one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clbruno import CLBrunoClassifier, InputError, save
from clbruno.answers import answers
from clbruno.ray import Predictor
from tests.distributed.scenarios import cohort


@pytest.fixture
def model(tmp_path: Path) -> tuple[CLBrunoClassifier, str]:
    import pandas as pd

    x, y = cohort(3, 90, 3)
    model = CLBrunoClassifier(random_state=0)
    model.partial_fit(pd.DataFrame(x, columns=["a", "b", "c"]), y, task="A")
    model.partial_fit(pd.DataFrame(x + 1, columns=["a", "b", "c"]), y, task="B")
    save(model, tmp_path / "m.clb")
    return model, str(tmp_path / "m.clb")


def batch(x: Any) -> dict[str, Any]:
    """The columns as Ray hands them over, in another order and with two that are no features."""
    ids = np.array([f"p{at}" for at in range(len(x))])
    return {"c": x[:, 2], "id": ids, "a": x[:, 0], "b": x[:, 1], "ward": ids}


@pytest.mark.parametrize("task", [None, "B"])
def test__predictor__columns_in_any_order__the_answers_of_the_model(model: Any, task: Any) -> None:
    x, _ = cohort(3, 20, 3, seed=5)
    predictor = Predictor(model[1], task=task, keep=("id",), ignore=("ward",))

    found = predictor(batch(x))

    expected = answers(model[0], x, task)
    assert list(found) == ["id", *expected]
    assert found["id"].tolist() == [f"p{at}" for at in range(20)]
    for name, column in expected.items():
        assert found[name].tolist() == column.tolist(), name


def test__predictor__wrong_columns__input_error(model: Any) -> None:
    x, _ = cohort(3, 5, 3)
    whole = batch(x)

    with pytest.raises(InputError, match="not learned from: 'ward'"):
        Predictor(model[1], keep=("id",))(whole)
    with pytest.raises(InputError, match="missing: 'b'"):
        Predictor(model[1])({name: whole[name] for name in "ac"})
    with pytest.raises(InputError, match="no column 'name'"):
        Predictor(model[1], keep=("name",))(whole)
    with pytest.raises(InputError, match="cannot be called 'label'"):
        Predictor(model[1], keep=("label",))
    with pytest.raises(InputError, match="NaN"):
        Predictor(model[1])({name: whole[name] * np.nan for name in "abc"})
