"""A block of numeric features: missing cells filled, then scaled."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.data.sources import Source, read_slices
from mlpengine.data.statistics import Filling, Scaling, Statistics
from mlpengine.data.table import Table
from mlpengine.errors import DataError
from mlpengine.spec import Array

CLIP = 3.0
"""Scaled features stay between -CLIP and CLIP where they are clipped."""

FAR = 1e9
"""From here on the clipped value is CLIP in float64; bounding x by it keeps squares finite."""


def smooth_clip(values: Array, workspace: Array) -> None:
    """Clip scaled features in place, x / sqrt(1 + (x / CLIP)^2): near 0 they stay as they are.

    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.1.
    """
    np.clip(values, -FAR, FAR, out=values)
    np.divide(values, CLIP, out=workspace)
    np.square(workspace, out=workspace)
    np.add(workspace, 1.0, out=workspace)
    np.sqrt(workspace, out=workspace)
    np.divide(values, workspace, out=values)


class Numbers:
    """A block of numeric features, (x - center) * factor with missing cells filled first.

    `factor` is 0 for a column that was constant in training, so it stays 0 for good.
    `flagged` are the features that get an indicator feature (1 where the cell is missing), and
    `clip` says whether scaled features are clipped smoothly.
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
    ) -> None:
        self.sources = list(sources)
        self.center, self.factor, self.fill = center, factor, fill
        self.flagged = list(flagged)
        self.strict, self.clip = strict, clip

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
        cls,
        table: Table,
        sources: Sequence[Source],
        scaling: Scaling,
        filling: Filling,
        rows: Array | None = None,
        clip: bool = False,
    ) -> "Numbers":
        """Take the statistics of every feature over the given rows of a table.

        Raises: DataError naming the first cell that is not a usable number.
        """
        strict = filling == "error"
        stats = Statistics(table, sources, strict, rows)
        center, spread = stats.scale(scaling)
        fill = stats.filling(filling)
        varies = (stats.high > stats.low) & (spread > 1e-13 * np.abs(stats.mean))
        factor = np.divide(1.0, spread, out=np.zeros(len(sources)), where=varies)
        if scaling == "none":
            factor = np.ones(len(sources))
        wanted = stats.missing & (stats.count > 0) & (filling == "indicator")
        flagged = np.flatnonzero(wanted).tolist()
        return cls(sources, center, factor, fill, flagged=flagged, strict=strict, clip=clip)

    def encode(self, table: Table, out: Array, rows: Array | None = None) -> None:
        """Write the features of the given rows of a table into `out`.

        Raises: DataError naming the first cell that is not a usable number.
        """
        count = len(self.sources)
        for start, values, missing in read_slices(table, self.sources, self.strict, rows):
            block = out[start : start + len(values)]
            if missing is not None:
                np.copyto(values, self.fill, where=missing)
                block[:, count:] = missing[:, self.flagged]
            else:
                block[:, count:] = 0.0
            np.subtract(values, self.center, out=values)
            np.multiply(values, self.factor, out=values)
            if self.clip:
                smooth_clip(values, np.empty_like(values))
            limit = np.finfo(out.dtype).max
            if values.size and max(values.max(), -values.min()) > limit:
                row, column = (int(i) for i in np.argwhere(np.abs(values) > limit)[0])
                first = start + row if rows is None else int(rows[start + row])
                raise DataError(
                    f"{table.where(self.sources[column].column, first)}: is too large for "
                    f"{out.dtype} after scaling ({values[row, column]:g})"
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
            "clip": self.clip,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Numbers":
        """Return the block that `state_dict` described."""
        return cls(
            [Source(*source) for source in state["sources"]],
            *(np.array(state[name], np.float64) for name in ("center", "factor", "fill")),
            flagged=state["flagged"],
            strict=state["strict"],
            clip=state.get("clip", False),
        )
