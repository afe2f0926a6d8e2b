"""Progress of training on stderr: the epochs, and the work before and after them."""

import sys
from collections.abc import Sequence
from math import isnan
from time import perf_counter
from typing import Any, Self, TextIO

from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop

SHOWN_METRICS = 3
"""Maximum number of validation metrics in a line; metrics.csv has all of them."""

REWRITE_SECONDS = 0.1
"""Shortest time between two texts of a rewritten line, in seconds."""

LIVE_WIDTH = 79


def is_live(stream: TextIO | None) -> bool:
    """Return whether a person sees a stream: a terminal, or the output of a notebook."""
    return stream is not None and (stream.isatty() or is_of_notebook(stream))


def is_of_notebook(stream: TextIO) -> bool:
    """Return whether a stream is the output of a notebook's cell."""
    return type(stream).__module__.startswith("ipykernel")


class Progress(Callback):
    """Shows the epochs, in a single line that is rewritten or in a line for each epoch.

    As a context manager, a `Progress` clears the rewritten line at the end.

    Args:
        shown: whether to show anything; by default, if a person sees stderr.
        live: whether to rewrite a single line; by default, if a person sees stderr.
    """

    def __init__(self, shown: bool | None = None, *, live: bool | None = None) -> None:
        seen = is_live(sys.stderr)
        self._shown = seen if shown is None else shown
        self._live = seen if live is None else live
        self._due, self._width = 0.0, 0
        self._output: Any = None  # the display in a notebook's cell

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._width:
            self.stage("")

    def stage(self, text: str) -> None:
        """Show the work that begins now, such as reading a table."""
        if self._live:
            self._rewrite(text)
        else:
            self._print(text)

    def on_train_start(self, loop: Loop) -> None:
        self._began, self._first = perf_counter(), len(loop.history.rows)
        self._titles = table_columns(loop)
        if not self._live:
            self._print(aligned_line([title for title, _ in self._titles], self._titles))

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Show an epoch; a star marks an improvement."""
        now = perf_counter()
        if not self._shown or (self._live and now < self._due):
            return
        self._due = now + REWRITE_SECONDS
        per_epoch = (now - self._began) / (row.epoch - self._first)
        texts = cells(loop, row, (loop.epochs - row.epoch) * per_epoch)
        if self._live:
            pairs = zip(self._titles, texts, strict=True)
            self._rewrite("  ".join(f"{title} {text}" for (title, _), text in pairs))
            return
        star = " *" if loop.best_epoch == row.epoch and row.validation else ""
        self._print(aligned_line(texts, self._titles) + star)

    def _rewrite(self, text: str) -> None:
        text = text[:LIVE_WIDTH]
        if self._shown and is_of_notebook(sys.stderr):
            self._replace_output({"text/plain": text})
            self._width = len(text)
            return
        self._print(f"\r{text.ljust(self._width)}\r{text}", end="")
        self._width = len(text)

    def _replace_output(self, content: dict[str, str]) -> None:
        """Show the content below the notebook's cell, in place of the content before."""
        from IPython.display import display

        if self._output is None:
            self._output = display(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)

    def _print(self, text: str, end: str = "\n") -> None:
        if self._shown:
            print(text, end=end, file=sys.stderr, flush=True)


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
    measured = list(row.validation.values())
    return [
        f"{row.epoch}/{loop.epochs}",
        f"{row.train_loss:.4g}",
        *("-" if isnan(value) else f"{value:.4g}" for value in measured[:SHOWN_METRICS]),
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
