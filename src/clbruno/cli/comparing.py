"""`clbruno compare`: does a batch look like what was learned?"""

import dataclasses

import click
import numpy as np

from clbruno.cli.console import say, show_json, show_table
from clbruno.cli.program import DRIFTED
from clbruno.cli.tables import chunks_of_features, names_like
from clbruno.data.readers import Columns
from clbruno.persist import load

_SHOWN = 5


def compare(
    model: str, data: str, task: str | None, level: float, ignore: tuple[str, ...], as_json: bool
) -> None:
    """Show the comparison, and end with its own code on drift."""
    reader = load(model)
    registry = reader.model_.registry
    known = None if task is None else names_like(registry.tasks[0], [task], "task")[0]
    columns = Columns(ignore=ignore)
    x = np.concatenate([rows for _, rows in chunks_of_features(data, columns, reader)])
    found = reader.compare(x, known)
    drift = found.p_value < level
    if as_json:
        show_json({**dataclasses.asdict(found), "p_value": found.p_value, "drift": drift})
    else:
        show_table(
            ["task", "p(task)", "from", "to", "p by means", "p by densities", "differs most in"],
            [
                (
                    str(match.task),
                    match.share,
                    *match.interval,
                    _p(match.p_location),
                    _p(match.p_density),
                    ", ".join(f"{d.feature} {d.shift:+.2f}" for d in match.differences[:_SHOWN]),
                )
                for match in found.matches
            ],
        )
        say(f"{found.rows:,} rows, nearest task {found.nearest}, p-value {_p(found.p_value)}.")
        if drift:
            say(f"Drift: the rows fit no task at the level {level:g}.")
    if drift:
        click.get_current_context().exit(DRIFTED)


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
