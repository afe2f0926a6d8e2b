"""Measurements of each epoch, in memory and in CSV files that a resumed run continues."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.core import system
from mlpengine.core.errors import CheckpointError, DataError
from mlpengine.core.files import sync, write_all, writing
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural

if TYPE_CHECKING:
    from mlpengine.drawing.chart_types import Chart

METRICS_FILE = "metrics.csv"
TIMINGS_FILE = "timings.csv"


@dataclass(frozen=True)
class EpochRow:
    """The measurements of an epoch.

    `train_loss` is the mean over the rows, measured before each update.  `validation` holds loss
    and metrics over the whole validation part, or is empty.  `gradient_norm` is the mean over the
    steps, before clipping.  `lr` is the learning rate of the last step.  `seconds` is the time of
    training, without validation.
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
        """Return the values for metrics.csv, without times, so equal seeds give equal files."""
        plain = [self.epoch, self.steps, self.lr, self.gradient_norm, self.train_loss]
        return [*plain, *self.validation.values()]


def mean_row(
    rows: Sequence[EpochRow], *, steps: int, seconds: float, samples_per_second: float
) -> EpochRow:
    """Return the mean of the rows of several networks for one epoch."""

    def mean(values: Iterable[float]) -> float:
        return float(np.fromiter(values, np.float64).mean())

    return EpochRow(
        epoch=rows[0].epoch,
        steps=steps,
        lr=mean(row.lr for row in rows),
        gradient_norm=mean(row.gradient_norm for row in rows),
        train_loss=mean(row.train_loss for row in rows),
        validation={n: mean(row.validation[n] for row in rows) for n in rows[0].validation},
        seconds=seconds,
        samples_per_second=samples_per_second,
    )


@dataclass(repr=False)
class History:
    """All epochs so far; `metrics` are the names of the validation metrics, in order."""

    metrics: tuple[str, ...]
    rows: list[EpochRow] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The header of metrics.csv."""
        fixed = ["epoch", "steps", "lr", "gradient_norm", "train_loss"]
        return [*fixed, *(f"validation_{name}" for name in self.metrics)]

    def __repr__(self) -> str:
        return f"History({plural(len(self.rows), 'epoch')}: {', '.join(self.columns[4:])})"

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.svg import grid

        return cell_html(grid(self.charts()))

    def charts(self, best: int | None = None) -> "list[Chart]":
        """Return losses, metrics and learning rate by epoch, with a mark at the best epoch."""
        from mlpengine.drawing.charts import curves_of, training_charts

        return training_charts({"curves": curves_of(self.by_column()), "best": best})

    def by_column(self) -> dict[str, Array]:
        """Return the values of all epochs, (epochs,) each, by the names in `columns`."""
        values = np.array([row.values() for row in self.rows], np.float64)
        return dict(zip(self.columns, values.reshape(-1, len(self.columns)).T, strict=True))

    def state_dict(self) -> dict[str, Array]:
        """Return all rows as a float64 array, with times in the last two columns."""
        rows = [[*row.values(), row.seconds, row.samples_per_second] for row in self.rows]
        return {"rows": np.array(rows, np.float64).reshape(len(rows), len(self.columns) + 2)}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Restore a `state_dict`.  Raises: CheckpointError if the metrics differ."""
        rows = state["rows"]
        if rows.ndim != 2 or rows.shape[1] != len(self.columns) + 2:
            raise CheckpointError(f"history: was saved with other metrics ({rows.shape})")
        self.rows[:] = [self._row(values) for values in rows.tolist()]

    def _row(self, values: list[float]) -> EpochRow:
        epoch, steps, lr, norm, loss, *measured, seconds, rate = values
        validation = dict(zip(self.metrics, measured, strict=True))
        return EpochRow(int(epoch), int(steps), lr, norm, loss, validation, seconds, rate)


def read_metrics(path: Path) -> dict[str, Array]:
    """Return the values of the whole lines of a metrics.csv, (epochs,) each, by column."""
    try:
        names, *lines = [line.split(",") for line in path.read_text(encoding="utf-8").split("\n")]
        if not {"epoch", "train_loss"} <= {*names}:
            raise ValueError("it has no column train_loss")
        rows = [[float(cell or "nan") for cell in line] for line in lines[:-1]]
        return dict(zip(names, np.array(rows).reshape(-1, len(names)).T, strict=True))
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as a list of epochs ({error})") from error


class CsvLog:
    """A CSV file that grows by whole lines; a float is written so that it reads back exactly.

    Args:
        begins: the header and the lines to keep; all other lines are removed.
    """

    def __init__(self, path: Path, begins: bytes) -> None:
        self.path = path
        with writing(path):
            self._file = system.open_file(path, os.O_WRONLY | os.O_CREAT, follow=False)
            write_all(self._file, begins)  # before truncation: no reader finds an empty file
            os.ftruncate(self._file, len(begins))

    def append(self, values: Sequence[Any]) -> None:
        """Write one line."""
        self.write(csv_lines(values))

    def write(self, lines: bytes) -> None:
        """Write whole lines."""
        with writing(self.path):
            write_all(self._file, lines)

    def sync(self) -> None:
        """Flush every line to disk."""
        with writing(self.path):
            sync(self._file)

    def close(self) -> None:
        """Close the file."""
        with writing(self.path):
            os.close(self._file)


def csv_lines(*lines: Sequence[Any]) -> bytes:
    """Return lines of a CSV file."""
    return "".join(",".join(map(cell, values)) + "\n" for values in lines).encode()


def cell(value: object) -> str:
    """Return a value as CSV text: the shortest text that reads back exactly."""
    if isinstance(value, float):
        return float.__repr__(value)
    return "" if value is None else str(value)
