"""A summary of each column of the training rows: quantiles of numbers, shares of texts."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NotRequired

import numpy as np
from typing_extensions import TypedDict

from mlpengine.core.errors import CheckpointError
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.data.features.categories import Category
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.features.thresholds import (
    DESCRIBED_ROWS,
    FAR,
    QUANTILES,
    SUMMARY_COLUMNS,
    TAIL_FACTOR,
)
from mlpengine.data.tables.table import Table


class ColumnState(TypedDict):
    """A column's share of missing values, and a description of its other values.

    Numbers have quantiles, from the smallest to the largest value.  Categories have the share of
    each level, followed by the share of all other texts.
    """

    missing: float
    quantiles: NotRequired[list[float]]
    shares: NotRequired[list[float]]


class SummaryState(TypedDict):
    """The number of described rows, and the columns by name."""

    rows: int
    columns: dict[str, ColumnState]


def summary_of_rows(
    table: Table, rows: Array | None, ranges: Mapping[str, tuple[float, float]],
    categories: Sequence[Category],
) -> SummaryState:  # fmt: skip
    """Describe training rows: the columns of numbers in `ranges`, and the categories."""
    count = table.n_rows if rows is None else len(rows)
    chosen = evenly_spaced(count, DESCRIBED_ROWS)
    levels = {category.column: category for category in categories}
    names = [name for name in table.names if name in levels or name in ranges][:SUMMARY_COLUMNS]
    sample = table.select(names).rows(chosen if rows is None else rows[chosen])
    columns: dict[str, ColumnState] = {}
    for name in names:
        column = sample[name]
        one: ColumnState = {"missing": float(column.missing.mean())}
        if name in levels:
            one["shares"] = shares_of(levels[name], sample).tolist()
        else:
            known = column.values[~column.missing].astype(np.float64)
            places = np.rint(np.linspace(0, 1, QUANTILES + 1) * (len(known) - 1)).astype(np.int64)
            if len(known):
                quantiles = np.sort(known)[places]
                quantiles[[0, -1]] = ranges[name]
                one["quantiles"] = quantiles.tolist()
        columns[name] = one
    return {"rows": sample.n_rows, "columns": columns}


def shares_of(category: Category, table: Table) -> Array:
    """Return the share of each level, then of all other texts; missing values do not count."""
    codes = category.encode(table)[~table[category.column].missing]
    counts = np.bincount(codes, minlength=len(category.levels) + 1)[: len(category.levels) + 1]
    shares: Array = counts / max(1, counts.sum())
    return shares


def check_summary(summary: SummaryState, levels: Mapping[str, int], columns: Sequence[str]) -> None:
    """Check that a saved summary fits the columns and the number of levels of each category."""
    for name, one in summary["columns"].items():
        quantiles, shares = one.get("quantiles", []), one.get("shares", [])
        if not (
            name in columns
            and 0 <= one["missing"] <= 1
            and all(a <= b for a, b in pairwise(quantiles))
            and len(quantiles) in (0, QUANTILES + 1)
            and len(shares) == (levels[name] + 1 if name in levels else 0)
        ):
            raise CheckpointError(f"preprocessing: summary must describe column {name!r}")


def bounds(one: ColumnState) -> tuple[float, float]:
    """Return the bounds beyond which a value is far outside the training range."""
    quantiles = one.get("quantiles")
    if not quantiles or quantiles[0] == quantiles[-1]:  # the feature is 0 everywhere
        return -LIMIT, LIMIT
    space = FAR * (quantiles[-1] - quantiles[0])
    below = max(space, TAIL_FACTOR * (quantiles[1] - quantiles[0]))
    above = max(space, TAIL_FACTOR * (quantiles[-1] - quantiles[-2]))
    return max(-LIMIT, quantiles[0] - below), min(LIMIT, quantiles[-1] + above)
