"""Numeric features: missing values are filled, values are scaled and encoded in bins."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.features.bins import Bins
from mlpengine.data.features.sources import EQUAL, Source, read_slices
from mlpengine.data.features.statistics import Statistics
from mlpengine.data.features.thresholds import CLIP, CLIPPED_FROM
from mlpengine.data.tables.table import Table
from mlpengine.settings.features import Filling, Scaling


def smooth_clip(values: Array, workspace: Array) -> None:
    """Replace scaled features x in place by x / sqrt(1 + (x / CLIP)^2), close to x for small x.

    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.1.
    """
    np.maximum(values, -CLIPPED_FROM, out=values)  # np.clip takes four times as long for one row
    np.minimum(values, CLIPPED_FROM, out=values)
    np.divide(values, CLIP, out=workspace)
    np.square(workspace, out=workspace)
    np.add(workspace, 1.0, out=workspace)
    np.sqrt(workspace, out=workspace)
    np.divide(values, workspace, out=values)


_LARGEST = {kind: float(np.finfo(kind).max) for kind in "fd"}
"""The largest number of each dtype, by the character of the dtype."""


class Numbers:
    """Numeric features, (x - center) * factor, after filling missing values.

    The `factor` of a feature that was constant in training is 0, unless `scaling` was "none".
    `ranges` has the smallest and largest training value of each column.  `flagged` has the indices
    of features with an indicator (1 for a missing value, else 0).  With `clip`, scaled features are
    clipped by `smooth_clip`.  `edges` has the bin edges of each feature; () means no bins.
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
        clip: bool = False,
        edges: Sequence[Array] = (),
    ) -> None:
        self.sources = list(sources)
        self.center, self.factor, self.fill = center, factor, fill
        self.flagged = list(flagged)
        self._places = np.array(self.flagged, np.intp)
        self.strict, self.clip = strict, clip
        self.bins = Bins(edges)
        self.ranges: dict[str, tuple[float, float]] = {}

    @property
    def width(self) -> int:
        """Number of features: values, components and indicators."""
        return len(self.sources) + len(self.bins) + len(self.flagged)

    @property
    def names(self) -> list[str]:
        """The features' names: the numbers, the components of their bins, the indicators."""
        numbers = [source.name for source in self.sources]
        components = self.bins.names(numbers)
        return numbers + components + [f"{numbers[i]} missing" for i in self.flagged]

    @property
    def constant(self) -> list[str]:
        """Names of the features that did not vary in training."""
        return [s.name for s, factor in zip(self.sources, self.factor, strict=True) if not factor]

    @classmethod
    def fit(
        cls,
        table: Table,
        sources: Sequence[Source],
        scaling: Scaling,
        filling: Filling,
        rows: Array | None = None,
        clip: bool = False,
        bins: int | None = None,
    ) -> "Numbers":
        """Compute the statistics of every feature over the given rows of a table.

        `bins` is the number of quantile bins of every feature that varies; None for no bins.  Sine
        and cosine features of dates have no bins.
        """
        strict = filling == "error"
        stats = Statistics(table, sources, strict, rows)
        center, spread = stats.scale(scaling)
        fill = stats.filling(filling)
        rounding = 4 * np.finfo(np.float64).eps * np.abs(stats.mean)  # constant up to rounding
        varies = (stats.high > stats.low) & (spread > np.maximum(rounding, EQUAL))
        factor = np.divide(1.0, spread, out=np.zeros(len(sources)), where=varies)
        if scaling == "none":
            factor = np.ones(len(sources))
        wanted = stats.missing & (stats.count > 0) & (filling == "indicator")
        flagged = np.flatnonzero(wanted).tolist()
        edges: list[Array] = []
        if bins is not None:
            binned = varies & (stats.deviation > rounding)
            whole = np.array([not source.part for source in sources], bool)
            edges = stats.edges(bins, binned & whole)
        numbers = cls(
            sources, center, factor, fill, flagged=flagged, strict=strict, clip=clip, edges=edges
        )
        each = zip(sources, stats.low.tolist(), stats.high.tolist(), strict=True)
        numbers.ranges = {s.column: (a, b) for s, a, b in each if not s.part and not s.minus}
        return numbers

    def encode(self, table: Table, out: Array, rows: Array | range | None = None) -> None:
        """Write the features of the given rows of a table into `out`."""
        if isinstance(rows, range):
            rows = np.arange(rows.start, rows.stop)
        for start, values, missing in read_slices(table, self.sources, self.strict, rows):
            if self.write(values, missing, out[start : start + len(values)]):
                continue
            row, column = (int(i) for i in np.argwhere(np.abs(values) > np.finfo(out.dtype).max)[0])
            first = start + row if rows is None else int(rows[start + row])
            raise DataError(
                f"{table.where(self.sources[column].column, first)}: is too large for "
                f"{out.dtype} after scaling ({values[row, column]:g})"
            )

    def write(self, values: Array, missing: Array | None, out: Array) -> bool:
        """Write the features of float64 `values` into `out`; `values` are overwritten.

        `missing` is the mask of missing values, or None if all values are known.  The result is
        False if a scaled value is too large for the dtype of `out`.
        """
        count, flags = len(self.sources), len(self.sources) + len(self.bins)
        if missing is not None:
            np.copyto(values, self.fill, where=missing)
            out[:, flags:] = missing.take(self._places, 1)
        elif self.flagged:
            out[:, flags:] = 0.0
        if len(self.bins):
            components = np.empty((len(values), len(self.bins)))
            self.bins.encode(values, components)
            out[:, count:flags] = components
        np.subtract(values, self.center, out=values)
        np.multiply(values, self.factor, out=values)
        if self.clip:
            smooth_clip(values, np.empty_like(values))
        elif values.size and max(values.max(), -values.min()) > _LARGEST[out.dtype.char]:
            return False
        out[:, :count] = values
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, ready for JSON."""
        return {
            "sources": [[source.column, source.part, source.minus] for source in self.sources],
            "center": self.center.tolist(),
            "factor": self.factor.tolist(),
            "fill": self.fill.tolist(),
            "flagged": self.flagged,
            "strict": self.strict,
            "clip": self.clip,
            "edges": [edges.tolist() for edges in self.bins.edges],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Numbers":
        """Return numeric features from a `state_dict`."""
        return cls(
            [Source(*source) for source in state["sources"]],
            *(np.array(state[name], np.float64) for name in ("center", "factor", "fill")),
            flagged=state["flagged"],
            strict=state["strict"],
            clip=state["clip"],
            edges=[np.array(edges, np.float64) for edges in state["edges"]],
        )
