"""The gate of tables and names: what passes keeps its numbers and kind, what fails says why."""

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from clbruno.data.table import (
    LARGEST,
    Table,
    kind_of,
    match_features,
    read_labels,
    read_name,
    read_table,
    read_tasks,
)
from clbruno.errors import InputError

X = np.arange(12.0).reshape(4, 3)


def test__read_table__array__is_not_copied() -> None:
    assert np.shares_memory(read_table(X, "it").x, X)
    assert read_table(X, "it").names is None


def test__read_table__memory_map__is_not_copied(tmp_path: Path) -> None:
    kept = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(4, 3))
    kept[:] = X

    assert np.shares_memory(read_table(kept, "it").x, kept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, bool])
def test__read_table__dtype__stays(dtype: type) -> None:
    assert read_table(X.astype(dtype), "it").x.dtype == dtype


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(X, columns=list("abc")), pl.DataFrame(X, schema=list("abc"))]
)
def test__read_table__frame__names_and_numbers(frame: Any) -> None:
    table = read_table(frame, "it")

    assert table.names == ("a", "b", "c")
    assert np.array_equal(table.x, X)


@pytest.mark.parametrize("matrix", [X, sp.csr_matrix(X)])
def test__read_table__anndata__genes_are_the_names(matrix: Any) -> None:
    table = read_table(anndata.AnnData(matrix, var=pd.DataFrame(index=["g1", "g2", "g3"])), "it")

    assert table.names == ("g1", "g2", "g3")
    assert np.array_equal(table.x, X)


def test__read_table__anndata_with_a_gene_twice__input_error() -> None:
    with pytest.warns(UserWarning, match="not unique"):
        cells = anndata.AnnData(X, var=pd.DataFrame(index=["g1", "g1", "g3"]))

    with pytest.raises(InputError, match="stand twice: 'g1'"):
        read_table(cells, "it")


@pytest.mark.parametrize("sign", [1, -1])
def test__read_table__largest_value__is_the_limit(sign: int) -> None:
    x = X.copy()
    x[2, 1] = sign * LARGEST
    assert read_table(x, "it").x[2, 1] == sign * LARGEST

    x[2, 1] = sign * 1.01 * LARGEST
    with pytest.raises(InputError, match=r"size 1\.01e\+150, too large"):
        read_table(x, "it")


def named(*names: str) -> Table:
    return Table(X[:, : len(names)], names)


def test__match_features__reordered__put_in_order() -> None:
    found = match_features(named("c", "a", "b"), ("a", "b", "c"), 3, "it")

    assert np.array_equal(found, X[:, [1, 2, 0]])


def test__match_features__in_order__not_copied() -> None:
    assert match_features(named("a", "b", "c"), ("a", "b", "c"), 3, "it") is not None
    assert np.shares_memory(match_features(named("a", "b", "c"), ("a", "b", "c"), 3, "it"), X)


@pytest.mark.parametrize("names", [None, ("a", "b", "c")])
def test__match_features__names_on_one_side_only__by_position(names: Any) -> None:
    table = Table(X, None if names else ("x", "y", "z"))

    assert match_features(table, names, 3, "it") is table.x
    with pytest.raises(InputError, match="X has 3 features, but it is expecting 5"):
        match_features(table, names, 5, "it")


def test__match_features__six_missing_and_one_extra__lists_five_and_counts_the_rest() -> None:
    learned = tuple("abcdefgh")

    with pytest.raises(InputError) as caught:
        match_features(named("a", "b", "z"), learned, 8, "it")

    assert "missing: 'c', 'd', 'e', 'f', 'g' and 1 more; not learned from: 'z'" in str(caught.value)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["b", "a", "b", "a"], str),
        (np.array(["b", "a", "b", "a"], dtype=object), str),
        (pd.Series([2, 1, 2, 1], dtype="Int64"), int),
        (pd.Series([True, False] * 2, dtype="boolean"), bool),
        (pl.Series([2, 1, 2, 1]), int),
        (np.array([2, 1, 2, 1], dtype=np.int8), int),
        (np.array([2, 1, 2, 1], dtype=object), int),
        ([np.int64(2), 1, 2, 1], int),
        ([2.0, 1.0, 2.0, 1.0], float),
        ([True, False, True, False], bool),
    ],
)
def test__read_labels__any_container__plain_values_of_the_same_kind(y: Any, kind: type) -> None:
    names = read_labels(y, 4)

    assert {type(name) for name in names} == {kind}
    assert names == [name.item() if hasattr(name, "item") else name for name in y]


def test__read_labels__many_classes_in_few_rows__no_warning() -> None:
    assert read_labels(np.arange(40), 40) == list(range(40))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("A", ["A"] * 3),
        (np.str_("A"), ["A"] * 3),
        (np.array("A"), ["A"] * 3),
        (7, [7] * 3),
        (np.int64(7), [7] * 3),
        (["A", "B", "A"], ["A", "B", "A"]),
        (pd.Series(["A", "B", "A"]), ["A", "B", "A"]),
        (np.array([1, 2, 1]), [1, 2, 1]),
    ],
)
def test__read_tasks__one_or_one_per_row__plain_names(task: Any, expected: list[Any]) -> None:
    found = read_tasks(task, 3)

    assert found == expected
    assert {type(name) for name in found} <= {str, int}


@pytest.mark.parametrize("name", [None, ["A"], object(), b"A", np.nan, 1j, 2**63, pd.NA])
def test__read_name__no_name__input_error(name: Any) -> None:
    with pytest.raises(InputError, match=r"label (must hold names|contains NaN|holds a whole)"):
        read_name(name, "label")


@pytest.mark.parametrize(
    ("name", "words"),
    [("a", "texts"), (1, "whole numbers"), (1.5, "numbers"), (True, "true/false"), (b"", "bytes")],
)
def test__kind_of__in_words(name: Any, words: str) -> None:
    assert kind_of(name) == words
