"""Readers for the diagnostics files of a finished or unfinished run."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.diagnostics import Diagnostics
from mlpengine.diagnostics.samples import Columns, Series
from mlpengine.nn import Network
from mlpengine.training.diagnose import DIAGNOSTICS_FILE
from mlpengine.training.history import METRICS_FILE, read_metrics

Quantities = dict[tuple[str, str], float]
"""Values by layer ("" for the whole network) and quantity."""


def read_samples(path: Path) -> Iterator[tuple[int, Quantities]]:
    """Yield step and quantities of each sample in a diagnostics.csv; skip incomplete lines."""
    for step, lines in groupby(_lines(path), key=lambda line: line[0]):
        yield step, {(layer, quantity): value for _, layer, quantity, value in lines}


def read_series(path: Path) -> Series:
    """Return the samples of a diagnostics.csv, thinned as in `Diagnostics`."""
    series: Series | None = None
    for step, quantities in read_samples(path):
        if series is None:
            series = Series(Columns(len({layer for layer, _ in quantities if layer})))
            columns = list(series.columns)
        series.append(step, [quantities.get(column, nan) for column in columns])
    return series or Series(Columns(0))


def read_diagnostics(
    directory: Path, mlp: Network, known: Mapping[str, Any], rows: int
) -> Diagnostics:
    """Return the diagnostics of a run from its files.

    `known` is the result of `diagnostic_inputs`, and `rows` the number of training rows.
    Raises: DataError if there is no diagnostics.csv, or a file is damaged or belongs to other rows.
    """
    path = directory / DIAGNOSTICS_FILE
    if not path.is_file():
        raise DataError(
            f"{directory}: has no {DIAGNOSTICS_FILE} (diagnostics are off, or the run was short)"
        )
    diagnostics = Diagnostics(mlp, **known)
    columns = list(diagnostics.columns)
    for step, quantities in read_samples(path):
        diagnostics.values[:] = [quantities.get(column, nan) for column in columns]
        diagnostics.sampled = step
        if step == 1:
            diagnostics.first_loss = diagnostics.get("loss")
        diagnostics.series.append(step, diagnostics.values)
    if diagnostics.sampled:
        spikes, noise = diagnostics.spikes, diagnostics.noise
        count, hardest = diagnostics.get("spikes"), diagnostics.get("hardest_row")
        if not isfinite(count):
            raise DataError(f"{path}: the last sample must have a number of spikes (got {count})")
        if not (0 <= hardest < rows or isnan(hardest)):
            raise DataError(
                f"{path}: does not fit the training rows: config or data have changed since "
                f"(the hardest row is number {hardest:g} of {rows:,})"
            )
        spikes.count, spikes.steps = int(count), diagnostics.sampled
        noise.variance, noise.squared_norm = diagnostics.get("noise_scale"), 1.0
    if (directory / METRICS_FILE).is_file():
        epochs = read_metrics(directory / METRICS_FILE)
        training, unknown = epochs["train_loss"], np.full(len(epochs["epoch"]), nan)
        validation = epochs.get("validation_loss", unknown)
        diagnostics.epochs = list(zip(training.tolist(), validation.tolist(), strict=True))
    return diagnostics


def _lines(path: Path) -> Iterator[tuple[int, str, str, float]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            try:
                step, layer, quantity, value = line.decode().rstrip("\r\n").split(",")
                yield int(step), layer, quantity, float(value)
            except ValueError as error:
                raise DataError(f"{path}:{number}: cannot be read as a sample ({error})") from error
