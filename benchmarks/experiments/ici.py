"""Supplement table, ICI: cancer type within therapy, one therapy after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import data
from benchmarks.stream import Step, Stream, split_stratified

UNNAMED = ("Uknow", "Other")
STAND_IN = (
    "132 gene-set scores (mean expression and ssGSEA) of 1,133 tumours stand in for the paper's "
    "gene matrix of 1,142; there is no untreated group, so six therapies instead of seven groups"
)


def build(folder: Path | None, seed: int, quick: bool) -> Stream:
    """Features [log(x_mean + 0.01), x_ssgsea]; the named therapies as tasks in descending count.

    The 80/20 split is stratified by (therapy, type); a class with no training row is left out.
    """
    arrays = data.read("ici", folder)
    x = np.concatenate(
        [np.log(arrays["x_mean"].astype(np.float64) + 0.01), arrays["x_ssgsea"]], axis=1
    ).astype(np.float32)
    therapy, y = arrays["therapy"].astype(str), arrays["cancer_type"].astype(str)
    names, counts = np.unique(therapy[~np.isin(therapy, UNNAMED)], return_counts=True)
    train, test = split_stratified(np.char.add(np.char.add(therapy, "|"), y), seed)
    steps, tests, response = [], [], []
    for index in np.lexsort((names, -counts)):
        task = str(names[index])
        left = train[therapy[train] == task]
        right = test[(therapy[test] == task) & np.isin(y[test], y[left])]
        steps.append(Step(x[left], y[left], task))
        tests.append(Step(x[right], y[right], task))
        response.append(arrays["response"][right].astype(str))
    notes = {"response": np.concatenate(response)}
    return Stream("ici", tuple(steps), tuple(tests), "" if folder is None else STAND_IN, notes)
