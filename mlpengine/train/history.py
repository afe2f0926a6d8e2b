"""What happened epoch by epoch, in memory and in CSV files that a resumed run continues exactly."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.errors import CheckpointError
from mlpengine.spec import Array
from mlpengine.train.files import writing

METRICS_FILE = "metrics.csv"
TIMINGS_FILE = "timings.csv"


@dataclass(frozen=True)
class EpochRow:
    """One epoch.

    `train_loss` is the mean over the rows as they were learned from; `validation` holds loss and
    metrics over the whole split, empty without one; `gradient_norm` is the mean over the steps,
    before clipping; `lr` is that of the last step.
    Units: `seconds` of training, validation aside.
    """

    epoch: int
    steps: int
    lr: float
    gradient_norm: float
    train_loss: float
    validation: dict[str, float]
    seconds: float
    samples_per_second: float

    def values(self) -> list[int | float]:
        """Return what goes into metrics.csv: all that the same seed gives again, so no times."""
        plain = [self.epoch, self.steps, self.lr, self.gradient_norm, self.train_loss]
        return [*plain, *self.validation.values()]


@dataclass
class History:
    """All epochs so far; `metrics` names what validation measures, in order."""

    metrics: tuple[str, ...]
    rows: list[EpochRow] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The header of metrics.csv."""
        fixed = ["epoch", "steps", "lr", "gradient_norm", "train_loss"]
        return [*fixed, *(f"validation_{name}" for name in self.metrics)]

    def state(self) -> Array:
        """Return all rows as one float64 array, times in the last two columns."""
        rows = [[*row.values(), row.seconds, row.samples_per_second] for row in self.rows]
        return np.array(rows, np.float64).reshape(len(rows), len(self.columns) + 2)

    def load(self, state: Array) -> None:
        """Take over the rows of `state`.  Raises: CheckpointError for those of other metrics."""
        if state.ndim != 2 or state.shape[1] != len(self.columns) + 2:
            raise CheckpointError(f"history: was saved with other metrics ({state.shape})")
        self.rows[:] = [self._row(values) for values in state.tolist()]

    def _row(self, values: list[float]) -> EpochRow:
        epoch, steps, lr, norm, loss, *measured, seconds, rate = values
        validation = dict(zip(self.metrics, measured, strict=True))
        return EpochRow(int(epoch), int(steps), lr, norm, loss, validation, seconds, rate)


class CsvLog:
    """A CSV file that grows by whole lines; floats are written so that they read back exactly."""

    def __init__(self, path: Path, columns: Sequence[str], *, keep: int = 0) -> None:
        """Start the file, or go on behind the first `keep` lines of an existing one."""
        self.path, self.rows = path, keep
        lines = path.read_bytes().splitlines(keepends=True)[: keep + 1] if keep else []
        with writing(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            os.ftruncate(self._file, sum(map(len, lines)))  # never empty in between
            os.lseek(self._file, 0, os.SEEK_END)
        if not lines:
            self._put((",".join(columns) + "\n").encode())

    def append(self, values: Sequence[Any]) -> None:
        """Write one line."""
        self._put((",".join(map(cell, values)) + "\n").encode())
        self.rows += 1

    def sync(self) -> None:
        """Have every line on disk when this returns."""
        with writing(self.path):
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; nothing can be appended any more."""
        os.close(self._file)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        with writing(self.path):
            while view:
                view = view[os.write(self._file, view) :]


def cell(value: object) -> str:
    """Return a value as it stands in a CSV file: shortest text that reads back the same."""
    if isinstance(value, float):
        return float.__repr__(value)
    return "" if value is None else str(value)
