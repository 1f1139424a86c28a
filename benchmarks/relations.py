"""Supplement B.3.1: which therapies a therapy's samples look like, by cancer type and response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.stream import FloatArray

Record = dict[str, Any]
ASKED = {"Atezo": ("kidney", ("KICH", "KIRC", "KIRP")), "Nivo": ("skin", ("SKCM",))}
"""The two therapies of Fig. 6 and 7, and the cancer that is set against all others there."""
RESPONSES = {"R": "responders", "NR": "non-responders"}


@dataclass(frozen=True)
class Group:
    """Test rows of one therapy, of a cancer or of the others, with one response."""

    task: str
    name: str
    rows: int
    mean: FloatArray


def groups(records: list[Record]) -> list[Group]:
    """Mean p(t | x) of each group over the test rows of all seeds."""
    found = []
    for task, (organ, types) in ASKED.items():
        for inside in (True, False):
            for response, word in RESPONSES.items():
                parts = [
                    part
                    for record in records
                    for part in record["task_by_response"]
                    if part["task"] == task
                    and (part["label"] in types) == inside
                    and part["response"] == response
                ]
                if parts:
                    rows = [part["rows"] for part in parts]
                    mean = np.average([part["mean"] for part in parts], axis=0, weights=rows)
                    name = f"{task}, {organ if inside else 'not ' + organ}, {word}"
                    found.append(Group(task, name, sum(rows), mean))
    return found


def table(records: list[Record]) -> list[str]:
    """One row per group, one column per therapy."""
    heads = ["group", "test rows, all seeds", *records[0]["tasks"]]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for group in groups(records):
        cells = [str(group.rows), *(f"{value:.3f}" for value in group.mean)]
        lines.append(f"| {group.name} | " + " | ".join(cells) + " |")
    return lines
