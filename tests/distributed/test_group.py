"""Several ranks learn as one process does: the same gradients, statistics, decisions, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clbruno.learn.distributed import ALONE, Group
from tests.distributed import scenarios
from tests.distributed.scenarios import RECIPES

STATISTICS = ("count", "mean", "scatter", "center", "scale")


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("n", "dim"), [(40, 3), (12, 9)])
def test__nll__rows_on_several_ranks__value_and_gradient_of_one(
    ranks: Any, size: int, n: int, dim: int
) -> None:
    value, gradient = scenarios.sequence(n, dim)

    for found, of_rank in ranks(size, "sequence", n, dim):
        assert found == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(of_rank, gradient, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["couplings", "whitened", "paper", "student-t"])
def test__losses__unequal_and_empty_shards__the_gradients_of_one_process(
    ranks: Any, name: str
) -> None:
    expected = scenarios.gradients(RECIPES[name], 3)

    assert len(expected) == 3
    assert np.abs(expected[0]).max() > 1e-3
    for size in (2, 4):
        for found in ranks(size, "gradients", RECIPES[name], 3):
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


def test__gradients_of_shards_averaged__are_wrong() -> None:
    """Why the statistics are added up and not the gradients of each rank's own likelihood."""
    import torch

    from clbruno.core.latent import ExchangeableGaussian

    rho = torch.full((4,), 2.0, dtype=torch.float64)
    law = ExchangeableGaussian.prior(rho + 0.5, rho)
    x = 1 + torch.randn((40, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradient(part: Any) -> Any:
        shift = torch.zeros(4, dtype=torch.float64, requires_grad=True)
        law.nll_of(part + shift).backward()
        return shift.grad

    whole = gradient(x)
    parts = sum(gradient(part) for part in x.split(10))

    assert float((parts - whole).norm() / whole.norm()) > 0.5


def test__updates__closed_form__statistics_to_the_last_bit_for_any_number_of_ranks(
    ranks: Any,
) -> None:
    one = ranks(1, "learned", RECIPES["closed form"])[0]
    plain = scenarios.learned(RECIPES["closed form"])

    for size in (2, 3, 4):
        for found in ranks(size, "learned", RECIPES["closed form"]):
            for name in STATISTICS:
                assert np.asarray(found[name]).tobytes() == np.asarray(one[name]).tobytes(), name
    for name in (*STATISTICS, "curve", "proba", "density"):
        np.testing.assert_allclose(one[name], plain[name], rtol=1e-11, atol=1e-12)
    assert one["classes"] == plain["classes"]


@pytest.mark.parametrize("name", ["couplings", "paper"])
def test__updates__trained_flow__every_rank_holds_the_model_of_one_process(
    ranks: Any, name: str
) -> None:
    plain = scenarios.learned({**RECIPES[name], "max_epochs": 2})

    first, *others = ranks(3, "learned", {**RECIPES[name], "max_epochs": 2})

    for other in others:
        assert other.keys() == first.keys()
        for key, value in first.items():
            if key == "weights":
                assert [w.tobytes() for w in other[key]] == [w.tobytes() for w in value]
            elif isinstance(value, np.ndarray):
                assert other[key].tobytes() == value.tobytes(), key
            else:
                assert other[key] == value, key
    np.testing.assert_allclose(first["proba"], plain["proba"], atol=1e-4)
    np.testing.assert_allclose(first["density"], plain["density"], rtol=1e-3)
    assert [entry[4] for entry in first["log"]] == [entry[4] for entry in plain["log"]]


def test__updates__same_seed_twice__the_same_bits(ranks: Any) -> None:
    one, two = (ranks(2, "learned", RECIPES["paper"])[0] for _ in range(2))

    for name in (*STATISTICS, "proba", "density"):
        assert np.asarray(one[name]).tobytes() == np.asarray(two[name]).tobytes(), name


@pytest.mark.parametrize("size", [2, 4])
def test__partial_fit__folder_of_three_files__is_shared(
    ranks: Any, tmp_path: Path, size: int
) -> None:
    x, y = scenarios.cohort(3, 90, 4)
    (tmp_path / "cohort").mkdir()
    for at in range(3):
        rows = slice(30 * at, 30 * at + 30)
        columns = {f"g{d}": x[rows, d] for d in np.roll(np.arange(4), at)}
        pq.write_table(
            pa.table({**columns, "diagnosis": y[rows]}), tmp_path / "cohort" / f"{at}.parquet"
        )

    answers = ranks(size, "folder", str(tmp_path / "cohort"), {"couplings": 0})

    means = [x[y == f"class {at}"].mean(0) for at in range(3)]
    for found in answers:
        assert found["updates"] == 1
        assert found["count"] == [int((y == f"class {at}").sum()) for at in range(3)]
        np.testing.assert_allclose(found["raw mean"], means, rtol=1e-10, atol=1e-12)
        assert found["file order"] == answers[0]["file order"]
        assert found["proba"].tobytes() == answers[0]["proba"].tobytes()


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("settings", "settings: rank 1 of the process group has"),
        ("features", "other features than each other"),
        ("labels", "labels of several kinds: int, str"),
        ("empty", "no rank has a row"),
    ],
)
def test__partial_fit__ranks_that_do_not_fit__are_all_told(
    ranks: Any, which: str, message: str
) -> None:
    for told in ranks(2, "refused", which):
        assert message in told


@pytest.mark.parametrize("moment", [0, 7, 60])
def test__partial_fit__a_rank_is_killed__the_other_ends_with_an_error(
    ranks: Any, moment: int
) -> None:
    told, dead = ranks(2, "left_alone", moment, seconds=60)

    assert dead is None
    assert told.startswith("TrainingError: another process of the group has ended")
    assert "unchanged" in told


def test__alone__every_method__is_the_identity() -> None:
    import torch

    x = torch.ones(3, 2)

    assert Group.current() == ALONE
    assert ALONE.sum(x) is x
    assert ALONE.rows(x) is x
    assert ALONE.spread(x.numpy()).shape == (3, 2)
    assert ALONE.gathered({"a": 1}) == [{"a": 1}]
    assert ALONE.share(7) == slice(0, 7)
    assert list(ALONE.in_step([1, 2])) == [1, 2]
