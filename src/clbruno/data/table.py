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


@dataclass(frozen=True)
class Table:
    """Checked features: finite numbers, rows by columns, with the columns' names if they have any.

    Attributes:
        x: the numbers, in the type they came in; a memory map stays one.
        names: names of the columns, or None.
    """

    x: NDArray[Any]
    names: tuple[str, ...] | None


def read_table(x: Any, owner: str) -> Table:
    """Check an array, a data frame or an AnnData and take it in without changing it.

    Raises:
        InputError: not two-dimensional, not numeric, empty, not finite, or duplicate names.
    """
    if _is_anndata(x):
        names: tuple[str, ...] | None = tuple(str(name) for name in x.var_names)
        x = x.X.toarray() if hasattr(x.X, "toarray") else x.X
    else:
        try:
            found = _get_feature_names(x)
        except TypeError as error:
            raise InputError(f"{error}") from None
        names = None if found is None else tuple(str(name) for name in found)
    if names is not None and len(set(names)) < len(names):
        twice = [name for name, times in Counter(names).items() if times > 1]
        raise InputError(f"feature names stand twice: {_list(twice)}. Give each column its own")
    try:
        values = check_array(x, dtype="numeric", estimator=owner, input_name="X")
    except TypeError as error:
        raise InputTypeError(str(error)) from None
    except ValueError as error:
        raise InputError(str(error)) from None
    if values.dtype.kind not in "fiub":
        raise InputError(f"X must hold real numbers, got an array of {values.dtype}")
    return Table(values, names)


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
            parts = [f"missing: {_list(missing)}"] if missing else []
            parts += [f"not learned from: {_list(extra)}"] if extra else []
            raise InputError(
                f"the features do not match the {len(names)} that were learned; "
                f"{'; '.join(parts)}. Select and name the columns as in the first batch"
            )
        if table.names != names:
            place = {name: at for at, name in enumerate(table.names)}
            return table.x[:, [place[name] for name in names]]
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
    try:
        column = column_or_1d(y, warn=True)
        _same_length(column, rows, "y")
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise InputError("y contains NaN or infinity; give every row a label")
        check_classification_targets(column)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return _names(column, "y")


def read_tasks(task: Any, rows: int) -> list[Any]:
    """The task of every row, from one name or one per row."""
    if isinstance(task, str) or np.ndim(task) == 0:
        return _names(np.array([task]), "task") * rows
    column = np.asarray(task)
    if column.ndim != 1:
        raise InputError(f"task must be one name or one per row, got shape {column.shape}")
    _same_length(column, rows, "task")
    return _names(column, "task")


def kind_of(name: Any) -> str:
    """What kind of name this is, in words."""
    kinds = {bool: "true/false", int: "whole numbers", float: "numbers", str: "texts"}
    return kinds.get(type(name), type(name).__name__)


def _names(column: NDArray[Any], what: str) -> list[Any]:
    names: list[Any] = column.tolist()
    kinds = {type(name) for name in names}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"{what} must hold names of one kind, all texts or all whole numbers, got {shown}. "
            "Missing values are no names: leave such rows out"
        )
    return names


def _same_length(column: NDArray[Any], rows: int, what: str) -> None:
    if len(column) != rows:
        raise InputError(
            f"Found input variables with inconsistent numbers of samples: X has {rows} rows, "
            f"{what} has {len(column)}"
        )


def _list(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _is_anndata(x: Any) -> bool:
    return type(x).__name__ == "AnnData" and hasattr(x, "obs") and hasattr(x, "var_names")
