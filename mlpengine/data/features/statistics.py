"""Statistics of numeric features over the rows of a table, in two passes over slices."""

from collections.abc import Iterator, Sequence

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.sources import EQUAL, SMALLEST, Source, read_block, read_slices
from mlpengine.data.features.thresholds import QUANTILE_ROWS, SAMPLE_NUMBERS
from mlpengine.data.tables.table import Table
from mlpengine.settings.features import Filling, Scaling


class Statistics:
    """Mean, deviation, range and quantiles of every feature; missing values are ignored."""

    def __init__(
        self, table: Table, sources: Sequence[Source], strict: bool, rows: Array | None
    ) -> None:
        self.table, self.sources, self.rows = table, sources, rows
        self.n_rows = table.n_rows if rows is None else len(rows)
        width = len(sources)
        self.count = np.zeros(width)
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        total = np.zeros(width)
        for _, values, missing in read_slices(table, sources, strict, rows):
            self.count += len(values) if missing is None else len(values) - missing.sum(axis=0)
            total += np.nansum(values, axis=0)
            np.fmin(self.low, np.fmin.reduce(values, axis=0), out=self.low)
            np.fmax(self.high, np.fmax.reduce(values, axis=0), out=self.high)
        self.missing = self.count < self.n_rows
        self.mean = total / np.maximum(self.count, 1)
        squares, shift = np.zeros((2, width))
        span = self.high - self.low
        unit = np.where((span > EQUAL) & (span < SMALLEST), span, 1.0)
        for _, values, _ in read_slices(table, sources, strict, rows):
            centered = values - self.mean
            if unit.min(initial=1.0) < 1:
                centered /= unit
            shift += np.nansum(centered, axis=0)
            squares += np.nansum(np.square(centered, out=centered), axis=0)
        count = np.maximum(self.count, 1)
        # `shift` corrects rounding of the mean; without it, small deviations would be wrong
        variance = np.maximum(squares / count - np.square(shift / count), 0.0)
        self.deviation = np.sqrt(variance) * unit

    def quantiles(self, shares: Sequence[float]) -> Array:
        """Return quantiles (shares, features) of the values that are not missing."""
        result = np.zeros((len(shares), len(self.sources)))
        for i, known in enumerate(self._known()):
            if len(known):
                result[:, i] = np.quantile(known, shares)
        return result

    def edges(self, bins: int, binned: Array) -> list[Array]:
        """Return bin edges of every feature: its distinct quantiles at multiples of 1 / `bins`.

        A feature that is not `binned`, or has fewer than 3 distinct values, has no edges.
        """
        edges = [np.empty(0)] * len(self.sources)
        for i, known in enumerate(self._known()):
            if not (binned[i] and ((known > known.min()) & (known < known.max())).any()):
                continue
            # not np.quantile: it rounds positions, so equal values could give different edges
            below, beyond = np.divmod(np.arange(bins + 1) * (len(known) - 1), bins)
            above = np.minimum(below + 1, len(known) - 1)
            ordered = np.partition(known, np.union1d(below, above))
            low, high = ordered[below], ordered[above]
            edges[i] = np.unique(low + (high - low) * (beyond / bins))
        return edges

    def _known(self) -> Iterator[Array]:
        """Yield the known values of each feature, or a sample of them for a long column."""
        limit = max(1, min(QUANTILE_ROWS, SAMPLE_NUMBERS // max(1, len(self.sources))))
        sample = slice(0, self.n_rows, -(-self.n_rows // limit))
        rows = sample if self.rows is None else self.rows[sample]
        for source in self.sources:
            (column,) = read_block(self.table, [source], rows).T
            yield column[~np.isnan(column)]

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
            # if half of the values are equal, the interquartile range is 0: take half the range
            known = self.count > 0
            half = np.where(known, self.high, 0.0) / 2 - np.where(known, self.low, 0.0) / 2
            return middle, np.where(upper > lower, upper - lower, half)
        return np.zeros(len(self.sources)), np.ones(len(self.sources))

    def filling(self, filling: Filling) -> Array:
        """Return the value that replaces missing values of each feature."""
        if isinstance(filling, int | float):
            return np.full(len(self.sources), float(filling))
        return self.quantiles((0.5,))[0] if filling == "median" else self.mean


def standardized(x: Array) -> Array:
    """Return columns of `x` with mean 0 and deviation 1; a constant column becomes 0."""
    wide = x.astype(np.float64)
    wide -= wide.mean(axis=0)
    wide[:, (x == x[:1]).all(axis=0)] = 0.0  # exactly 0, although the mean is rounded
    deviation = wide.std(axis=0)
    features: Array = wide / np.where(deviation > 0, deviation, 1.0)
    return features
