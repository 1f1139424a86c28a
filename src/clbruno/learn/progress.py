"""A progress bar per update: in a terminal and in a notebook, silent in a pipe."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from clbruno.learn.trainer import Epoch


class Progress:
    """Shows epochs, loss, held-back score and the time left of one update.

    Args:
        verbose: 0 shows nothing.
        title: what is being done.
    """

    def __init__(self, verbose: int, title: str) -> None:
        console = Console(stderr=True)
        shown = bool(verbose) and (console.is_terminal or console.is_jupyter)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
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
