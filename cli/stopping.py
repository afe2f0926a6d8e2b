"""Ctrl-C and SIGTERM during training: the first ends it after the step, the second at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stopping:
    """Which signal came, if any; `code` is what the command then ends with."""

    def __init__(self) -> None:
        self.code = 0
        self._stop: Callable[[], None] | None = None

    def attach(self, stop: Callable[[], None]) -> None:
        """Have the first signal call `stop` from now on; at once if it came already."""
        self._stop = stop
        if self.code:
            stop()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Answer a signal: stop what is attached, or else leave; leave at the second."""
        code = EXIT_CODES[signal.Signals(number)]
        if self.code:
            os._exit(code)
        self.code = code
        if self._stop is None:
            _say(b"interrupted\n")
            raise SystemExit(code)  # a callback from C may swallow it: then `attach` stops
        _say(b"\nstopping after this step; again to leave at once\n")
        self._stop()


@contextmanager
def stops() -> Iterator[Stopping]:
    """Answer SIGINT and SIGTERM in our own way for as long as the context lasts."""
    state = Stopping()
    before = {number: signal.signal(number, state.handle) for number in EXIT_CODES}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: bytes) -> None:
    """Write at once, past the streams, which a handler may have interrupted."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, text)


def leave(state: Stopping) -> None:
    """End the command with the code of the signal that came."""
    if state.code:
        click.get_current_context().exit(state.code)
