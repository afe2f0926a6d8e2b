"""Signals that end training: the first after the current step, the second at once.

The first signal calls the attached function, usually `Loop.stop`.  The loop ends after the step,
and the callback `Checkpointer` saves the state of the loop.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

import click

from mlpengine.core.system import EXIT_CODES

if TYPE_CHECKING:
    from mlpengine.step.ranks import Ranks

HANGUP = 129
"""Exit code after the signal that a closed terminal sends."""


def handled() -> list[signal.Signals]:
    """Return the signals that end a command, without a hangup that `nohup` ignores."""
    return [
        number
        for number, code in EXIT_CODES.items()
        if not (code == HANGUP and signal.getsignal(number) is signal.SIG_IGN)
    ]


class Stopping:
    """The received signal; `code` is the exit code of the signal, or 0 before a signal.

    With `quiet`, as on ranks other than 0, nothing is printed.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.code, self._quiet = 0, quiet
        self._stop: Callable[[], None] | None = None

    def attach(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal, or now if a signal was received before."""
        self._stop = stop
        if self.code:
            stop()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Call the attached function, or exit if there is none; exit at the second signal."""
        code = EXIT_CODES[signal.Signals(number)]
        if self.code:
            os._exit(code)
        self.code = code
        if self._stop is None:
            self._say(b"interrupted\n")
            raise SystemExit(code)  # if C code drops the exception, `attach` stops the loop
        self._say(b"\nstopping after this step; press again to stop at once\n")
        self._stop()

    def share_code(self, ranks: "Ranks | None") -> None:
        """Give all ranks the `code` of the lowest rank with a code; every rank calls this."""
        if ranks is not None:
            self.code = ranks.first(self.code or None) or 0

    def _say(self, text: bytes) -> None:
        """Write to the file descriptor: the signal may have interrupted a write of the stream."""
        if not self._quiet:
            with suppress(OSError):  # the terminal may be gone
                os.write(2, text)


@contextmanager
def stops(*, quiet: bool = False) -> Iterator[Stopping]:
    """Handle the signals of `EXIT_CODES` in a ``with`` block; then restore the handlers."""
    state = Stopping(quiet=quiet)
    before = {number: signal.signal(number, state.handle) for number in handled()}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(state: Stopping) -> None:
    """Exit with the code of the signal if a signal was received."""
    if state.code:
        click.get_current_context().exit(state.code)
