"""AnnData in and out: learn from an `obs` column, write the answers back (extra `anndata`)."""

from typing import Any

import numpy as np

from clbruno.errors import InputError
from clbruno.estimator import CLBrunoClassifier


def learn(
    model: CLBrunoClassifier, data: Any, *, label: str, task: str | None = None
) -> CLBrunoClassifier:
    """Learn one AnnData object with `partial_fit`.

    Args:
        model: the estimator, new or already taught.
        data: the AnnData object; features are matched by `var_names`.
        label: the column of `obs` that holds the labels.
        task: the column of `obs` that holds the tasks (site, batch, therapy), if any.
    """
    labels = _column(data, label)
    return (
        model.partial_fit(data, labels)
        if task is None
        else model.partial_fit(data, labels, task=_column(data, task))
    )


def annotate(model: CLBrunoClassifier, data: Any, *, key: str = "clbruno") -> None:
    """Write the answers for every observation into `data`.

    `obs[key_label]`, `obs[key_probability]`, `obs[key_task]`, `obs[key_task_probability]`,
    `obs[key_typicality]`, and `obsm[key_proba]` with one column per class of `model.classes_`.

    Args:
        model: a taught estimator.
        data: the AnnData object, changed in place.
        key: what every name starts with.
    """
    labels, tasks = model.predict_proba(data), model.predict_task_proba(data)
    typicality = model.typicality(data)  # nothing is written before everything is known
    data.obs[f"{key}_label"] = model.classes_[labels.argmax(1)]
    data.obs[f"{key}_probability"] = labels.max(1)
    data.obs[f"{key}_task"] = model.tasks_[tasks.argmax(1)]
    data.obs[f"{key}_task_probability"] = tasks.max(1)
    data.obs[f"{key}_typicality"] = typicality
    data.obsm[f"{key}_proba"] = labels


def _column(data: Any, name: str) -> Any:
    if name not in data.obs.columns:
        known = ", ".join(map(repr, list(data.obs.columns)[:5])) or "none at all"
        raise InputError(f"obs has no column {name!r}; it has {known}")
    return np.asarray(data.obs[name])
