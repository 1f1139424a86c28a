"""The report: one HTML file that needs no network and no script (extra `report`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.axes import Axes

from clbruno import __version__, plots
from clbruno.estimator import CLBrunoClassifier
from clbruno.history import now
from clbruno.report import facts, measures
from clbruno.report.exam import Exam
from clbruno.report.pictures import svg, variables
from clbruno.report.retention import Curves, of_log
from clbruno.report.style import SERIES, SIZE, printable, shortened

Draw = Callable[[Axes], object]


@dataclass(frozen=True)
class Picture:
    """A picture with the words that stand beside it.

    Attributes:
        name: unique in the page.
        title: what it is.
        svg: the picture.
        shows: how to read it.
        bad: what would be bad.
        here: what it says of this model.
        wide: whether a phone shows a part of it, to be moved, so that it can be read.
    """

    name: str
    title: str
    svg: Markup
    shows: str
    bad: str
    here: str
    wide: bool = False


@dataclass(frozen=True)
class Subject:
    """What the report is about.

    Attributes:
        model: the taught estimator.
        name: of the model, its file's name say.
        size: bytes of its file; None where there is none.
        exam: its answers on a table; None without data.
        explain: names of rows to explain; empty for the least sure and the least typical one.
        opening: a picture to open on.
    """

    model: CLBrunoClassifier
    name: str
    size: int | None = None
    exam: Exam | None = None
    explain: tuple[str, ...] = ()
    opening: Picture | None = None


def report(subject: Subject) -> str:
    """The whole page as HTML."""
    model, exam = subject.model, subject.exam
    pair = None if exam is None else measures.pairing(model, exam)
    scores = {} if pair is None else measures.two_sample(pair)
    curves = of_log(model.model_)
    labelled = exam is not None and bool(exam.labelled.any())
    return (
        environment()
        .get_template("report.html")
        .render(
            subject=subject,
            exam=exam,
            labelled=labelled,
            tasks_told=exam is not None and bool((exam.true_task >= 0).any()),
            title=printable(subject.name),
            tiles=_tiles(subject),
            groups=facts.groups(model),
            features=facts.features(model),
            settings=facts.settings(model),
            updates=facts.updates(model),
            retention=_retention(curves, exam) if curves.lines else None,
            right=_right(exam) if exam is not None and labelled else [],
            tasks=[] if exam is None else facts.tasks(exam),
            classes=facts.classes(exam, scores) if exam is not None and labelled else [],
            identity=None if exam is None else _identity(exam),
            sure=_sure(exam) if exam is not None and labelled else None,
            unsure=[] if exam is None else facts.unsure(exam),
            wrong=[] if exam is None else facts.sure_and_wrong(exam),
            typical=None if exam is None else _typical(exam),
            atypical=[] if exam is None else facts.atypical(exam),
            density=[] if pair is None else _density(pair),
            pulls=_pulls(subject),
            light=Markup(variables(dark=False)),
            dark=Markup(variables(dark=True)),
            version=__version__,
            made=now().replace("T", " ").replace("Z", " UTC"),
        )
    )


def environment() -> Environment:
    """Templates in which every name is escaped."""
    found = Environment(
        loader=PackageLoader("clbruno.report", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["count"] = lambda value: f"{value:,}"
    found.filters["share"] = lambda value: "–" if value is None else f"{value:.3f}"
    return found


def picture(
    name: str,
    title: str,
    draw: Draw,
    *,
    shows: str,
    bad: str,
    here: str,
    size: tuple[float, float] = SIZE,
    wide: bool = False,
) -> Picture:
    """Draw a picture; its alternative text is its title and what it says here."""
    drawn = Markup(svg(draw, name, f"{title}. {here}", size))
    return Picture(name, title, drawn, shows, bad, here, wide)


def _tiles(subject: Subject) -> list[tuple[str, str]]:
    model, exam = subject.model, subject.exam
    tiles = [
        (_many(len(model.tasks_), "task", "tasks"), "learned one after another or together"),
        (_many(len(model.classes_), "class", "classes"), "that it can answer with"),
        (_many(int(model.class_count_.sum()), "sample", "samples"), "learned, none of them kept"),
        (_many(model.n_features_in_, "feature", "features"), "in each sample"),
    ]
    if exam is not None and exam.labelled.any():
        tiles.append((f"{exam.accuracy():.1%}", f"right of {_labelled(exam):,} rows, task untold"))
        tiles.append((f"{measures.reliability(exam).ece:.3f}", "calibration error (ECE)"))
    if exam is not None:
        strange = float((exam.typicality <= facts.ALPHA).mean())
        tiles.append((f"{strange:.1%}", f"of rows unlike what it learned (p ≤ {facts.ALPHA:g})"))
    return tiles


def _retention(curves: Curves, exam: Exam | None) -> Picture:
    several = curves.kind in ("task", "label")
    what = {"task": "each task", "label": "each class"}.get(curves.kind, "what was held back")
    sources = {
        "validation": "Every line is measured on the same validation rows after every update.",
        "held back": "Measured on the rows that each update held back from learning, so a line has "
        "a point only where its rows were part of the update.",
    }
    today = exam is not None and exam.labelled.any()
    drops, last = curves.drops(), curves.last()
    low = min(last, key=lambda name: last[name])
    here = f"After update {curves.updates} the lowest figure is {last[low]:.3f}"
    here += f" ({shortened(low)})" if several else ""
    if curves.source == "validation":
        fallen = max(drops, key=lambda name: drops[name])
        here += f"; the largest fall from a line's best is {drops[fallen]:.3f}"
        here += f" ({shortened(fallen)})" if drops[fallen] > 0 else ""
    return picture(
        "retention",
        f"Accuracy on {what} after every update",
        lambda ax: plots.draw_retention(curves, exam if today else None, ax),
        shows=sources[curves.source]
        + (" Diamonds: the rows given to this report, today." if today else "")
        + (" Where there are many lines, the ones that fell most are named." if several else "")
        + " The task is never told. A small fall is usual: there are more answers to choose from.",
        bad="A line that drops when something else is learned: that is forgetting.",
        here=f"{here}.",
    )


def _right(exam: Exam) -> list[Picture]:
    counts = measures.confusion(exam)
    known = counts[: exam.known_labels].copy()
    np.fill_diagonal(known, 0)
    here = f"{exam.accuracy():.1%} of {_labelled(exam):,} rows are right"
    if known.any():
        true, answer = np.unravel_index(known.argmax(), known.shape)
        times = _many(int(known[true, answer]), "time", "times")
        here += (
            f"; the most frequent mistake, {times}, is "
            f"{shortened(exam.labels[answer])} for {shortened(exam.labels[true])}"
        )
    rows = int((counts.sum(axis=1) > 0).sum())
    side = min(5.6, max(3.2, 1.6 + 0.17 * rows))
    return [
        picture(
            "confusion",
            "Which classes are taken for which",
            partial(_draw, plots.confusion, exam),
            shows="Each row of the matrix is one true class, each column an answer; the stronger "
            "the colour, the larger the share of the class's rows. The task is not told.",
            bad="Strong squares away from the diagonal, and above all several in one column: an "
            "answer that swallows others.",
            here=f"{here}.",
            size=(max(SIZE[0], side + 0.4), side),
            wide=16 < rows <= plots.NAMED,
        )
    ]


def _identity(exam: Exam) -> Picture | None:
    rows, mean = measures.heat(exam)
    if not rows or exam.known_tasks < 2:
        return None
    own = {at: mean[i, at] for i, at in enumerate(rows) if at < exam.known_tasks}
    here = "None of these tasks was ever learned."
    if own:
        low = min(own, key=lambda at: own[at])
        here = f"The lowest share on its own task is {own[low]:.2f} ({shortened(exam.tasks[low])})."
    return picture(
        "identity",
        "Which task the model thinks each row comes from",
        partial(_draw, plots.task_identity, exam),
        shows="Each row of the matrix is one true task; along it, the mean probability p(t | x) "
        "that its rows are given for every task that was learned.",
        bad="A row that is strong away from its own task. It may also be true: sites that send the "
        "same kind of sample cannot be told apart.",
        here=here,
        size=(SIZE[0], min(5.0, max(2.6, 1.5 + 0.27 * len(rows)))),
        wide=16 < len(rows) <= plots.NAMED,
    )


def _sure(exam: Exam) -> Picture:
    found = measures.reliability(exam)
    gap = float((found.count / found.count.sum()) @ (found.confidence - found.accuracy))
    tendency = "too sure of itself" if gap > 0 else "more careful than it need be"
    here = f"The expected calibration error is {found.ece:.3f}"
    here += f"; on average the model is {tendency} by {abs(gap):.3f}" if abs(gap) > 0.005 else ""
    return picture(
        "reliability",
        "Can its probabilities be believed?",
        partial(_draw, plots.reliability, exam),
        shows="Rows are sorted into bins by how sure the model is. Each dot is a bin, the larger "
        "the more rows; bars are 95 % intervals. On the dashed line, 80 % sure means 80 % right.",
        bad="Dots below the line: sure and wrong. Dots above it are the milder fault.",
        here=f"{here}.",
    )


def _typical(exam: Exam) -> Picture:
    strange = float((exam.typicality <= facts.ALPHA).mean())
    return picture(
        "typicality",
        "Has it seen such rows before?",
        partial(_draw, plots.typicality, exam),
        shows="Typicality is the share of the rows of a task that are as unusual as this one, or "
        "more. Only few rows like those learned are left of the dashed line. "
        + (
            "They spread evenly over the whole width."
            if exam.known_tasks == 1
            else "Most are far right, because the task that fits best counts."
        ),
        bad=f"A tower at the left: where more than about {facts.ALPHA:.0%} of the rows are at or "
        f"under {facts.ALPHA:g}, they are unlike anything learned, and their answers should not "
        "be used.",
        here=f"{strange:.1%} of {len(exam):,} rows are at or under {facts.ALPHA:g}.",
    )


def _density(pair: measures.Pairing) -> list[Picture]:
    if len(pair.real) < LEAST_ROWS:
        return []
    here = f"{len(pair.real):,} real rows, and as many generated from the same classes."
    several = 1 < len(np.unique(pair.cell)) <= len(SERIES)
    marks = (
        "Dots are real rows, crosses generated ones, in the colour of their class."
        if several
        else "Blue dots are real rows, orange crosses generated ones."
    )
    size = (5.4, SIZE[1]) if several else SIZE
    return [
        picture(
            "pca",
            "Generated rows over real ones: principal directions",
            lambda ax: plots.draw_generated(pair, "pca", ax),
            shows=f"{marks} The plane is the one in which the real rows vary most; the few "
            "farthest points are cut off.",
            bad="Crosses where there are no dots, or dots that no cross covers.",
            here=here,
            size=size,
        ),
        picture(
            "tsne",
            "Generated rows over real ones: t-SNE",
            lambda ax: plots.draw_generated(pair, "tsne", ax),
            shows=f"{marks} Neighbours in the data are neighbours here; distances between clumps "
            "mean nothing.",
            bad="Clumps of crosses beside clumps of dots instead of in them.",
            here=here,
            size=size,
        ),
    ]


LEAST_ROWS = 10
"""Real rows without which generated ones are not drawn beside them."""


def _pulls(subject: Subject) -> list[Picture]:
    model, exam = subject.model, subject.exam
    if exam is None or exam.known_labels < 2:
        return []
    names = facts.features(model)
    return [
        _pull(model, exam, name, row, names, number)
        for number, (name, row) in enumerate(_rows_to_explain(exam, subject.explain).items())
    ]


def _rows_to_explain(exam: Exam, wanted: Sequence[str]) -> dict[str, int]:
    """Names and positions of the rows asked for, or of the kept rows that need it most."""
    if wanted:
        return {name: exam.names.index(name) for name in wanted}
    kept = exam.at
    chosen = [kept[exam.probability[kept].argmin()], kept[exam.typicality[kept].argmin()]]
    return {exam.names[at]: int(at) for at in chosen}


def _pull(
    model: CLBrunoClassifier, exam: Exam, name: str, at: int, names: list[str], number: int
) -> Picture:
    x = exam.named.get(name)
    if x is None:
        x = exam.x[np.flatnonzero(exam.at == at)[0]]
    found = measures.pull(model, x, int(exam.label[at]), int(exam.runner_up[at]))
    label, other = (shortened(exam.labels[k]) for k in (found.label, found.other))
    first = names[int(np.abs(found.features).argmax())]
    return picture(
        f"pull-{number}",
        f"Why {shortened(name)} was called {label}",
        lambda ax: plots.draw_pull(found, names, ax),
        shows=f"How far each feature moves the log-odds of {label} against {other}, on the way "
        "from the average of all that was learned to this row: to the right for "
        f"{label}, to the left for {other}. The largest twelve are drawn; all of them together "
        "make the whole change.",
        bad="A feature that should not matter (a batch effect, a dose) among the longest bars, or "
        "one bar alone that decides.",
        here=f"Log-odds {found.start:+.1f} for the average, {found.end:+.1f} for this row; the "
        f"longest bar is {shortened(first)}.",
    )


def _draw(function: Callable[..., object], exam: Exam, ax: Axes) -> None:
    function(exam, ax=ax)


def _labelled(exam: Exam) -> int:
    return int(exam.labelled.sum())


def _many(n: int, one: str, more: str) -> str:
    return f"{n:,} {one if n == 1 else more}"
