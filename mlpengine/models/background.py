"""Background rows that a model keeps for `Model.explain_row`."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.data.tables import Column, Table

KEPT_ROWS, SWAPPED_ROWS, MEAN_ROWS = 100, 1_000, 10_000
"""Maximum numbers of rows: rows that a model keeps, candidates for these rows, and training rows
for the mean prediction."""

NEAR_RANKS = 1 / 32
"""Maximum difference in rank of swapped numbers, as a share of the number of rows."""

SWEEPS, REPLACEMENTS = 4, 50
"""Number of times that each chosen row may be replaced; number of replacements tried each time."""


def background_rows(
    table: Table, texts: Collection[str], predict: Callable[[Table], Array], count: int
) -> dict[str, list[Any]]:
    """Return up to `count` rows similar to the rows of `table`, as a list of values per column.

    Each number is replaced by a number of similar rank from another row, so correlations remain.
    The columns `texts` are not changed.  Rows with few numbers, or with numbers that many rows
    have, may still equal a row of `table`.  The mean prediction (`predict`) of the chosen rows is
    near the mean prediction of `table`.

    Source: Moore 1996, "Controlled data-swapping techniques for masking public use microdata sets".
    """
    rng = np.random.Generator(np.random.PCG64(0))
    some = table.rows(evenly_spaced(table.n_rows, SWAPPED_ROWS))
    columns = {
        name: column if name in texts or column.kind == "text" else _swapped(column, rng)
        for name, column in some.columns.items()
    }
    swapped = Table(columns, table.source)
    mean = predict(table.rows(evenly_spaced(table.n_rows, MEAN_ROWS))).mean(axis=0)
    kept = np.sort(representative(predict(swapped), mean, count, rng))
    return {name: _cells(column.take(kept)) for name, column in columns.items()}


def representative(predicted: Array, mean: Array, count: int, rng: np.random.Generator) -> Array:
    """Return indices of up to `count` rows with a mean prediction near `mean` (outputs,).

    A random choice of rows is improved by replacing one row after another.
    """
    rows = len(predicted)
    chosen = rng.permutation(rows)[:count]
    if count >= rows:
        return chosen
    z = np.where(np.isfinite(predicted), predicted, mean) - mean
    z /= np.maximum(z.std(axis=0), np.finfo(np.float64).tiny)
    total = z[chosen].sum(axis=0)
    is_free = np.ones(rows, bool)
    is_free[chosen] = False
    for k in [*range(len(chosen))] * SWEEPS:
        old = int(chosen[k])
        others = np.append(old, rng.integers(0, rows, REPLACEMENTS))
        totals = total + z[others] - z[old]
        sizes = np.where(is_free[others], (totals**2).sum(axis=1), np.inf)
        sizes[0] = (total**2).sum()
        best = int(sizes.argmin())
        chosen[k], total = others[best], totals[best]
        is_free[old], is_free[others[best]] = True, False
    return chosen


def _swapped(column: Column, rng: np.random.Generator) -> Column:
    known = np.flatnonzero(~column.missing)
    order = known[np.argsort(column.values[known], kind="stable")]
    steps = rng.integers(1, 2 + int(len(known) * NEAR_RANKS), len(known))
    steps *= rng.choice((-1, 1), len(known))
    places = np.arange(len(known))
    beyond = (places + steps < 0) | (places + steps >= len(known))
    ranks = places + np.where(beyond, -steps, steps)
    values = column.values.copy()
    values[order] = column.values[order[ranks]]
    return replace(column, values=values)


def _cells(column: Column) -> list[Any]:
    if column.kind != "number":
        return [column.text(k) or None for k in range(len(column.values))]
    gaps = column.missing.tolist()
    return [None if gap else value for gap, value in zip(gaps, column.values.tolist(), strict=True)]
