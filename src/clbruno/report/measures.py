"""The numbers behind the pictures: calibration, confusion, two-sample scores, contributions."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from clbruno.estimator import CLBrunoClassifier
from clbruno.report.exam import Exam, Floats, Ints

BINS = 15
"""Equal bins of the largest probability, as in the benchmarks."""

LEAST = 10
"""Real rows of a class without which no two-sample score is given."""

MOST = 200
"""Real rows of a class behind its two-sample score."""

DIRECTIONS = 20
"""Principal directions that the two-sample test looks at."""

MOST_NODES, PATH_ROWS = 8, 1600
"""Points on the path of an explanation, and moved features at all of them together: one point, the
middle, where the features are many."""


@dataclass(frozen=True)
class Reliability:
    """Calibration in equal bins of the largest probability; only bins that hold rows.

    Attributes:
        confidence: mean of the largest probability in each bin.
        accuracy: share of right answers in each bin.
        count: rows in each bin.
        ece: sum_b n_b / n |accuracy_b - confidence_b|.
    """

    confidence: Floats
    accuracy: Floats
    count: Ints
    ece: float


def reliability(exam: Exam) -> Reliability:
    """How often answers of a certain confidence are right, over the labelled rows."""
    confidence, right = exam.probability[exam.labelled], exam.right[exam.labelled]
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    full = count > 0
    mean = np.bincount(place, confidence, BINS)[full] / count[full]
    share = np.bincount(place, right, BINS)[full] / count[full]
    ece = float((count[full] / count.sum() * np.abs(share - mean)).sum())
    return Reliability(mean, share, count[full], ece)


def wilson(share: Floats, count: Ints, z: float = 1.96) -> tuple[Floats, Floats]:
    """Wilson's interval of a share that was counted on so many rows."""
    n = np.maximum(count, 1)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.minimum(centre - half, share), np.maximum(centre + half, share)


def confusion(exam: Exam) -> NDArray[np.int64]:
    """Rows of each true label (rows) that were answered with each known label (columns)."""
    table = np.zeros((len(exam.labels), exam.known_labels), dtype=np.int64)
    told = exam.labelled
    np.add.at(table, (exam.truth[told], exam.label[told]), 1)
    return table


def heat(exam: Exam) -> tuple[list[int], Floats]:
    """The true tasks that have rows, and mean p(t | x) over the rows of each (Fig. 6a)."""
    tasks = [at for at in range(len(exam.tasks)) if (exam.true_task == at).any()]
    rows = [exam.task_proba[exam.true_task == at].mean(axis=0) for at in tasks]
    return tasks, np.array(rows).reshape(len(tasks), exam.known_tasks)


@dataclass(frozen=True)
class Pairing:
    """Real rows, and generated rows of the same classes in the same numbers.

    Attributes:
        real: features of the real rows, in units of the pooled spread of each feature.
        made: features of the generated rows, in the same units.
        cell: position in `names` of each real row and of each generated row.
        names: labels; one name for all rows where none is told.
    """

    real: Floats
    made: Floats
    cell: Ints
    names: tuple[object, ...]


def pairing(model: CLBrunoClassifier, exam: Exam, seed: int = 0) -> Pairing:
    """For every kept row whose class is known, a row generated from that class (and task)."""
    label, task = exam.truth[exam.at], exam.true_task[exam.at]
    if not (label >= 0).any():
        drawn, _ = model.sample(len(exam.x), random_state=seed)
        nowhere = np.zeros(len(exam.x), dtype=np.int64)
        return _scaled(exam.x, drawn, nowhere, ("all rows",))
    real: list[Floats] = []
    made: list[Floats] = []
    cells: list[int] = []
    registry = model.model_.registry
    for y in range(exam.known_labels):
        for t in sorted(set(task[label == y].tolist())):
            rows = (label == y) & (task == t)
            told = 0 <= t < exam.known_tasks
            if told and (t, y) not in registry.cells:
                continue
            name = registry.tasks[t] if told else None
            n = int(rows.sum())
            x, _ = model.sample(n, task=name, label=registry.labels[y], random_state=seed)
            real.append(exam.x[rows])
            made.append(x)
            cells += [y] * n
    if not real:
        return Pairing(np.empty((0, 1)), np.empty((0, 1)), np.empty(0, np.int64), exam.labels)
    return _scaled(np.concatenate(real), np.concatenate(made), np.array(cells), exam.labels)


def _scaled(real: Floats, made: Floats, cell: Ints, names: tuple[object, ...]) -> Pairing:
    both = StandardScaler().fit(np.concatenate([real, made]))
    return Pairing(both.transform(real), both.transform(made), cell, names)


def projected(pair: Pairing, how: str, seed: int = 0) -> tuple[Floats, Floats]:
    """Real and generated rows in two dimensions: `"pca"` of the real ones, or `"tsne"` of both."""
    width = pair.real.shape[1]
    if how == "pca":
        parts = min(2, *pair.real.shape)
        plane = PCA(parts, random_state=seed).fit(pair.real)
        flat = [plane.transform(x) for x in (pair.real, pair.made)]
        if parts < 2:
            flat = [np.column_stack([x, np.zeros(len(x))]) for x in flat]
        return flat[0], flat[1]
    both = np.concatenate([pair.real, pair.made])
    if width > 50:
        both = PCA(min(50, *both.shape), random_state=seed).fit_transform(both)
    perplexity = min(30.0, (len(both) - 1) / 3)
    spread = TSNE(2, perplexity=perplexity, max_iter=400, init="random", random_state=seed)
    found = spread.fit_transform(both)
    return found[: len(pair.real)], found[len(pair.real) :]


def two_sample(pair: Pairing, seed: int = 0) -> dict[int, float]:
    """How well a classifier tells real from generated rows of each class: 0.5 not at all, 1 always.

    The area under the ROC curve (what falls under 0.5 is chance), cross-validated, of a logistic
    regression on the first principal directions and their squares: it sees means, spreads and
    skewed directions, not everything.
    """
    scores = {}
    for cell in np.unique(pair.cell).tolist():
        here = np.flatnonzero(pair.cell == cell)[:MOST]
        if len(here) < LEAST:
            continue
        x = np.concatenate([pair.real[here], pair.made[here]])
        y = np.repeat([0, 1], len(here))
        x = PCA(min(DIRECTIONS, x.shape[1], len(here) // 2), random_state=seed).fit_transform(x)
        judge = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        found = cross_val_predict(
            judge, np.hstack([x, x**2]), y, cv=folds, method="decision_function"
        )
        scores[cell] = max(0.5, float(roc_auc_score(y, found)))
    return scores


@dataclass(frozen=True)
class Pull:
    """Why one row was given its label and not another one.

    Attributes:
        label: position of the label that was given.
        other: position of the label that it is compared with.
        features: contribution of every feature to the log-odds, from the average row to this one.
        start: log-odds of the average row of all that was learned.
        end: log-odds of this row.
    """

    label: int
    other: int
    features: Floats
    start: float
    end: float


def pull(model: CLBrunoClassifier, row: Floats, label: int, other: int, seed: int = 0) -> Pull:
    """Integrated gradients of log p(label | x) - log p(other | x) from the average row.

        contribution_d = (x_d - b_d) integral_0^1 d/dx_d log-odds(b + s (x - b)) ds

    Their sum is the change of the log-odds from the baseline b to x, for any flow, up to the few
    points at which the integral is taken.
    """
    made, _ = model.sample(500, random_state=seed)
    base, step = made.mean(axis=0), 1e-4 * made.std(axis=0)
    step[step == 0] = 1e-8

    def odds(x: Floats) -> Floats:
        log_label = model.model_.posterior(torch.from_numpy(x)).log_label()
        difference: Floats = (log_label[:, label] - log_label[:, other]).numpy()
        return difference

    gap = row - base
    gradient = np.zeros_like(row)
    number = int(np.clip(PATH_ROWS // (2 * len(row)), 1, MOST_NODES))
    for node, weight in zip(*np.polynomial.legendre.leggauss(number), strict=True):
        here = base + (1 + node) / 2 * gap
        ahead, behind = odds(here + np.diag(step)), odds(here - np.diag(step))
        gradient += weight / 2 * (ahead - behind) / (2 * step)
    start, end = odds(np.stack([base, row]))
    return Pull(label, other, gap * gradient, float(start), float(end))
