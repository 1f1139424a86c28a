"""The one gate through which every table of features and every column of names comes in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names

from clbruno.errors import InputError, InputTypeError

SHOWN = 5
"""How many names an error lists."""

LARGEST = 1e150
"""Values beyond it have squares that no float64 can hold."""


@dataclass(frozen=True)
class Table:
    """Checked features: finite numbers, rows by columns, with the columns' names if they have any.

    Attributes:
        x: the numbers, in the type they came in; a memory map stays one.
        names: names of the columns, or None.
    """

    x: NDArray[Any]
    names: tuple[str, ...] | None


def read_table(x: Any, owner: str, *, missing: bool = False, may_be_empty: bool = False) -> Table:
    """Check an array, a data frame or an AnnData and take it in without changing it.

    With `missing`, NaN may stand for a value that is not there.

    Raises:
        InputError: not two-dimensional, not numeric, empty, not finite, or duplicate names.
    """
    if np.ma.is_masked(x):
        raise InputError("X has masked entries, which are missing values; fill them in first")
    if _is_anndata(x):
        names: tuple[str, ...] | None = tuple(str(name) for name in x.var_names)
        x = x.X.toarray() if hasattr(x.X, "toarray") else x.X
    else:
        if hasattr(x, "iloc"):  # only pandas lets a name stand twice
            _refuse_twice(getattr(x, "columns", ()))
        try:
            found = _get_feature_names(x)
        except TypeError as error:
            raise InputError(f"{error}") from None
        names = None if found is None else tuple(str(name) for name in found)
    _refuse_twice(names or ())
    try:
        finite = "allow-nan" if missing else True
        values = check_array(
            x,
            dtype="numeric",
            estimator=owner,
            input_name="X",
            ensure_all_finite=finite,
            ensure_min_samples=0 if may_be_empty else 1,
        )
    except TypeError as error:
        raise InputTypeError(str(error)) from None
    except (ValueError, RuntimeError) as error:
        raise InputError(str(error)) from None
    if values.dtype.kind not in "fiub":
        raise InputError(f"X must hold real numbers, got an array of {values.dtype}")
    if values.dtype.kind == "f" and values.dtype.itemsize >= 8 and values.size:
        largest = max(np.fmax.reduce(values, axis=None), -np.fmin.reduce(values, axis=None))
        if largest > LARGEST:
            raise InputError(
                f"X holds a value of size {largest:.3g}, too large to compute with (over "
                f"{LARGEST:g}); change the unit, or mend the row"
            )
    return Table(values, names)


def with_missing(table: Table, names: tuple[str, ...] | None) -> Table:
    """The table with the features that it should have and no others, NaN where it has none."""
    if names is None or table.names is None:
        return table
    place = {name: at for at, name in enumerate(table.names)}
    x = np.full((len(table.x), len(names)), np.nan)
    for at, name in enumerate(names):
        if name in place:
            x[:, at] = table.x[:, place[name]]
    return Table(x, names)


def match_features(
    table: Table, names: tuple[str, ...] | None, width: int, owner: str
) -> NDArray[Any]:
    """The columns in the order that was learned, or an error that lists what does not fit.

    Columns are matched by name where both sides have names, else by position.
    """
    if names is not None and table.names is not None:
        missing = [name for name in names if name not in set(table.names)]
        extra = [name for name in table.names if name not in set(names)]
        if missing or extra:
            parts = [f"missing: {first_names(missing)}"] if missing else []
            parts += [f"not learned from: {first_names(extra)}"] if extra else []
            raise InputError(
                f"the features do not match the {len(names)} that were learned; "
                f"{'; '.join(parts)}. Select and name the columns as in the first batch"
            )
        if table.names != names:
            place = {name: at for at, name in enumerate(table.names)}
            # In rows again, as it came: the order in memory changes the last bits of a sum.
            return np.ascontiguousarray(table.x[:, [place[name] for name in names]])
    elif table.x.shape[1] != width:
        raise InputError(
            f"X has {table.x.shape[1]} features, but {owner} is expecting {width} features as input"
        )
    return table.x


def read_labels(y: Any, rows: int) -> list[Any]:
    """Class names of the rows, as plain Python values of one kind.

    Raises:
        InputError: missing, of another length, continuous, or of mixed kinds.
    """
    if y is None:
        raise InputError(
            "requires y to be passed, but the target y is None. Give one label per row"
        )
    if rows == 0 and len(y) == 0:
        return []
    try:
        column = column_or_1d(_plain(y, "y"), warn=True)
        _same_length(column, rows, "y")
        if column.dtype.kind == "f":
            if not np.isfinite(column).all():
                raise InputError("y contains NaN or infinity; give every row a label")
            check_classification_targets(column)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return _names(column.tolist(), "y")


def read_tasks(task: Any, rows: int) -> list[Any]:
    """The task of every row, from one name or one per row."""
    if isinstance(task, str) or np.ndim(task) == 0:
        return [read_name(task, "task")] * rows
    column = np.asarray(_plain(task, "task"))
    if column.ndim != 1:
        raise InputError(f"task must be one name or one per row, got shape {column.shape}")
    _same_length(column, rows, "task")
    return _names(column.tolist(), "task")


def read_name(name: Any, what: str) -> Any:
    """One name of a task or of a label, as a plain Python value."""
    value = name.item() if isinstance(name, np.generic | np.ndarray) and name.size == 1 else name
    return _names([value], what)[0]


def kind_of(name: Any) -> str:
    """What kind of name this is, in words."""
    kinds = {bool: "true/false", int: "whole numbers", float: "numbers", str: "texts"}
    return kinds.get(type(name), type(name).__name__)


def _plain(values: Any, what: str) -> Any:
    """Names as an array that has not turned one kind into another, as numpy does with lists."""
    if np.ma.is_masked(values):
        raise InputError(f"{what} has masked entries; missing values are no names")
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    elif isinstance(values, list | tuple):
        values = np.array(values, dtype=object)
    if isinstance(values, np.ndarray) and values.dtype == object and values.size:
        items = [name.item() if isinstance(name, np.generic) else name for name in values.flat]
        return np.array(_names(items, what)).reshape(values.shape)
    return values


def _names(names: list[Any], what: str) -> list[Any]:
    kinds = {type(name) for name in names}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"{what} must hold names of one kind, all texts or all whole numbers, got {shown}. "
            "Missing values are no names: leave such rows out"
        )
    if kinds == {int} and not -(2**63) <= min(names) <= max(names) < 2**63:
        raise InputError(f"{what} holds a whole number beyond 64 bits; use a text as its name")
    if kinds == {float} and not np.isfinite(names).all():
        raise InputError(f"{what} contains NaN or infinity; missing values are no names")
    return names


def _refuse_twice(names: Sequence[Any]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(
            f"feature names stand twice: {first_names(twice)}. Give each column its own"
        )


def _same_length(column: NDArray[Any], rows: int, what: str) -> None:
    if len(column) != rows:
        raise InputError(
            f"Found input variables with inconsistent numbers of samples: X has {rows} rows, "
            f"{what} has {len(column)}"
        )


def first_names(names: Sequence[Any]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _is_anndata(x: Any) -> bool:
    return type(x).__name__ == "AnnData" and hasattr(x, "obs") and hasattr(x, "var_names")
