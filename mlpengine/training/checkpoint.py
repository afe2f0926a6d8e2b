"""Checkpoints of a run; after the first, at least one can be read at any time.

`mlpengine.core.files` has the functions that write files safely.
"""

import logging
from collections.abc import Mapping
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from mlpengine.core.errors import CheckpointError
from mlpengine.core.files import make_directory, remove_unfinished
from mlpengine.core.system import remove_unused
from mlpengine.nn.safetensors_file import read_tensors, write_tensors
from mlpengine.step.packing import pack, unpack
from mlpengine.training.history import EpochRow
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import Callback, Loop, Result

CHECKPOINTS = "checkpoints"
CHECKPOINT_FORMAT = 1
KEPT_CHECKPOINTS = 2
"""Number of checkpoints to keep; if the newest is damaged, the previous one is read."""

FIRST_SECONDS = 1.0
"""Seconds before the first checkpoint by time, unless the interval is shorter."""

COST_SHARE = 0.02
"""Maximum share of the run time for checkpoints by time."""

_log = logging.getLogger("mlpengine")


class Checkpoint(NamedTuple):
    """A verified checkpoint: the path, the state of the loop, and the header."""

    path: Path
    state: dict[str, Any]
    header: dict[str, Any]


class Checkpoints:
    """The directory of a run's checkpoints.

    The files `step-<n>.safetensors` hold whole states, including the best weights.  Writes are
    atomic.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory

    def paths(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        return sorted(self.path.glob("step-*.safetensors"))

    def save(self, step: int, state: Mapping[str, Any], header: Mapping[str, Any]) -> Path:
        """Write a checkpoint, and remove old ones.

        Raises: RunError with the path and the cause; earlier checkpoints are unchanged.
        """
        path = self.path / f"step-{step:09d}.safetensors"
        make_directory(self.path)
        arrays, plain = pack(state)
        write_tensors(path, arrays, {"format": CHECKPOINT_FORMAT, "state": plain, **header})
        self.keep(KEPT_CHECKPOINTS)
        return path

    def keep(self, count: int) -> None:
        """Remove all but the newest `count` checkpoints."""
        for old in self.paths()[:-count]:
            remove_unused(old)

    def newest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint, or None without checkpoints.

        Newer, damaged checkpoints give a warning.  Raises: CheckpointError if all are damaged.
        """
        paths = self.paths()
        for path in reversed(paths):
            try:
                return read_checkpoint(path)
            except CheckpointError as error:
                _log.warning("warning: %s; reading the checkpoint before it", error)
        if paths:
            raise CheckpointError(
                f"{self.path}: all {len(paths)} checkpoints are damaged; train again"
            )
        return None

    def remove_after(self, path: Path) -> None:
        """Remove damaged checkpoints newer than `path`, and unfinished files."""
        for newer in self.paths():
            if newer > path:
                remove_unused(newer)
        remove_unfinished(self.path)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint.  Raises: CheckpointError if it is damaged or has another format."""
    arrays, header = read_tensors(path)
    if header.get("format") != CHECKPOINT_FORMAT or not isinstance(header.get("state"), dict):
        raise CheckpointError(
            f"{path}: is not a checkpoint of format {CHECKPOINT_FORMAT} "
            f"(format {header.get('format')!r})"
        )
    plain = header.pop("state")
    return Checkpoint(path, unpack(arrays, plain), header)


class Checkpointer(Callback):
    """Saves the state of a loop at intervals and at the end of training.

    `header` is stored in each checkpoint.  The first checkpoint is due after `FIRST_SECONDS`.  If
    writing is slow, the time between checkpoints grows.  A finished run keeps one checkpoint.
    """

    order = 100  # after the callbacks with a state, because a checkpoint has this state

    def __init__(
        self,
        checkpoints: Checkpoints,
        header: Mapping[str, Any],
        *,
        every_seconds: float | None = 10.0,
        every_epochs: int | None = None,
        every_steps: int | None = None,
    ) -> None:
        self.checkpoints, self.header = checkpoints, header
        self.every_seconds, self.every_epochs = every_seconds, every_epochs
        self.every_steps = every_steps
        self._saved: tuple[int, ...] = ()
        self._due = 0.0

    def on_train_start(self, loop: Loop) -> None:
        """Start the clock; a resumed loop does not save the loaded state again."""
        wait = inf if self.every_seconds is None else min(FIRST_SECONDS, self.every_seconds)
        self._due = perf_counter() + wait
        if loop.steps:
            self._saved = loop.position

    def on_train_batch_end(self, loop: Loop) -> None:
        timely = perf_counter() >= self._due
        every = self.every_steps
        if (timely or (every and loop.steps % every == 0)) and loop.within_epoch:
            self._save(loop)

    def skip_budget(self, loop: Loop) -> SkipBudget:
        """Return the number of steps until the next checkpoint; checkpoints by time may be late."""
        every = self.every_steps
        return SkipBudget(every - 1 - loop.steps % every) if every else SkipBudget()

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        every, steps = self.every_epochs, self.every_steps
        wanted = (every and row.epoch % every == 0) or (steps and row.steps % steps == 0)
        if wanted or perf_counter() >= self._due:
            self._save(loop)

    def on_train_end(self, loop: Loop) -> None:
        self._save(loop)

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        """Keep only the last checkpoint of a finished run, so that the run can train longer."""
        if result.ending != "interrupted":
            self.checkpoints.keep(1)

    def _save(self, loop: Loop) -> None:
        if loop.position == self._saved or not loop.is_finite:
            return
        began = perf_counter()
        self.checkpoints.save(loop.steps, loop.state_dict(), self.header)
        self._saved = loop.position
        self._wait(perf_counter() - began)

    def _wait(self, cost: float) -> None:
        seconds = self.every_seconds
        wait = inf if seconds is None else max(seconds, cost / COST_SHARE)
        self._due = perf_counter() + wait
