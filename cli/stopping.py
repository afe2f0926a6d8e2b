"""Ctrl-C and SIGTERM during training: the first ends it after the step, the second at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stopping:
    """Which signal came, if any; `code` is what the command then ends with."""

    def __init__(self) -> None:
        self.code = 0


@contextmanager
def stops(stop: Callable[[], None]) -> Iterator[Stopping]:
    """Call `stop` at the first signal and leave the process at the second."""
    state = Stopping()

    def handle(number: int, _frame: FrameType | None) -> None:
        code = EXIT_CODES[signal.Signals(number)]
        if state.code:
            os._exit(code)
        state.code = code
        os.write(2, b"\nstopping after this step; again to leave at once\n")
        stop()

    before = {number: signal.signal(number, handle) for number in EXIT_CODES}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(state: Stopping) -> None:
    """End the command with the code of the signal that came."""
    if state.code:
        click.get_current_context().exit(state.code)
