"""The model card: facts for a change-control file, in Markdown (extra `report`)."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from clbruno import __version__
from clbruno.estimator import CLBrunoClassifier
from clbruno.history import now
from clbruno.persist import container
from clbruno.report import facts, measures
from clbruno.report.exam import Exam
from clbruno.report.page import environment
from clbruno.report.retention import of_log
from clbruno.report.style import printable

_MARKS = "\\`*_[]|~$"


def render(model: CLBrunoClassifier, path: Path, exam: Exam | None) -> str:
    """The card of a model file; with an exam of labelled rows, their figures stand in it."""
    found = environment()
    found.filters["md"] = plain
    curves = of_log(model.model_)
    registry = model.model_.registry
    return found.get_template("card.md").render(
        name=path.name,
        digest=_digest(path),
        size=path.stat().st_size,
        protocol=container.PROTOCOL,
        model=model,
        groups=facts.groups(model),
        features=facts.features(model),
        changed=[(name, value) for name, value, other in facts.settings(model) if other],
        updates=facts.updates(model),
        versions=model.model_.log[-1].versions if model.model_.log else {},
        small=sum(n < model.model_.recipe.min_class_size for n in registry.counts),
        trained=model.model_.recipe.couplings > 0,
        curves=curves,
        drops=curves.drops(),
        logged=_logged(model),
        exam=exam,
        classes=[] if exam is None else facts.classes(exam, {}),
        tasks=[] if exam is None else facts.tasks(exam),
        ece=None if exam is None else measures.reliability(exam).ece,
        strange=None if exam is None else float(np.mean(exam.typicality <= facts.ALPHA)),
        alpha=facts.ALPHA,
        version=__version__,
        made=now().replace("T", " ").replace("Z", " UTC"),
    )


def plain(name: Any) -> str:
    """A name in which no character means anything to Markdown or HTML."""
    text = "".join(f"\\{c}" if c in _MARKS else c for c in printable(str(name)))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _logged(model: CLBrunoClassifier) -> list[tuple[str, str, str]]:
    """The newest update's figures: name, before and after."""
    if not model.model_.log:
        return []
    record = model.model_.log[-1]
    shown = {name: record.before.get(name) for name in record.after}
    return [
        (name, "–" if before is None else f"{before:.3f}", f"{record.after[name]:.3f}")
        for name, before in shown.items()
        if name != "rows"
    ]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
