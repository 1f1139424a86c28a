"""One run: an experiment, a method and a seed in; a record of figures out."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cost, machine, metrics, outliers
from benchmarks.experiments import EXPERIMENTS
from benchmarks.methods import METHODS, Method
from benchmarks.rivals.base import PairRival, Rival
from benchmarks.stream import FloatArray, Step, Stream, validation_stream

RESULTS = Path(__file__).resolve().parent / "results"
DATA_OF = {**outliers.FOUND_IN, "cost": "cifar100"}
"""Experiments on the data of another one."""
POINTS = 60
Record = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """What to run."""

    experiment: str
    method: str
    seed: int
    folder: Path | None
    quick: bool = False
    device: str = "cpu"
    together: int = 1

    @property
    def command(self) -> str:
        """The line that repeats the run; DIR stands for the data folder."""
        words = ["python -m benchmarks", self.experiment]
        words += ["--data DIR"] if self.folder is not None else []
        words += [f"--seeds {self.seed}", f"--methods {self.method}"]
        words += ["--device " + self.device] if self.device != "cpu" else []
        words += ["--quick"] if self.quick else []
        return " ".join(words)


def run(order: Order) -> Record:
    """Tune on validation rows, learn the stream, measure after every step."""
    method = METHODS[order.method]
    data = DATA_OF.get(order.experiment, order.experiment)
    stream = EXPERIMENTS[data](order.folder, order.seed, order.quick)
    grid = method.settings(data)
    with machine.Meter(order.device) as tuning:
        chosen, trials = tune(method, stream, order, grid)
    gc.collect()
    extra: Record = {}
    if order.experiment == "cost":
        figures = cost.measure(build(method, order, chosen), stream)
    elif order.experiment == data:
        figures, extra = measure(build(method, order, chosen), stream, order.device)
    else:
        with machine.Meter(order.device) as all_cases:
            figures, each = outliers.measure(
                lambda: build(method, order, chosen), stream, order.seed, order.quick
            )
        extra = {"each": each}
        figures["seconds_all_cases"] = all_cases.seconds
    figures["seconds_tuning"] = tuning.seconds if len(grid) > 1 else 0.0
    return {
        "experiment": order.experiment,
        "method": order.method,
        "title": method.title,
        "note": method.note,
        "seed": order.seed,
        "quick": order.quick,
        "made_data": order.folder is None and order.experiment != "synthetic",
        "stand_in": stream.stand_in,
        "settings": {**chosen, **(method.quick if order.quick else {})},
        "grid": method.searched(data),
        "trials": trials,
        "figures": figures,
        **extra,
        "versions": machine.versions(),
        "hardware": machine.hardware(order.device, order.together),
        "command": order.command,
    }


def build(method: Method, order: Order, settings: Mapping[str, Any]) -> Rival:
    """The method with its settings, seed and device."""
    given = {**settings, **(method.quick if order.quick else {}), "seed": order.seed}
    if method.device:
        given["device"] = order.device
    return method.make(**given)


def tune(
    method: Method, stream: Stream, order: Order, grid: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[Record]]:
    """The point of the grid with the best validation score, and the score of every point.

    The rows come from the training batches alone. The score is the mean of the accuracies with
    the task unknown, with the task known and of the task's identity; ties go to the lower NLL.
    """
    if len(grid) == 1:
        return grid[0], []
    held = validation_stream(stream, order.seed)
    models: dict[str, Rival] = {}
    trials: list[Record] = []
    for settings in grid:
        late = tuple(getattr(method.make, "after_fit", ()))
        early = {name: value for name, value in settings.items() if name not in late}
        key = json.dumps(early, sort_keys=True)
        if key not in models:
            models = {key: learn(build(method, order, settings), held)}
        model = models[key]
        if late and isinstance(model, PairRival):
            model.change(**{name: settings[name] for name in late if name in settings})
        answers = [answer(model, test) for test in held.tests if len(test.y)]
        score = float(np.mean(list(pooled(answers, len(held.tasks) > 1)[0].values())))
        loss = metrics.nll(*stacked(answers, "label"))
        trials.append({"settings": settings, "score": score, "nll": loss})
    best = max(trials, key=lambda trial: (trial["score"], -trial["nll"]))
    return best["settings"], trials


def learn(model: Rival, stream: Stream) -> Rival:
    """Present every step once."""
    for step in stream.steps:
        model.partial_fit(step.x, step.y, step.task)
    return model


def answer(model: Rival, test: Step) -> dict[str, tuple[FloatArray, np.ndarray]]:
    """Probabilities and true columns: the label, the label in its known task, and the task."""
    truth = metrics.columns_of(model.classes_, test.y)
    result = {"label": (model.predict_proba(test.x), truth)}
    if len(model.tasks_) > 1:
        tasks = np.full(len(test.y), test.task)
        column = metrics.columns_of(np.array(model.tasks_), tasks)
        result["task"] = (model.predict_task_proba(test.x), column)
    if len(model.tasks_) > 1 and test.task in model.tasks_:
        result["known"] = (model.predict_proba(test.x, test.task), truth)
    else:
        result["known"] = result["label"]
    return result


def stacked(answers: list[dict[str, Any]], what: str) -> tuple[FloatArray, np.ndarray]:
    """Rows of all tests under one another."""
    parts = [found[what] for found in answers]
    return np.concatenate([p for p, _ in parts]), np.concatenate([t for _, t in parts])


def pooled(
    answers: list[dict[str, Any]], several: bool
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Accuracy over all rows, and test by test, of each kind of answer."""
    kinds = ("label", "known", "task") if several else ("label",)
    whole = {kind: metrics.accuracy(*stacked(answers, kind)) for kind in kinds}
    each = [{kind: metrics.accuracy(*found[kind]) for kind in kinds} for found in answers]
    return whole, each


def measure(model: Rival, stream: Stream, device: str) -> tuple[dict[str, Any], Record]:
    """Learn step by step; figures of the end, and accuracy on test j after step i."""
    count, several = len(stream.steps), len(stream.tasks) > 1
    unknown, known = np.full((2, count, count), np.nan)
    spent, peak, asked = 0.0, 0.0, 0.0
    fresh = first_answerable(stream)
    by_step: Record = {}
    for i, step in enumerate(stream.steps):
        with machine.Meter(device) as learning:
            model.partial_fit(step.x, step.y, step.task)
        spent, peak = spent + learning.seconds, max(peak, learning.peak_mib or 0.0)
        if model.joint and i < count - 1:
            continue
        tests = range(min(i + 2, count)) if i + 1 < count and fresh[i + 1] else range(i + 1)
        with machine.Meter(device) as asking:
            answers = {j: answer(model, stream.tests[j]) for j in tests if len(stream.tests[j].y)}
        asked += asking.seconds
        for j, found in answers.items():
            unknown[i, j] = metrics.accuracy(*found["label"])
            known[i, j] = metrics.accuracy(*found["known"])
        seen = [found for j, found in answers.items() if j <= i]
        for name, value in calibration(seen, several).items():
            by_step.setdefault(name, []).append(value)
    last = list(answers.values())
    figures = final_figures(last, several)
    figures |= stream_figures(unknown, fresh, len(stream.labels), model.joint, "")
    if several:
        figures |= stream_figures(known, fresh, len(stream.labels), model.joint, "_task_known")
    figures |= {
        "seconds_learning": spent,
        "seconds_answering": asked,
        "peak_mib_learning": peak,
        "floats_stored": model.floats_stored,
    }
    extra: Record = {"accuracy_matrix": plain(unknown), "by_step": by_step}
    if several:
        extra |= {"accuracy_matrix_task_known": plain(known), **task_heat(model, stream, last)}
    if stream.name == "synthetic" and hasattr(model, "sample"):
        extra["scatter"] = scatter(model, stream)
    return figures, extra


def calibration(answers: list[dict[str, Any]], several: bool) -> dict[str, float]:
    """ECE and NLL over all rows, of the label and of the label in its known task."""
    kinds = {"label": "", "known": "_task_known"} if several else {"label": ""}
    found = {}
    for kind, suffix in kinds.items():
        rows = stacked(answers, kind)
        found |= {f"ece{suffix}": metrics.ece(*rows), f"nll{suffix}": metrics.nll(*rows)}
    return found


def scatter(model: Any, stream: Stream) -> list[Record]:
    """By task, the first two dimensions and labels of test rows and of generated rows (Fig. 4)."""
    found = []
    for task in stream.tasks:
        tests = [test for test in stream.tests if test.task == task]
        x, y = (np.concatenate([getattr(test, part) for test in tests]) for part in ("x", "y"))
        shown = np.random.default_rng(0).permutation(len(y))[:POINTS]
        made, labels = model.sample(POINTS, task)
        pairs = {"test": (x[shown], y[shown]), "generated": (made, labels)}
        rows = {
            name: [
                [round(float(a), 3), round(float(b), 3), int(k)]
                for (a, b), k in zip(points[:, :2], codes, strict=True)
            ]
            for name, (points, codes) in pairs.items()
        }
        found.append({"task": task, **rows})
    return found


def first_answerable(stream: Stream) -> list[bool]:
    """Whether all labels of test j were learned, in some task, before step j."""
    seen: set[Any] = set()
    flags = []
    for step, test in zip(stream.steps, stream.tests, strict=True):
        flags.append(bool(seen) and set(test.y.tolist()) <= seen)
        seen |= set(step.y.tolist())
    return flags


def final_figures(answers: list[dict[str, Any]], several: bool) -> dict[str, Any]:
    """Accuracy, error, ECE and NLL after the last step, by what was asked."""
    whole, each = pooled(answers, several)
    names = {"label": "", "known": "_task_known", "task": "_task_identity"}
    figures: dict[str, Any] = {}
    for kind, value in whole.items():
        proba, truth = stacked(answers, kind)
        figures[f"accuracy{names[kind]}"] = value
        figures[f"error{names[kind]}"] = 1.0 - value
        figures[f"accuracy{names[kind]}_mean_of_tests"] = float(np.mean([e[kind] for e in each]))
        figures[f"ece{names[kind]}"] = metrics.ece(proba, truth)
        figures[f"nll{names[kind]}"] = metrics.nll(proba, truth)
    return figures


def stream_figures(
    matrix: FloatArray, fresh: list[bool], labels: int, joint: bool, suffix: str
) -> dict[str, Any]:
    """Average accuracy, forgetting and transfers; a method that sees all at once has none."""
    if joint:
        return {}
    return {
        f"accuracy_incremental{suffix}": metrics.average_incremental(matrix),
        f"forgetting{suffix}": metrics.forgetting(matrix),
        f"backward_transfer{suffix}": metrics.backward_transfer(matrix),
        f"forward_transfer{suffix}": metrics.forward_transfer(
            matrix, 1.0 / labels, np.array(fresh)
        ),
    }


def task_heat(model: Rival, stream: Stream, answers: list[dict[str, Any]]) -> Record:
    """Mean p(t | x) over the test rows of each task: rows true tasks, columns ``tasks``."""
    proba, truth = stacked(answers, "task")
    order = [model.tasks_.index(task) for task in stream.tasks]
    heat = np.stack([proba[truth == place].mean(axis=0)[order] for place in order])
    found: Record = {"tasks": list(stream.tasks), "task_heat": plain(heat)}
    if "response" in stream.notes:
        found["task_by_response"] = by_response(stream, proba[:, order])
    return found


def by_response(stream: Stream, proba: FloatArray) -> list[Record]:
    """Mean p(t | x) of the test rows of each task, label and response (supplement B.3.1)."""
    task = np.concatenate([np.full(len(test.y), test.task) for test in stream.tests])
    label = np.concatenate([test.y for test in stream.tests])
    groups = np.stack([task, label, stream.notes["response"]], axis=1)
    found = []
    for group in np.unique(groups, axis=0):
        rows = (groups == group).all(axis=1)
        names = dict(zip(("task", "label", "response"), group.tolist(), strict=True))
        mean = proba[rows].mean(axis=0).tolist()
        found.append({**names, "rows": int(rows.sum()), "mean": mean})
    return found


def plain(matrix: FloatArray) -> list[list[float | None]]:
    """Nested lists with None for what was not measured."""
    return [[None if np.isnan(v) else float(v) for v in row] for row in matrix]


def file_name(experiment: str, method: str, seed: int) -> str:
    """Where a record lies in the folder of results."""
    return f"{experiment}/{method}-seed{seed}.json"


def save(record: Record, folder: Path = RESULTS) -> Path:
    """Write the record as ``experiment/method-seedN.json``, whole or not at all."""
    path = folder / file_name(record["experiment"], record["method"], record["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
    return path
