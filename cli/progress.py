"""Progress on stderr: a line for each epoch of training, the share of a table that is read."""

from collections.abc import Callable, Sequence
from time import perf_counter

from mlpengine.core.wording import printable
from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop

from .streams import say

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
    """One line of text for each epoch."""

    def on_train_start(self, loop: Loop) -> None:
        """Print the header."""
        self._began, self._first = perf_counter(), len(loop.history.rows)
        titles = table_columns(loop)
        say(aligned_line([title for title, _ in titles], titles), err=True)

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Print an epoch; a star marks the best so far."""
        per_epoch = (perf_counter() - self._began) / (row.epoch - self._first)
        texts = cells(loop, row, (loop.epochs - row.epoch) * per_epoch)
        star = " *" if loop.best_epoch == row.epoch and row.validation else ""
        say(aligned_line(texts, table_columns(loop)) + star, err=True)


def progress(quiet: bool) -> list[Progress]:
    """Return the callback that shows epochs, unless `quiet`."""
    return [] if quiet else [Progress()]


class Meter:
    """Prints the share of a table that is processed: after a second, and then every 5 seconds."""

    FIRST, NEXT = 1.0, 5.0
    """Seconds before the first line, and between lines."""

    def __init__(self, title: str, clock: Callable[[], float] = perf_counter) -> None:
        self._title, self._clock = printable(title), clock
        self._due = clock() + self.FIRST

    def __call__(self, share: float) -> None:
        """Print the share that is done, if a line is due."""
        if self._clock() >= self._due:
            self._due = self._clock() + self.NEXT
            say(f"{self._title}: {share:.0%}", err=True)
