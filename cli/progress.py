"""Progress of reading a table, printed to stderr."""

from collections.abc import Callable
from time import perf_counter

from mlpengine.core.wording import printable

from .streams import say


class Meter:
    """Prints the processed share of a table, after a second and then every 5 seconds."""

    FIRST, NEXT = 1.0, 5.0
    """Seconds before the first line and between lines."""

    def __init__(self, title: str, clock: Callable[[], float] = perf_counter) -> None:
        self._title, self._clock = printable(title), clock
        self._due = clock() + self.FIRST

    def __call__(self, share: float) -> None:
        """Print the processed share if a line is due."""
        if self._clock() >= self._due:
            self._due = self._clock() + self.NEXT
            say(f"{self._title}: {share:.0%}", err=True)
