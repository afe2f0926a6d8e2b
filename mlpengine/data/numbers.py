"""Numeric features: reading numbers, booleans and dates as float64, filling, scaling."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mlpengine.data.kinds import first_text
from mlpengine.data.table import Table
from mlpengine.errors import DataError
from mlpengine.spec import Array

Scaling = Literal["standard", "minmax", "robust", "none"]
Filling = Literal["mean", "median", "indicator", "error"] | float

LIMIT = 1e100
"""Numbers beyond this are refused: their squares would overflow the statistics."""

SAMPLE = 1_000_000
"""Quantiles of longer columns are taken from this many evenly spaced rows."""

_DAY = 86_400.0
_PERIODS = {"hour": (_DAY, 0.0), "weekday": (7 * _DAY, 4 * _DAY), "season": (365.2425 * _DAY, 0.0)}
_CHUNK = 1 << 17  # numbers in a slice of rows: 1 MB of float64, so that passes stay in cache


@dataclass(frozen=True, slots=True)
class Source:
    """One numeric feature: a column as it is, the time since another, or a part of a date.

    Parts are the sine and cosine of the position in a day, a week or a year.
    """

    column: str
    part: str = ""
    minus: str = ""

    @property
    def name(self) -> str:
        """The feature's name."""
        if self.minus:
            return f"{self.column} - {self.minus}"
        return f"{self.column} {self.part}".rstrip()

    def read(self, table: Table, rows: slice) -> Array:
        """Return the raw float64 values of some rows."""
        values = table.columns[self.column].values[rows].astype(np.float64)
        if self.minus:
            return values - table.columns[self.minus].values[rows]
        if self.part:
            period, wave = self.part.split()
            length, start = _PERIODS[period]
            angle = 2 * np.pi * (((values + start) % length) / length)
            return np.sin(angle) if wave == "sin" else np.cos(angle)
        return values


def date_sources(table: Table, names: Sequence[str]) -> list[Source]:
    """Return the features of date columns: the time, its periods, and time between neighbors.

    Periods in which the dates do not differ by an hour, a day or a month are left out.
    """
    sources = []
    for position, name in enumerate(names):
        sources.append(Source(name))
        values = table[name].values
        known = values[~np.isnan(values)]
        for period, (length, start) in _PERIODS.items():
            steps = np.unique(((known + start) % length) // (length / 12))
            if len(steps) > 1:
                sources += [Source(name, f"{period} sin"), Source(name, f"{period} cos")]
        if position:
            sources.append(Source(name, minus=names[position - 1]))
    return sources


class Numbers:
    """A block of numeric features, (x - center) * factor with missing cells filled first.

    `factor` is 0 for a column that was constant in training, so it stays 0 for good.
    `flagged` are the features that get an indicator feature (1 where the cell is missing).
    """

    def __init__(
        self,
        sources: Sequence[Source],
        center: Array,
        factor: Array,
        fill: Array,
        *,
        flagged: Sequence[int] = (),
        strict: bool = False,
    ) -> None:
        self.sources = list(sources)
        self.center, self.factor, self.fill = center, factor, fill
        self.flagged = list(flagged)
        self.strict = strict

    @property
    def names(self) -> list[str]:
        """The features' names: the numbers, then the indicators."""
        numbers = [source.name for source in self.sources]
        return numbers + [f"{numbers[i]} missing" for i in self.flagged]

    @property
    def constant(self) -> list[str]:
        """Names of the features that did not vary in training."""
        return [s.name for s, factor in zip(self.sources, self.factor, strict=True) if not factor]

    @classmethod
    def fit(
        cls, table: Table, sources: Sequence[Source], scaling: Scaling, filling: Filling
    ) -> "Numbers":
        """Take the statistics of every feature over the rows of a table.

        Raises: DataError naming the first cell that is not a usable number.
        """
        strict = filling == "error"
        stats = _Statistics(table, sources, strict)
        center, spread = stats.scale(scaling)
        fill = stats.filling(filling)
        varies = (stats.high > stats.low) & (spread > 1e-13 * np.abs(stats.mean))
        factor = np.divide(1.0, spread, out=np.zeros(len(sources)), where=varies)
        if scaling == "none":
            factor = np.ones(len(sources))
        wanted = stats.missing & (stats.count > 0) & (filling == "indicator")
        return cls(
            sources, center, factor, fill, flagged=np.flatnonzero(wanted).tolist(), strict=strict
        )

    def encode(self, table: Table, out: Array) -> None:
        """Write the features of every row of a table into float32 `out`.

        Raises: DataError naming the first cell that is not a usable number.
        """
        count = len(self.sources)
        for start, values, missing in read_slices(table, self.sources, self.strict):
            block = out[start : start + len(values)]
            if missing is not None:
                np.copyto(values, self.fill, where=missing)
                block[:, count:] = missing[:, self.flagged]
            else:
                block[:, count:] = 0.0
            np.subtract(values, self.center, out=values)
            np.multiply(values, self.factor, out=values)
            if values.size and max(values.max(), -values.min()) > np.finfo(np.float32).max:
                row, column = (int(i) for i in np.argwhere(np.abs(values) > 3.4e38)[0])
                raise DataError(
                    f"{table.where(self.sources[column].column, start + row)}: is too large for "
                    f"float32 after scaling ({values[row, column]:g})"
                )
            block[:, :count] = values

    def state_dict(self) -> dict[str, Any]:
        """Return everything about it, ready for JSON."""
        return {
            "sources": [[source.column, source.part, source.minus] for source in self.sources],
            "center": self.center.tolist(),
            "factor": self.factor.tolist(),
            "fill": self.fill.tolist(),
            "flagged": self.flagged,
            "strict": self.strict,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Numbers":
        """Return the block that `state_dict` described."""
        return cls(
            [Source(*source) for source in state["sources"]],
            *(np.array(state[name], np.float64) for name in ("center", "factor", "fill")),
            flagged=state["flagged"],
            strict=state["strict"],
        )


def read_slices(
    table: Table, sources: Sequence[Source], strict: bool
) -> Iterator[tuple[int, Array, Array | None]]:
    """Yield (first row, float64 values, mask of missing cells or None) for slices of the rows.

    Raises: DataError for a column that is not numeric, an infinite cell, or, if `strict`, a
        missing one.
    """
    for source in sources:
        check_numeric(table, source.column)
    size = max(1, _CHUNK // max(1, len(sources)))
    for start in range(0, table.n_rows, size):
        rows = slice(start, min(start + size, table.n_rows))
        values = np.empty((rows.stop - start, len(sources)))
        for i, source in enumerate(sources):
            values[:, i] = source.read(table, rows)
        # one pass says whether anything is wrong: NaN fails every comparison
        if values.size and values.max() <= LIMIT and values.min() >= -LIMIT:
            yield start, values, None
            continue
        missing = np.isnan(values)
        wrong = missing if strict else np.zeros_like(missing)
        wrong = wrong | (np.abs(values) > LIMIT)
        if wrong.any():
            row, i = (int(place) for place in np.argwhere(wrong)[0])
            raise _cell_error(table, sources[i].column, start + row, values[row, i])
        yield start, values, missing


def check_numeric(table: Table, name: str) -> None:
    """Check that a column can be read as numbers.

    Raises: DataError naming the first cell that cannot.
    """
    column = table[name]
    if column.kind == "text" and not column.missing.all():
        row = first_text(column)
        found = "other rows hold text" if row is None else repr(column.cell(row))
        raise DataError(
            f"{table.where(name, row)}: a number is needed ({found}); mend the cell, or list its "
            "spelling as missing"
        )


def _cell_error(table: Table, name: str, row: int, value: float) -> DataError:
    if np.isnan(value):
        fix = "is missing, and missing is error; fill it, or choose mean, median or indicator"
        return DataError(f"{table.where(name, row)}: {fix}")
    return DataError(
        f"{table.where(name, row)}: must be finite and within {LIMIT:g} ({value}); mend the cell "
        "or leave it empty"
    )


class _Statistics:
    """Mean, deviation, range and, when asked, quantiles of every feature, over the filled cells."""

    def __init__(self, table: Table, sources: Sequence[Source], strict: bool) -> None:
        self.table, self.sources = table, sources
        width = len(sources)
        self.count = np.zeros(width)
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        total = np.zeros(width)
        for _, values, missing in read_slices(table, sources, strict):
            self.count += len(values) if missing is None else len(values) - missing.sum(axis=0)
            total += np.nansum(values, axis=0)
            np.fmin(self.low, np.fmin.reduce(values, axis=0), out=self.low)
            np.fmax(self.high, np.fmax.reduce(values, axis=0), out=self.high)
        self.missing = self.count < table.n_rows
        self.mean = total / np.maximum(self.count, 1)
        squares = np.zeros(width)
        for _, values, _ in read_slices(table, sources, strict):
            squares += np.nansum(np.square(values - self.mean), axis=0)
        self.deviation = np.sqrt(squares / np.maximum(self.count, 1))

    def quantiles(self, shares: Sequence[float]) -> Array:
        """Return one row per share, one column per feature."""
        step = slice(None, None, -(-self.table.n_rows // SAMPLE))
        result = np.zeros((len(shares), len(self.sources)))
        for i, source in enumerate(self.sources):
            values = source.read(self.table, step)
            known = values[~np.isnan(values)]
            if len(known):
                result[:, i] = np.quantile(known, shares)
        return result

    def scale(self, scaling: Scaling) -> tuple[Array, Array]:
        """Return center and spread of every feature."""
        if scaling == "standard":
            return self.mean, self.deviation
        if scaling == "minmax":
            known = self.count > 0
            low = np.where(known, self.low, 0.0)
            return low, np.where(known, self.high, 0.0) - low
        if scaling == "robust":
            lower, middle, upper = self.quantiles((0.25, 0.5, 0.75))
            # most cells equal: no quartile range, but a deviation
            return middle, np.where(upper > lower, upper - lower, self.deviation)
        return np.zeros(len(self.sources)), np.ones(len(self.sources))

    def filling(self, filling: Filling) -> Array:
        """Return what a missing cell of every feature is replaced by."""
        if isinstance(filling, int | float):
            return np.full(len(self.sources), float(filling))
        return self.quantiles((0.5,))[0] if filling == "median" else self.mean
