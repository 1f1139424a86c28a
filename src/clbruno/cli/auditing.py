"""`clbruno audit`: attack a model with rows that it has learned and rows that it has not."""

import dataclasses

import numpy as np

from clbruno.audit import FALSE_POSITIVES, Rows
from clbruno.audit import audit as attack
from clbruno.cli.console import say, show_json, show_table
from clbruno.cli.tables import Source, read_labelled
from clbruno.errors import InputError
from clbruno.persist import load


def audit(
    model: str,
    members: str,
    non_members: str,
    label: str,
    task: str | None,
    task_column: str | None,
    ignore: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Show what the attacks found."""
    if task is not None and task_column is not None:
        raise InputError("give --task for all rows, or --task-column for one per row, not both")
    learner = load(model)

    def rows(path: str) -> Rows:
        table = read_labelled(Source(path, label, task, task_column, ignore), learner)
        return Rows(table.x.astype(np.float64), table.labels, table.tasks)

    found = attack(learner, rows(members), rows(non_members), seed=seed)
    if as_json:
        show_json(dataclasses.asdict(found))
        return
    show_table(
        ["rows", "members", "others", "attack", "AUC"]
        + [f"found at {rate:.1%} false" for rate in FALSE_POSITIVES],
        [
            (group.name, group.members, group.others, each.name, each.auc, *each.hits)
            for group in found.groups
            for each in group.attacks
        ],
    )
    say(
        f"Generated rows: {found.closer_to_members:.1%} are closer to a member than to another row "
        f"(50 % is no sign of memory); median ratio of the distances {found.distance_ratio:.3f}.\n"
        "These are lower bounds: another attack may find more, and no number here is a guarantee."
    )
