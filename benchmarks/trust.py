"""Uncertainty of the default recipe on real data: calibration, sets, gaps, drift, members.

``python -m benchmarks trust --data DIR`` writes ``results/trust/NAME-seedN.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import machine, metrics
from benchmarks.experiments import EXPERIMENTS
from benchmarks.stream import Step, Stream, thin
from clbruno import CLBrunoClassifier
from clbruno.audit import Rows, audit
from clbruno.config import recipe
from clbruno.core.calibration import PLAIN, Link
from clbruno.core.comparison import compare
from clbruno.core.conformal import label_set, level_sets, typicality
from clbruno.core.missing import observe
from clbruno.core.model import Model, chunks_of
from clbruno.core.posterior import Posterior
from clbruno.learn.engine import Lesson, forget, learn

NAMES = ("pancan", "mnist", "cifar100", "ici")
RESULTS = Path(__file__).resolve().parent / "results" / "trust"
PER_CLASS = {"cifar100": 60, "mnist": 400}
"""Test rows of each class after every update, where all would take too long."""

STRANGERS = 10
"""Classes that are left out in turn, evenly spaced where there are more."""

ALPHAS = (0.01, 0.05, 0.1)
GAPS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
BATCH, BATCHES = 100, 40
SIZES = (1, 2, 5, 10, 50)
SIZE_DRAWS = 2
Record = dict[str, Any]


@dataclass(frozen=True)
class Exam:
    """Test rows in the terms of a model, with their log-likelihoods."""

    x: Tensor
    log_likelihood: Tensor
    cell: Tensor
    step: Tensor


def run(name: str, folder: Path | None, seed: int, quick: bool) -> Record:
    """Learn the stream and measure everything after every update or at the end."""
    began = time.perf_counter()
    stream = EXPERIMENTS[name](folder, seed, quick)
    model: Model | None = None
    by_step: list[Record] = []
    for number, step in enumerate(stream.steps):
        model = _learned(model, step, seed)
        exam = _exam(model, stream, number, seed)
        by_step.append(_step_figures(model, exam))
        print(f"{name} seed {seed} update {number + 1}: ECE {by_step[-1]['ece']:.4f}", flush=True)
    assert model is not None
    record: Record = {
        "experiment": f"trust {name}",
        "seed": seed,
        "stand_in": stream.stand_in,
        "made_data": folder is None,
        "by_step": by_step,
        "link": [[entry["temperature"], entry["tail"]] for entry in by_step],
        "false_alarms": _false_alarms(model, exam),
        "strangers": _strangers(model, exam, quick),
        "gaps": _gaps(model, exam, seed),
        "drift": _drift(model, exam, seed),
        "log": [{"before": dict(r.before), "after": dict(r.after)} for r in model.log],
    }
    if name in ("pancan", "ici"):
        record["audit"] = _members(stream, model, seed)
        record["audit_by_size"] = _members_by_size(stream, seed)
    record |= {
        "seconds": time.perf_counter() - began,
        "versions": machine.versions(),
        "hardware": machine.hardware("cpu", 1),
        "command": f"python -m benchmarks trust {name} --data DIR --seeds {seed}",
    }
    return record


def _learned(old: Model | None, step: Step, seed: int) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tasks = [step.task] * len(step.y)
        lesson = Lesson(
            step.x, tasks, step.y.tolist(), recipe("default"), seed, torch.device("cpu")
        )
        return learn(old, lesson, lambda epoch: None)


def _exam(model: Model, stream: Stream, upto: int, seed: int) -> Exam:
    xs, cells, steps = [], [], []
    for number, test in enumerate(stream.tests[: upto + 1]):
        part = thin(test, PER_CLASS[stream.name], seed) if stream.name in PER_CLASS else test
        xs.append(torch.from_numpy(part.x.astype(np.float64)))
        cells += [model.registry.cell_index(part.task, label) for label in part.y.tolist()]
        steps += [number] * len(part.y)
    x = torch.cat(xs)
    scores = torch.cat([model.log_likelihood(x[rows]) for rows in chunks_of(len(x))])
    return Exam(x, scores, torch.tensor(cells), torch.tensor(steps))


def _step_figures(model: Model, exam: Exam) -> Record:
    posterior = model.posterior_from(exam.log_likelihood)
    link = model.calibration.link
    found: Record = {"rows": len(exam.cell), "temperature": link.temperature}
    found["tail"] = None if link.tail == float("inf") else link.tail
    links = {"": link, "_plain": PLAIN, "_leave_one_out": Link(model.temperature)}
    for suffix, each in links.items():
        asked = dataclasses.replace(posterior, link=each)
        found |= {f"{k}{suffix}": v for k, v in _calibration(asked, exam).items()}
    several = len(model.registry.tasks) > 1
    if several:
        found |= {f"{k}_task_known": v for k, v in _known(posterior, exam).items()}
    found["sets"] = {
        str(level): _sets(model, posterior, exam, level, several) for level in (0.9, 0.95)
    }
    found["abstain"] = {str(a): _abstention(model, posterior, exam, a) for a in (0.05, 0.1)}
    return found


def _calibration(posterior: Posterior, exam: Exam) -> Record:
    proba = posterior.log_label().exp().numpy()
    truth = posterior.label_of_cell[exam.cell].numpy()
    hit = proba[np.arange(len(truth)), truth]
    return {
        "ece": metrics.ece(proba, truth),
        "nll": metrics.nll(proba, truth),
        "brier": float(((proba**2).sum(1) - 2 * hit + 1).mean()),
        "accuracy": metrics.accuracy(proba, truth),
        "confidence": float(proba.max(1).mean()),
    }


def _known(posterior: Posterior, exam: Exam) -> Record:
    labels = int(posterior.label_of_cell.max()) + 1
    task = posterior.task_of_cell[exam.cell]
    proba = posterior.log_label_in(task, labels).exp().numpy()
    truth = posterior.label_of_cell[exam.cell].numpy()
    return {
        "ece": metrics.ece(proba, truth),
        "nll": metrics.nll(proba, truth),
        "accuracy": metrics.accuracy(proba, truth),
    }


def _sets(model: Model, posterior: Posterior, exam: Exam, level: float, several: bool) -> Record:
    label = posterior.label_of_cell[exam.cell]
    inside = label_set(model, posterior, None, level)
    covered = inside.gather(1, label[:, None])[:, 0].double()
    newest = exam.step == exam.step.max()
    found = {
        "coverage": float(covered.mean()),
        "size": float(inside.sum(1).double().mean()),
        "coverage_newest": float(covered[newest].mean()),
        "coverage_older": None if bool(newest.all()) else float(covered[~newest].mean()),
    }
    if several:
        task, hits, size = posterior.task_of_cell[exam.cell], 0.0, 0.0
        for at in task.unique().tolist():
            here = task == at
            part = dataclasses.replace(posterior, log_likelihood=posterior.log_likelihood[here])
            known = label_set(model, part, at, level)
            hits += float(known.gather(1, label[here, None]).sum())
            size += float(known.sum())
        found |= {"coverage_task_known": hits / len(task), "size_task_known": size / len(task)}
    return found


def _abstention(model: Model, posterior: Posterior, exam: Exam, alpha: float) -> Record:
    p = typicality(model, posterior.log_evidence(), model.levels).amax(1)
    sure = (label_set(model, posterior, None, 1 - alpha).sum(1) == 1) & (p > alpha)
    right = posterior.log_label().argmax(1) == posterior.label_of_cell[exam.cell]
    share = float(sure.double().mean())
    accuracy = float(right[sure].double().mean()) if bool(sure.any()) else None
    return {"answered": share, "accuracy_answered": accuracy}


def _false_alarms(model: Model, exam: Exam) -> Record:
    """Share of test rows of known classes under alpha, each asked for its own task."""
    evidence = model.posterior_from(exam.log_likelihood).log_evidence()
    task = torch.tensor(model.registry.task_of_cell)[exam.cell][:, None]
    found = {}
    for name, how in (("held_back", typicality), ("generated", level_sets)):
        p = how(model, evidence, model.levels).gather(1, task)[:, 0]
        found[name] = {str(a): float((p <= a).double().mean()) for a in ALPHAS}
    return found


def _strangers(model: Model, exam: Exam, quick: bool) -> Record:
    """Each class or task forgotten in turn; AUROC of its rows against all others by each score."""
    names = model.registry
    several = len(names.tasks) > 1 and len(set(names.label_of_cell)) < len(names.cells)
    kind, pool = ("task", names.tasks) if several else ("label", names.labels)
    if len(pool) > STRANGERS:
        pool = pool[:: len(pool) // STRANGERS][:STRANGERS]
    rows = np.random.default_rng(0).permutation(len(exam.cell))[: 200 if quick else 2000]
    of = names.task_of_cell if several else names.label_of_cell
    each = {}
    for name in pool[: 2 if quick else None]:
        at = (names.tasks if several else names.labels).index(name)
        less = forget(
            model, **{"task": name, "label": None} if several else {"task": None, "label": name}
        )
        strange = torch.tensor(of)[exam.cell[rows]] == at
        if not bool(strange.any()):
            continue
        score = _scores(less, exam.x[rows])
        p = score.pop("p_value")
        each[str(name)] = {
            **{k: metrics.auroc(v[~strange].numpy(), v[strange].numpy()) for k, v in score.items()},
            "p_value": metrics.auroc(p[~strange].numpy(), p[strange].numpy()),
            "found_at_0.05": float((p[strange] <= 0.05).double().mean()),
            "rows": int(strange.sum()),
        }
    kinds = sorted({k for found in each.values() for k in found} - {"rows"})
    mean = {k: float(np.mean([found[k] for found in each.values()])) for k in kinds}
    return {"left_out": kind, "mean": mean, "each": each}


def _scores(model: Model, x: Tensor) -> dict[str, Tensor]:
    """Scores that are high for what is known."""
    scores = torch.cat([model.log_likelihood(x[rows]) for rows in chunks_of(len(x))])
    posterior = model.posterior_from(scores)
    z = model.scaler.forward(x)
    centre = torch.stack([seen.mean for seen in model.latent.moments])
    pooled = model.latent.pooled  # type: ignore[union-attr]
    eye = torch.eye(len(pooled), dtype=torch.float64)
    root = torch.linalg.cholesky(torch.linalg.inv(pooled + 0.1 * eye))
    return {
        "p_value": typicality(model, posterior.log_evidence(), model.levels).amax(1),
        "log_density": posterior.log_density(),
        "energy": (scores / model.calibration.link.temperature).logsumexp(1),
        "max_probability": posterior.log_label().amax(1),
        "mahalanobis": -torch.cdist(z @ root, centre @ root).amin(1),
        "nearest_class_mean": -torch.cdist(z, centre).amin(1),
    }


def _gaps(model: Model, exam: Exam, seed: int) -> list[Record]:
    """Answers without a share of the features, the same ones for all rows, chosen at random."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(exam.cell))[:2000]
    order = rng.permutation(model.dim)
    found = []
    for share in GAPS:
        x = exam.x[rows].clone()
        x[:, order[: round(share * model.dim)]] = torch.nan
        seen = observe(model, x)
        posterior = model.posterior_from(seen.log_likelihood)
        part = dataclasses.replace(exam, cell=exam.cell[rows])
        found.append(
            {"missing": share, **_calibration(posterior, part), "error": float(seen.error.max())}
        )
    return found


def _drift(model: Model, exam: Exam, seed: int) -> Record:
    """Batches of test rows of a task: as they are, with an eighth of a deviation added, and asked
    of another task."""
    rng = np.random.default_rng(seed)
    names = [str(at) for at in range(model.dim)]
    tasks = torch.tensor(model.registry.task_of_cell)[exam.cell]
    spread = exam.x.std(0)
    own, moved, other, nearest = [], [], [], []
    for number in range(BATCHES):
        task = number % len(model.registry.tasks)
        pool = np.flatnonzero((tasks == task).numpy())
        x = exam.x[rng.permutation(pool)[:BATCH]]
        if len(x) < 20:
            continue
        found = compare(model, x, range(len(model.registry.tasks)), names)
        own.append(found.matches[task].p_value)
        other += [m.p_value for at, m in enumerate(found.matches) if at != task]
        nearest.append(found.nearest == model.registry.tasks[task])
        few = torch.from_numpy(rng.permutation(model.dim)[: max(1, model.dim // 20)])
        x = x.clone()
        x[:, few] += 0.5 * spread[few]
        moved.append(compare(model, x, [task], names).p_value)

    def below(values: list[float]) -> Record | None:
        if not values:
            return None
        return {str(a): float((np.array(values) < a).mean()) for a in (0.05, 0.01, 0.001)}

    return {
        "rows": BATCH,
        "batches": len(own),
        "same_task": below(own),
        "half_a_deviation_in_a_twentieth": below(moved),
        "another_task": below(other),
        "nearest_right": float(np.mean(nearest)) if nearest else None,
    }


def _estimator(steps: Sequence[Step], seed: int) -> CLBrunoClassifier:
    made = CLBrunoClassifier(random_state=seed, min_class_size=1)
    for step in steps:
        made.partial_fit(step.x, step.y, task=step.task)
    return made


def _rows(steps: Sequence[Step]) -> Rows:
    return Rows(
        np.concatenate([step.x for step in steps]).astype(np.float64),
        [label for step in steps for label in step.y.tolist()],
        [step.task for step in steps for _ in range(len(step.y))],
    )


def _members(stream: Stream, model: Model, seed: int) -> Record:
    asked = CLBrunoClassifier(random_state=seed, min_class_size=1)
    asked.model_, asked.n_features_in_ = model, model.dim
    return dataclasses.asdict(audit(asked, _rows(stream.steps), _rows(stream.tests), seed))


def _members_by_size(stream: Stream, seed: int) -> list[Record]:
    """The first batch with its largest class cut to n samples: attacks on that class alone."""
    step, test = stream.steps[0], stream.tests[0]
    labels, counts = np.unique(step.y, return_counts=True)
    label = labels[counts.argmax()]
    found = []
    for size in SIZES:
        groups = []
        for draw in range(SIZE_DRAWS):
            rng = np.random.default_rng([seed, draw])
            mine = rng.permutation(np.flatnonzero(step.y == label))[:size]
            kept = step.rows(np.sort(np.r_[mine, np.flatnonzero(step.y != label)]))
            asked = _estimator([kept], seed)
            inside = step.rows(np.sort(mine))
            outside = test.rows(np.flatnonzero(test.y == label))
            result = audit(asked, _rows([inside]), _rows([outside]), seed)
            groups.append({a.name: (a.auc, *a.hits) for a in result.groups[0].attacks})
        found.append(
            {"samples": size, "draws": SIZE_DRAWS}
            | {
                name: dict(
                    zip(
                        ("auc", "found_at_0.01", "found_at_0.001"),
                        np.mean([group[name] for group in groups], axis=0).tolist(),
                        strict=True,
                    )
                )
                for name in groups[0]
            }
        )
    return found


def main(words: Sequence[str]) -> int:
    """``trust [pancan,mnist,...] --data DIR``: a record for every data set and seed."""
    made = argparse.ArgumentParser(prog="python -m benchmarks trust", description=__doc__)
    made.add_argument("names", nargs="?", default=",".join(NAMES), help="such as pancan,ici")
    made.add_argument("--data", type=Path, help="folder of the data files; made data without it")
    made.add_argument("--seeds", default="0,1,2,3,4", help="such as 0,1; the others have one")
    made.add_argument("--results", type=Path, default=RESULTS, help="where JSON goes")
    made.add_argument("--quick", action="store_true", help="a small form, nothing is written")
    asked = made.parse_args(words)
    for name in asked.names.split(","):
        if name not in NAMES:
            made.error(f"unknown data set {name!r}; known: {', '.join(NAMES)}")
        seeds = [int(seed) for seed in asked.seeds.split(",")]
        for seed in seeds[: 1 if asked.quick or name in ("mnist", "cifar100") else None]:
            record = run(name, asked.data, seed, asked.quick)
            if not asked.quick:
                path = asked.results / f"{name}-seed{seed}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
            worst = max(entry["ece"] for entry in record["by_step"])
            print(f"{name} seed {seed}: worst ECE {worst:.4f} ({record['seconds']:.0f} s)")
    return 0
