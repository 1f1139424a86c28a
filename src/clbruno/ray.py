"""Answers on Ray Data (extra `ray`); `examples/on_ray.py` shows them, and learning on Ray Train."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clbruno.answers import COLUMNS, answers
from clbruno.data.table import Table, match_features
from clbruno.errors import InputError
from clbruno.persist import load


class Predictor:
    """What `clbruno predict` answers, for batches of columns; the file is read once per worker.

        ray.data.read_parquet("new/").map_batches(
            Predictor,
            fn_constructor_args=["tumours.clb"],
            compute=ray.data.ActorPoolStrategy(size=2),
            num_cpus=0.5,
        )

    With a whole core for every worker, a cluster of so many cores has none left to read files.

    Args:
        path: the model file, where every worker can read it.
        task: the task of all rows, if it is known.
        keep: columns that are no features and are copied to the answers, such as an id.
        ignore: columns that are no features and are left out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        task: Any = None,
        keep: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
    ) -> None:
        clash = sorted(set(keep) & set(COLUMNS))
        if clash:
            raise InputError(f"a column to keep cannot be called {clash[0]!r}: the answers have it")
        torch.set_num_threads(1)  # Ray counts on one worker for one core
        self._model = load(path)
        self._task, self._keep, self._ignore = task, tuple(keep), tuple(ignore)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The kept columns and the answers, row by row.

        Raises:
            InputError: a feature is missing, or a column is none that was learned from.
        """
        absent = [name for name in (*self._keep, *self._ignore) if name not in batch]
        if absent:
            raise InputError(f"there is no column {absent[0]!r}; the batch has {list(batch)[:5]}")
        names = tuple(name for name in batch if name not in {*self._keep, *self._ignore})
        x = np.column_stack([np.asarray(batch[name]) for name in names])
        known = getattr(self._model, "feature_names_in_", None)
        features = match_features(
            Table(x, names),
            None if known is None else tuple(known),
            self._model.n_features_in_,
            "the model",
        )
        kept = {name: np.asarray(batch[name]) for name in self._keep}
        return {**kept, **answers(self._model, features, self._task)}
