"""Pictures of the tables' curves, drawn from the JSON records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

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


def draw(records: list[Record], folder: Path) -> Pictures:
    """Every picture that the records allow, as (text, file) by experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: Pictures = {}
    with mpl.rc_context({"svg.hashsalt": "clbruno", "font.size": 8}):
        for name in ("cifar100", "pancan"):
            seen = [r for r in records if r["experiment"] == name and r["method"] in LINE_METHODS]
            if seen:
                save(learning_curves(seen), folder / f"{name}-curves.svg")
                text = "Accuracy over the classes seen after every batch"
                pictures.setdefault(name, []).append((text, f"{name}-curves.svg"))
        for name in ("pancan", "ici"):
            seen = [r for r in records if r["experiment"] == name]
            if any(r["method"] == "clbruno" for r in seen):
                save(retention(seen), folder / f"{name}-retention.svg")
                text = "Error on each batch's test rows after every step; triangles: oracle"
                pictures.setdefault(name, []).append((text, f"{name}-retention.svg"))
        heats = [r for r in records if (r["experiment"], r["method"]) == ("ici", "clbruno")]
        if heats:
            save(heat_map(heats), folder / "ici-tasks.svg")
            pictures.setdefault("ici", []).append(("Mean p(therapy | x)", "ici-tasks.svg"))
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


def retention(records: list[Record]) -> Figure:
    """1 - A[i, j] of CL-BRUNO as lines and of its oracle as triangles."""
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for method, style in (("clbruno", ".-"), ("clbruno-oracle", "^")):
        runs = [record for record in records if record["method"] == method]
        if not runs:
            continue
        error = 1 - mean_matrix(runs)
        for j in range(len(error)):
            steps = np.arange(j, len(error))
            label = f"batch {j + 1}" if method == "clbruno" else None
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


def save(figure: Figure, path: Path) -> None:
    """SVG without a date, so that equal records give equal files."""
    figure.savefig(path, metadata={"Date": None})
