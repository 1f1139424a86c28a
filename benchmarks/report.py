"""Make benchmarks/README.md from the JSON files alone."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import relations
from benchmarks.methods import METHODS
from benchmarks.speed import table as speed

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
PUBLISHED = json.loads((HERE / "published.json").read_text(encoding="utf-8"))
Record = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """One experiment's section: its words and the figures that stand in its columns.

    ``open`` says why there are no figures, where that is not just for want of a run.
    """

    title: str
    text: str
    columns: tuple[tuple[str, str], ...]
    open: str = ""


LOSSES = (("ece", "ECE"), ("nll", "NLL"))
CIFAR_COLUMNS = (
    ("accuracy", "final accuracy"),
    ("accuracy_incremental", "average accuracy"),
    ("forgetting", "forgetting"),
    ("backward_transfer", "backward transfer"),
    *LOSSES,
)
TABLES = {
    "synthetic": Table(
        "Synthetic data (supplement B.1)",
        "Four tasks in 1,000 dimensions, learned in five increments. The paper states under 1 % "
        "label error and under 5 % task error on each task.",
        (
            ("error_task_known", "label error, task known"),
            ("error_task_identity", "task-identity error"),
            ("forgetting_task_known", "forgetting"),
            ("ece_task_known", "ECE"),
            ("nll_task_known", "NLL"),
        ),
    ),
    "cifar100": Table(
        "CIFAR-100 on frozen features (Table 1)",
        "One task, ten batches of ten classes. The features come from a ResNet-18 trained on the "
        "first ten classes; the paper's own backbone differs, so its column is for orientation.",
        CIFAR_COLUMNS,
    ),
    "cifar100-images": Table(
        "CIFAR-100 from images",
        "The same from the images: a ResNet-18 trained on the first ten classes only, one per "
        "seed, by `python -m benchmarks.backbone`, then frozen.",
        CIFAR_COLUMNS,
        open="The images are not among the data files, so this row is open. The code is tested "
        "from a small made archive to the answers.",
    ),
    "mnist": Table(
        "MNIST from pixels (Table 1)",
        "Five tasks of two digits. The two accuracies answer different questions and are never "
        "mixed: with the task known (two digits to choose from), and 10-way with it unknown.",
        (
            ("accuracy_task_known_mean_of_tests", "accuracy, task known"),
            ("accuracy", "10-way accuracy, task unknown"),
            ("error_task_identity", "task-identity error"),
            ("forgetting", "forgetting, 10-way"),
            ("ece", "ECE, 10-way"),
            ("nll", "NLL, 10-way"),
        ),
    ),
    "pancan": Table(
        "PANCAN (Table 2, Fig. 5a)",
        "One task, tumour types in six batches; 80/20 split stratified by type.",
        (
            ("error", "final error"),
            ("accuracy_incremental", "average accuracy"),
            ("forgetting", "forgetting"),
            ("backward_transfer", "backward transfer"),
            *LOSSES,
        ),
    ),
    "ici": Table(
        "ICI (Table 2, Fig. 5b and 6a)",
        "Six therapies as tasks, cancer type as label; 80/20 split stratified by therapy and type. "
        "The error is over all test rows; the mean over therapies gives small ones equal weight.",
        (
            ("error_task_known", "error, therapy known"),
            ("accuracy_task_known_mean_of_tests", "accuracy, mean over therapies"),
            ("error_task_identity", "therapy-identity error"),
            ("forgetting_task_known", "forgetting"),
            ("forward_transfer", "forward transfer"),
            ("ece_task_known", "ECE"),
            ("nll_task_known", "NLL"),
        ),
    ),
}
COST_COLUMNS = (
    ("seconds_a_step", "seconds a step"),
    ("seconds_a_draw", "seconds a draw of pseudo-data"),
    ("share_of_drawing", "share of the steps spent on drawing"),
    ("peak_mib_learning", "peak memory, MiB"),
    ("floats_stored", "numbers stored"),
)
OUTLIER_COLUMNS = (
    ("auroc", "AUROC of log p(x)"),
    ("false_alarms", "false alarms at 5 %"),
    ("outliers_found", "outliers found at 5 %"),
)
OUTLIERS = (
    "Each {what} in turn is left out of learning and then plays the outlier; the mean over all of "
    "them. False alarms should be near 0.05. CL-BRUNO uses its own level sets, ranked among rows "
    "that it held back; the others take their threshold from training rows held back."
)
TABLES |= {
    "outliers-mnist": Table(
        "Outliers, MNIST (supplement A.3)", OUTLIERS.format(what="digit"), OUTLIER_COLUMNS
    ),
    "outliers-pancan": Table(
        "Outliers, PANCAN (supplement A.3)", OUTLIERS.format(what="type"), OUTLIER_COLUMNS
    ),
    "outliers-ici": Table(
        "Outliers, ICI (supplement A.3)", OUTLIERS.format(what="therapy"), OUTLIER_COLUMNS
    ),
}
TABLES["cost"] = Table(
    "Cost of a step against N' (section 5.3)",
    "The second batch of the CIFAR-100 features, two passes of the paper's recipe with N' = 128, "
    "64 and 32; the statistics and scores of the update are in the seconds. The paper reports "
    "0.272 s a step and 0.017 s a draw of 128, so 7 %, on its own machine.",
    COST_COLUMNS,
)
RELATIONS = (
    "Which therapies a therapy's test rows look like, by cancer and response: mean p(therapy | x) "
    "of {title} (supplement B.3.1, Fig. 6-7). The paper sets these groups against an untreated "
    "group, which these data do not have, and against Ipi."
)
COST = (
    ("seconds_learning", "learning, s"),
    ("seconds_tuning", "tuning, s"),
    ("seconds_answering", "answering, s"),
    ("peak_mib_learning", "peak memory, MiB"),
    ("floats_stored", "numbers stored"),
)
INTRO = """# Benchmarks

This page is generated by `python -m benchmarks report` from the JSON files in `results/`; do not \
edit it. `DIR` is a folder with the data files. Every method learns each batch once, in the same \
order, from the same rows, and is asked the same questions; rows marked as ceilings or oracle keep \
all data. Spreads are standard deviations over the seeds. Where a method has a grid, its settings \
were chosen on a tenth of the training rows, held back from every batch, and the method was then \
trained on all of them; grid, scores and choice stand in each JSON file. A method that is not in a \
table was not run yet. Columns named "paper" quote the paper's own figure, on its own data. \
Times are wall-clock seconds, and rough: the machine may have had other work.
"""


def write(folder: Path, target: Path = README) -> None:
    """Render the page and its pictures."""
    from benchmarks import curves  # late: only the pictures need matplotlib

    records = load(folder)
    pictures = curves.draw(records, target.parent / "pictures")
    page = render(records, pictures, speed.section(folder / "speed"))
    target.write_text(page, encoding="utf-8")


def load(folder: Path) -> list[Record]:
    """Every record, without the quick and the made-up ones."""
    paths = sorted(path for path in folder.glob("*/*.json") if path.parent.name in TABLES)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [record for record in records if not record["quick"] and not record["made_data"]]


def render(
    records: list[Record], pictures: dict[str, list[tuple[str, str]]], of_speed: str = ""
) -> str:
    """The whole page."""
    parts = [INTRO]
    for name, table in TABLES.items():
        rows = {
            method: runs
            for method in METHODS
            if (runs := [r for r in records if (r["experiment"], r["method"]) == (name, method)])
        }
        if rows:
            parts.append(section(table, rows, PUBLISHED.get(name, {}), pictures.get(name, [])))
        elif table.open:
            parts.append(f"## {table.title}\n\n{table.text}\n\n**Open.** {table.open}\n")
    return "\n".join([*parts, of_speed] if of_speed else parts)


def section(
    table: Table,
    rows: dict[str, list[Record]],
    published: dict[str, str],
    pictures: list[tuple[str, str]],
) -> str:
    """Heading, stand-in warning, figures, pictures, cost, commands."""
    lines = [f"## {table.title}", "", table.text, ""]
    stand_in = next((r["stand_in"] for runs in rows.values() for r in runs if r["stand_in"]), "")
    if stand_in:
        lines += [f"**Stand-in data:** {stand_in}. The paper's figures are not comparable.", ""]
    lines += figures_table(table, rows, published)
    lines += [f"\n![{alt}](pictures/{file})" for alt, file in pictures]
    for method in ("clbruno", "clbruno-paper"):
        if method in rows and "task_by_response" in rows[method][0]:
            lines += ["", RELATIONS.format(title=rows[method][0]["title"]), ""]
            lines += relations.table(rows[method])
    if table.columns not in (OUTLIER_COLUMNS, COST_COLUMNS):
        paper = PUBLISHED["seconds"] if table is TABLES["cifar100"] else {}
        lines += ["", "Cost, and the settings chosen most often:", "", *cost_table(rows, paper)]
    lines += ["", "Commands:", "", "```", *commands(rows), "```", ""]
    lines += sorted(
        {f"- {r['title']}: {r['note']}." for q in rows.values() for r in q if r["note"]}
    )
    machines = sorted({run["hardware"] for runs in rows.values() for run in runs})
    lines += ["", "Machine: " + "; ".join(machines) + ".", ""]
    return "\n".join(lines)


def figures_table(
    table: Table, rows: dict[str, list[Record]], published: dict[str, str]
) -> list[str]:
    """One row per method, with the paper's figure in the last column."""
    heads = ["method", "seeds", *(head for _, head in table.columns)]
    if published:
        heads.append("paper: " + dict(table.columns)[published["measure"]])
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method, runs in rows.items():
        cells = [spread([run["figures"].get(key) for run in runs]) for key, _ in table.columns]
        cells += [published.get(method, "")] if published else []
        lines.append(f"| {runs[0]['title']} | {len(runs)} | " + " | ".join(cells) + " |")
    return lines


def cost_table(rows: dict[str, list[Record]], paper: dict[str, str]) -> list[str]:
    """Seconds, memory, numbers stored, the settings that tuning chose, and the paper's seconds."""
    heads = ["method", *(head for _, head in COST), "settings"]
    if paper:
        heads.append("paper: seconds, images included, on its own machine")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method, runs in rows.items():
        cells = [amount([run["figures"].get(key) for run in runs]) for key, _ in COST]
        chosen = [json.dumps(run["settings"]) for run in runs]
        settings = json.loads(statistics.mode(chosen))
        cells.append(", ".join(f"{key} {value}" for key, value in settings.items()))
        cells += [paper.get(method, "")] if paper else []
        lines.append(f"| {runs[0]['title']} | " + " | ".join(cells) + " |")
    return lines


def commands(rows: dict[str, list[Record]]) -> list[str]:
    """One line per set of seeds and device that repeats the rows above."""
    groups: dict[tuple[str, str], list[str]] = {}
    for method, runs in rows.items():
        seeds = ",".join(str(seed) for seed in sorted(run["seed"] for run in runs))
        device = " --device cuda" if "--device cuda" in runs[0]["command"] else ""
        groups.setdefault((seeds, device), []).append(method)
    name = next(iter(rows.values()))[0]["experiment"]
    return [
        f"python -m benchmarks {name} --data DIR --seeds {seeds} --methods "
        + ",".join(methods)
        + device
        for (seeds, device), methods in groups.items()
    ]


def spread(values: list[float | None]) -> str:
    """Mean and standard deviation with three decimals; a dash where there is no figure."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.3f}"
    return f"{mean} ± {statistics.stdev(known):.3f}" if len(known) > 1 else mean


def amount(values: list[float | None]) -> str:
    """Mean of a cost, in whole numbers from ten on."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = statistics.fmean(known)
    return f"{mean:,.0f}" if mean >= 10 else f"{mean:.1f}"
