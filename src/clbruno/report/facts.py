"""What a model knows and what a table showed of it, as plain rows for the templates."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from clbruno.config import RECIPES
from clbruno.estimator import CLBrunoClassifier
from clbruno.history import UpdateRecord
from clbruno.report import measures
from clbruno.report.exam import UNKNOWN, Exam, Ints
from clbruno.report.style import printable

ALPHA = 0.05
"""Typicality at or under which a row counts as unlike what was learned."""

LISTED = 12
"""Rows that a list of rows shows."""


@dataclass(frozen=True)
class Group:
    """The classes of one task, with their counts."""

    task: str
    samples: int
    classes: list[dict[str, Any]]


@dataclass(frozen=True)
class Update:
    """One entry of the log in words."""

    number: int
    time: str
    learned: list[str]
    more: int
    rows: int
    accuracy: str
    ece: float | None
    seconds: float
    source: str
    small: int


def groups(model: CLBrunoClassifier) -> list[Group]:
    """The classes of every task, with their share of the largest count."""
    registry, least = model.model_.registry, model.model_.recipe.min_class_size
    most = max(registry.counts)
    found = []
    for at, task in enumerate(registry.tasks):
        classes: list[dict[str, Any]] = [
            {
                "label": printable(str(registry.labels[registry.cells[cell][1]])),
                "count": registry.counts[cell],
                "share": round(100 * registry.counts[cell] / most, 1),
                "small": registry.counts[cell] < least,
            }
            for cell in registry.cells_of_task(at)
        ]
        found.append(Group(printable(str(task)), sum(c["count"] for c in classes), classes))
    return found


def settings(model: CLBrunoClassifier) -> list[tuple[str, str, bool]]:
    """Every number of the recipe, and whether it differs from the recipe's own."""
    recipe = model.model_.recipe
    usual = RECIPES[recipe.name]
    return [
        (name, "inf" if value == math.inf else str(value), value != getattr(usual, name))
        for name, value in dataclasses.asdict(recipe).items()
        if name != "name"
    ]


def updates(model: CLBrunoClassifier) -> list[Update]:
    """The log, newest last."""
    return [_update(record) for record in model.model_.log]


def _update(record: UpdateRecord) -> Update:
    by_task: dict[str, list[str]] = {}
    for task, label, count in record.counts:
        by_task.setdefault(printable(str(task)), []).append(f"{printable(str(label))} ({count:,})")
    learned = [
        f"{task}: {', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"
        for task, names in by_task.items()
    ]
    before, after = record.before.get("accuracy"), record.after.get("accuracy")
    figures = "" if after is None else f"{after:.3f}"
    if before is not None and after is not None:
        figures = f"{before:.3f} before, {after:.3f} after"
    return Update(
        number=record.number,
        time=record.time.replace("T", " ").replace("Z", " UTC"),
        learned=learned[:4],
        more=max(0, len(learned) - 4),
        rows=sum(count for _, _, count in record.counts),
        accuracy=figures,
        ece=record.after.get("ece"),
        seconds=record.seconds,
        source=printable(record.source),
        small=len(record.small),
    )


def features(model: CLBrunoClassifier) -> list[str]:
    """Names of the features, made up where they have none."""
    width = model.n_features_in_
    names = getattr(model, "feature_names_in_", [f"feature {at + 1}" for at in range(width)])
    return [printable(str(name)) for name in names]


def classes(exam: Exam, scores: dict[int, float]) -> list[dict[str, Any]]:
    """Each label with rows: how often it was found, what it was taken for; the worst first."""
    counts = measures.confusion(exam)
    rows = []
    for at in np.flatnonzero(counts.sum(axis=1)).tolist():
        known = at < exam.known_labels
        total, right = int(counts[at].sum()), int(counts[at, at]) if known else 0
        wrong = counts[at].copy()
        if known:
            wrong[at] = 0
        answered = int(counts[:, at].sum()) if known else 0
        low, high = measures.wilson(np.array([right / total]), np.array([total]))
        rows.append(
            {
                "label": _name(exam.labels, at),
                "known": known,
                "rows": total,
                "found": right / total,
                "low": float(low[0]),
                "high": float(high[0]),
                "precision": right / answered if answered else None,
                "taken_for": _name(exam.labels, int(wrong.argmax())) if wrong.any() else "",
                "score": scores.get(at),
            }
        )
    return sorted(rows, key=lambda row: (row["found"], row["label"]))


def tasks(exam: Exam) -> list[dict[str, Any]]:
    """Each true task with rows: labels found with the task untold and told, and the task itself."""
    rows = []
    for at in range(len(exam.tasks)):
        here = exam.true_task == at
        told = here & exam.labelled
        known = at < exam.known_tasks
        if here.any():
            rows.append(
                {
                    "task": _name(exam.tasks, at),
                    "known": known,
                    "rows": int(here.sum()),
                    "found": _share(exam.right, told),
                    "found_in_task": _share(exam.label_in_task == exam.truth, told & known),
                    "told": _share(exam.task == at, here & known),
                }
            )
    return rows


def unsure(exam: Exam) -> list[dict[str, Any]]:
    """The rows of the lowest largest probability."""
    return _rows(exam, np.argsort(exam.probability, kind="stable")[:LISTED])


def atypical(exam: Exam) -> list[dict[str, Any]]:
    """The rows that are least typical of anything learned."""
    return _rows(exam, np.lexsort((exam.log_density, exam.typicality))[:LISTED])


def sure_and_wrong(exam: Exam) -> list[dict[str, Any]]:
    """The wrong rows of the highest largest probability."""
    wrong = np.flatnonzero(exam.labelled & ~exam.right)
    return _rows(exam, wrong[np.argsort(-exam.probability[wrong], kind="stable")][:LISTED])


def _rows(exam: Exam, order: Ints) -> list[dict[str, Any]]:
    return [
        {
            "name": printable(exam.names[at]),
            "label": _name(exam.labels, int(exam.label[at])),
            "probability": float(exam.probability[at]),
            "runner_up": _name(exam.labels, int(exam.runner_up[at])),
            "runner_up_probability": float(exam.runner_up_probability[at]),
            "truth": "" if exam.truth[at] == UNKNOWN else _name(exam.labels, int(exam.truth[at])),
            "typicality": float(exam.typicality[at]),
        }
        for at in order.tolist()
    ]


def _name(names: tuple[Any, ...], at: int) -> str:
    return printable(str(names[at]))


def _share(yes: np.ndarray[Any, Any], of: np.ndarray[Any, Any]) -> float | None:
    return float(yes[of].mean()) if of.any() else None
