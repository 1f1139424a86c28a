"""Pictures of the tables' curves, drawn from the JSON records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks import relations

Record = dict[str, Any]
Pictures = dict[str, list[tuple[str, str]]]
LINE_METHODS = (
    "clbruno",
    "clbruno-paper",
    "lda",
    "shrunk",
    "fecam",
    "ranpac",
    "fetril",
    "ewc",
    "lwf",
)
RECIPES = {
    "clbruno": ("clbruno-oracle", "default recipe"),
    "clbruno-paper": ("clbruno-paper-oracle", "paper's recipe"),
}


def draw(records: list[Record], folder: Path) -> Pictures:
    """Every picture that the records allow, as (text, file) by experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: Pictures = {}

    def add(name: str, what: str, text: str, figure: Figure) -> None:
        save(figure, folder / f"{name}-{what}.svg")
        pictures.setdefault(name, []).append((text, f"{name}-{what}.svg"))

    with mpl.rc_context({"svg.hashsalt": "clbruno", "font.size": 8}):
        for name in ("cifar100", "cifar100-images", "pancan"):
            seen = [r for r in records if r["experiment"] == name and r["method"] in LINE_METHODS]
            if seen:
                text = "Accuracy over the classes seen after every batch"
                add(name, "curves", text, learning_curves(seen))
        for method, (oracle, words) in RECIPES.items():
            runs = {
                name: [r for r in records if (r["experiment"], r["method"]) == (name, method)]
                for name in ("synthetic", "pancan", "ici")
            }
            if drawn := [run for run in runs["synthetic"] if "scatter" in run]:
                text = f"Generated and test samples, first two dimensions ({words}, Fig. 4)"
                add("synthetic", f"samples-{method}", text, samples(drawn[0]))
            for name, place in (("pancan", "5a"), ("ici", "5b")):
                if runs[name]:
                    best = [r for r in records if (r["experiment"], r["method"]) == (name, oracle)]
                    text = "Error on each batch's test rows after every step; triangles: oracle "
                    text += f"({words}, Fig. {place})"
                    add(name, f"retention-{method}", text, retention(runs[name], best))
            if runs["ici"]:
                add(
                    "ici",
                    f"tasks-{method}",
                    f"Mean p(therapy | x) ({words}, Fig. 6a)",
                    heat_map(runs["ici"]),
                )
                text = f"Mean p(therapy | x) by cancer and response ({words}, Fig. 6-7)"
                add("ici", f"relations-{method}", text, bars(runs["ici"]))
    return pictures


def mean_matrix(records: list[Record]) -> np.ndarray:
    """A[i, j] averaged over seeds; the task-known one where there are tasks."""
    key = "accuracy_matrix_task_known"
    parts = [np.array(r.get(key, r["accuracy_matrix"]), dtype=float) for r in records]
    return np.mean(parts, axis=0)


def learning_curves(records: list[Record]) -> Figure:
    """Mean over j <= i of A[i, j], one line per method."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for method in LINE_METHODS:
        runs = [record for record in records if record["method"] == method]
        if runs:
            matrix = mean_matrix(runs)
            line = [matrix[i, : i + 1].mean() for i in range(len(matrix))]
            axes.plot(range(1, len(line) + 1), line, marker=".", label=runs[0]["title"])
    axes.set(xlabel="batches learned", ylabel="accuracy over classes seen")
    axes.legend(fontsize=6)
    return figure


def retention(runs: list[Record], oracle: list[Record]) -> Figure:
    """1 - A[i, j] of CL-BRUNO as lines and of its oracle as triangles."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for records, style in ((runs, ".-"), (oracle, "^")):
        if not records:
            continue
        error = 1 - mean_matrix(records)
        for j in range(len(error)):
            steps = np.arange(j, len(error))
            label = f"batch {j + 1}" if records is runs else None
            axes.plot(steps + 1, error[j:, j], style, color=f"C{j}", label=label)
    axes.set(xlabel="step", ylabel="error")
    axes.legend(fontsize=6)
    return figure


def heat_map(records: list[Record]) -> Figure:
    """Mean p(t | x), rows true tasks."""
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots()
    heat = np.mean([record["task_heat"] for record in records], axis=0)
    tasks = records[0]["tasks"]
    image = axes.imshow(heat, vmin=0, vmax=1, cmap="Blues")
    axes.set_xticks(range(len(tasks)), tasks, rotation=45)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.set(xlabel="answered", ylabel="true")
    figure.colorbar(image)
    return figure


def bars(records: list[Record]) -> Figure:
    """Mean p(t | x) of each group of patients, one panel per therapy asked about."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    tasks, found = records[0]["tasks"], relations.groups(records)
    for axes, task in zip(figure.subplots(1, 2, sharey=True), relations.ASKED, strict=True):
        here = [group for group in found if group.task == task]
        for place, group in enumerate(here):
            at = np.arange(len(tasks)) + 0.2 * (place - 1.5)
            axes.bar(at, group.mean, 0.2, label=group.name.partition(", ")[2])
        axes.set_xticks(range(len(tasks)), tasks, rotation=45)
        axes.set(title=task, ylim=(0, 1))
        axes.legend(fontsize=6)
    return figure


def samples(record: Record) -> Figure:
    """Test rows as circles and generated rows as crosses, a colour per class, a panel per task."""
    figure = Figure(figsize=(7, 2.2), layout="constrained")
    for axes, group in zip(
        figure.subplots(1, len(record["scatter"])), record["scatter"], strict=True
    ):
        for kind, marker, alpha in (("test", "o", 0.4), ("generated", "x", 1.0)):
            points = np.array(group[kind])
            colours = [f"C{int(code) - 1}" for code in points[:, 2]]
            axes.scatter(*points[:, :2].T, s=10, c=colours, marker=marker, alpha=alpha)
        axes.set(title=group["task"])
    return figure


def save(figure: Figure, path: Path) -> None:
    """SVG without a date, so that equal records give equal files."""
    figure.savefig(path, metadata={"Date": None})
