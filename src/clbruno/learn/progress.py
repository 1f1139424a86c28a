"""A progress bar per update: in a terminal and in a notebook, silent in a pipe."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from clbruno.history import UpdateRecord
from clbruno.learn.trainer import Epoch

SHOWN = ("accuracy", "log_loss")
"""Held-back figures that are shown of an update without epochs."""


class Progress:
    """Shows epochs, loss, held-back score and the time left of one update.

    Args:
        verbose: 0 shows nothing.
        title: what is being done.
        transient: take the bar away at the end.
    """

    def __init__(self, verbose: int, title: str, *, transient: bool = False) -> None:
        console = Console(stderr=True)
        shown = bool(verbose) and (console.is_terminal or console.is_jupyter)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=transient,
            disable=not shown,
        )
        self._title = title

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=None, figures="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_epoch(self, epoch: Epoch) -> None:
        """Show an epoch that has ended."""
        figures = (
            f"epoch {epoch.number}/{epoch.of}  loss {epoch.loss:.4f}  "
            f"held-back {epoch.score:.4f} (best {epoch.best:.4f})"
        )
        self._bar.update(self._task, completed=epoch.number, total=epoch.of, figures=figures)

    def on_end(self, record: UpdateRecord) -> None:
        """Fill the bar; where there was no epoch, show what the closed form came to."""
        task = self._bar.tasks[self._task]
        if task.total is None:
            shown = {name: record.after[name] for name in SHOWN if name in record.after}
            after = [f"held-back {name} {value:.4f}" for name, value in shown.items()]
            figures = "  ".join(["in closed form", *after]).replace("_", "-")
            self._bar.update(self._task, total=1, figures=figures)
        self._bar.update(self._task, completed=task.total)
