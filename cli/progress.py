"""Progress on stderr: a row for each epoch of training, the share of a table that is read."""

import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from mlpengine.core.wording import printable
from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop

from .streams import say

NOTEBOOK = "JPY_PARENT_PID"
"""The variable that Jupyter sets for its kernels.  Their cells also run commands (!mlpengine)."""

SHOWN_METRICS = 3
"""Validation metrics in a row; metrics.csv holds all."""


def table_columns(loop: Loop) -> list[tuple[str, int]]:
    """Return title and width of each column, at most 80 characters in all."""
    names = {"loss": "val loss"}
    measured = [
        (names.get(n, n.replace("_", " ")), 8) for n in loop.history.metrics[:SHOWN_METRICS]
    ]
    fixed = [("grad norm", 9), ("lr", 8), ("rows/s", 9), ("left", 5)]
    return [("epoch", len(f"{loop.epochs}") * 2 + 1), ("train loss", 10), *measured, *fixed]


def cells(loop: Loop, row: EpochRow, seconds_left: float) -> list[str]:
    """Return the texts of one row."""
    return [
        f"{row.epoch}/{loop.epochs}",
        f"{row.train_loss:.4g}",
        *(f"{value:.4g}" for value in list(row.validation.values())[:SHOWN_METRICS]),
        f"{row.gradient_norm:.3g}",
        f"{row.lr:.2e}",
        f"{row.samples_per_second:,.0f}",
        clock(seconds_left),
    ]


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours and minutes: 2:07, 3h04."""
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes}:{round(seconds) % 60:02d}"
    return f"{minutes // 60}h{minutes % 60:02d}"


def aligned_line(texts: Sequence[str], widths: Sequence[tuple[str, int]]) -> str:
    """Return one line of the table."""
    pairs = zip(texts, widths, strict=True)
    return " ".join(text.rjust(max(width, len(title))) for text, (title, width) in pairs)


class Progress(Callback):
    """One line of text for each epoch: for files, pipes and logs.

    With `verbose` the table of the loop's diagnostics follows, a line for each layer.
    """

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose

    def on_train_start(self, loop: Loop) -> None:
        """Print the header."""
        self._began, self._first = perf_counter(), len(loop.history.rows)
        titles = table_columns(loop)
        self._print(aligned_line([title for title, _ in titles], titles))

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Print an epoch; a star marks the best so far."""
        per_epoch = (perf_counter() - self._began) / (row.epoch - self._first)
        texts = cells(loop, row, (loop.epochs - row.epoch) * per_epoch)
        star = " *" if loop.best_epoch == row.epoch and row.validation else ""
        self._print(aligned_line(texts, table_columns(loop)) + star)
        diagnostics = loop.callback("diagnostics") if self._verbose else None
        if diagnostics is not None:
            self._print(diagnostics.table())

    def close(self) -> None:
        """Restore the terminal."""

    def _print(self, line: str) -> None:
        say(line, err=True)


class RichProgress(Progress):
    """The same rows in color, above a bar that shows the share of epochs."""

    def __init__(self, verbose: bool = False) -> None:
        super().__init__(verbose)
        self._bar = _bar()

    def on_train_start(self, loop: Loop) -> None:
        """Print the header and show the bar."""
        self._bar.start()
        self._task = self._bar.add_task("training", total=loop.epochs)
        super().on_train_start(loop)

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Print an epoch and move the bar."""
        super().on_train_epoch_end(loop, row)
        self._bar.update(self._task, completed=row.epoch)

    def close(self) -> None:
        """Remove the bar and restore the terminal."""
        self._bar.stop()

    def _print(self, line: str) -> None:
        style = "bold green" if line.endswith("*") else "bold" if "epoch" in line else None
        self._bar.console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def progress(quiet: bool, verbose: bool = False) -> list[Progress]:
    """Return the callback for stderr: a bar on a terminal, plain lines otherwise."""
    if quiet:
        return []
    return [RichProgress(verbose) if shows_bars() else Progress(verbose)]


def shows_bars() -> bool:
    """Return whether stderr is a terminal that moves its cursor; a cell of a notebook does not."""
    return sys.stderr.isatty() and NOTEBOOK not in os.environ


class Meter:
    """The share of a table that is processed, on stderr: a bar, or lines where it is no terminal.

    Work of less than a second shows nothing.
    """

    FIRST, NEXT = 1.0, 5.0
    """Seconds before the first line, and between lines, where stderr is no terminal."""

    def __init__(self, title: str, clock: Callable[[], float] = perf_counter) -> None:
        self._title, self._clock = printable(title), clock
        self._due = clock() + self.FIRST
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, share: float) -> None:
        """Show the share that is done, if an update is due."""
        if self._bar is not None:
            self._bar.update(self._task, completed=share)
        elif self._clock() >= self._due:
            self._due = self._clock() + self.NEXT
            if shows_bars():
                self._bar = _bar()
                self._bar.start()
                self._task = self._bar.add_task(self._title, total=1.0, completed=share)
            else:
                say(f"{self._title}: {share:.0%}", err=True)


def _bar() -> Any:
    """Return a bar on stderr that disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
