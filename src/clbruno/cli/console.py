"""What is shown: tables, JSON, progress. Results go to standard output, the rest to the other."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

Item = TypeVar("Item")

_PATIENCE = 1.0
_WIDE = 200


def say(message: str) -> None:
    """Print one line for a person."""
    click.echo(printable(message))


def show_json(value: object) -> None:
    """Print one JSON document for a program."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table; numbers stand to the right."""
    table = Table(title=Text(title) if title else None, title_justify="left")
    body = [[_cell(value) for value in row] for row in rows]
    for at, name in enumerate(columns):
        numeric = body and all(row[at].justify == "right" for row in body)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in body:
        table.add_row(*row)
    # In a pipe nothing is folded to the width of a terminal that is not there.
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(table)


def printable(text: str) -> str:
    """The text without control characters, which a name in a file could use against a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def watched(items: Iterable[Item], what: str, size: Callable[[Item], int]) -> Iterator[Item]:
    """The same items; on a terminal, a count of their rows once it takes over a second."""
    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    began = time.monotonic()
    counter = progress.add_task(what, total=None)
    try:
        for item in items:
            yield item
            progress.advance(counter, size(item))
            if time.monotonic() - began > _PATIENCE:
                progress.start()
    finally:
        progress.stop()


def _cell(value: Any) -> Text:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return Text(printable(str(value)))
    return Text(f"{value:,}" if isinstance(value, int) else f"{value:.3f}", justify="right")
