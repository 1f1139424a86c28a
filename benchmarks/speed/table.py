"""The table of speed from its JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

INTRO = """## Speed

Ratios within one run, medians of repeats, both sides in turn on the same threads, answers \
compared before anything is timed. On one thread the seconds are the processor's own, so that \
other work on the machine does not count; on several they are wall-clock. `docs/performance.md` \
says what the figures are made of.
"""


def section(folder: Path) -> str:
    """The section of the page; empty where nothing was measured."""
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    lines = [line for record in records for line in lines_of(record)]
    if not lines:
        return ""
    head = ["| what | against | measured | mark | reached | threads | checked |", "|---" * 7 + "|"]
    commands = sorted({record["command"] for record in records})
    machines = sorted({record["hardware"] for record in records})
    tail = [
        "",
        "Commands:",
        "",
        "```",
        *commands,
        "```",
        "",
        "Machine: " + "; ".join(machines) + ".",
    ]
    return "\n".join([INTRO, *head, *lines, *tail, ""])


def lines_of(record: dict[str, Any]) -> list[str]:
    """One line per row; the file of the GPU has a form of its own."""
    rows = record["rows"] if "rows" in record else gpu_rows(record)
    return [
        f"| {row['what']} | {row['against']} | {number(row['value'])}{unit(row)} "
        f"| {'>=' if row['at_least'] else '<='} {number(row['mark'])}{unit(row)} "
        f"| {'yes' if row['reached'] else 'no'} | {record.get('threads', 'GPU')} "
        f"| {row['checked']} |"
        for row in rows
    ]


def gpu_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The two rows of the GPU, as the library takes them: recorded, in full float32."""
    found = []
    marks = record["marks"]
    step = record.get("step", {}).get("recorded", {})
    if "step_ms" in step:
        gap = step["loss_relative_to_eager"]
        found.append(
            {
                "what": "one incremental step, the paper's CIFAR setting",
                "against": "272 ms in the paper, on an RTX 2060",
                "value": step["step_ms"],
                "mark": marks["step_ms"],
                "unit": "ms",
                "checked": f"summed loss of an epoch within {gap:.0e} of eager steps",
            }
        )
    if "sequence" in record:
        whole = record["sequence"]
        found.append(
            {
                "what": f"whole S-CIFAR-100 sequence, {whole['epochs']} epochs a batch",
                "against": "2,917 s in the paper",
                "value": whole["seconds"],
                "mark": marks["sequence_s"],
                "unit": "s",
                "checked": f"accuracy at the end {whole['accuracy']:.3f}",
            }
        )
    return [{**row, "at_least": False, "reached": row["value"] <= row["mark"]} for row in found]


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def unit(row: dict[str, Any]) -> str:
    """With a space before a unit of time, none before x."""
    name: str = row["unit"]
    return name if name in ("", "x") else f" {name}"
