"""All answers about some rows, as the columns of one table: on the command line and on Ray."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clbruno.estimator import CLBrunoClassifier

COLUMNS = ("label", "probability", "task", "task_probability", "typicality")


def answers(model: CLBrunoClassifier, x: Any, task: Any = None) -> dict[str, NDArray[Any]]:
    """The most probable label and task of each row, how sure, and how typical the row is.

    Args:
        model: a taught estimator.
        x: rows by features.
        task: the task of all rows, if it is known.
    """
    label = model.predict_proba(x, task)
    tasks = model.predict_task_proba(x)
    best = tasks.argmax(axis=1)
    if task is not None:
        best = np.full(len(label), model.model_.registry.task_index(task))
    found = (
        model.classes_[label.argmax(axis=1)],
        label.max(axis=1),
        model.tasks_[best],
        tasks[np.arange(len(tasks)), best],
        model.typicality(x, task),
    )
    return dict(zip(COLUMNS, found, strict=True))
