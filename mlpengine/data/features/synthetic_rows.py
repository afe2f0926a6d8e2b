"""Synthetic rows of a table, so that a teacher can label more rows than the table has."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.preprocessing import Preprocessor
from mlpengine.data.features.thresholds import (
    CANDIDATES,
    DISTANCE_ROWS,
    FARTHEST,
    NEAR_ROWS,
    SWAPPED,
)
from mlpengine.data.tables.table import Table


@dataclass(frozen=True, eq=False)
class SyntheticRows:
    """Synthetic rows: each is a row of a table, with some values taken from a similar row.

    Shapes: base and other (rows,), row indices of the table; swapped (rows, columns), whether the
        value of the column comes from the other row.
    Source: Bucila, Caruana and Niculescu-Mizil 2006, "Model compression", section 3.3 (MUNGE),
        without its noise.
    """

    base: Array
    other: Array
    swapped: Array
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.base)

    @classmethod
    def of(
        cls, fitted: Preprocessor, features: Array, count: int, rng: np.random.Generator
    ) -> "SyntheticRows":
        """Generate `count` synthetic rows; all rows of `features` are used about equally often.

        Shape: features (rows, in_dim), as `fitted` encodes them.
        """
        rows = len(features)
        rounds = -(-max(1, count) // rows)
        base = np.concatenate([rng.permutation(rows) for _ in range(rounds)])[:count]
        near = _neighbors(_places(fitted, features), rng)
        other = near[base, rng.integers(0, near.shape[1], count)]
        columns = tuple(fitted.columns)
        swapped = rng.random((count, len(columns))) < SWAPPED
        return cls(base.astype(np.int32), other.astype(np.int32), swapped, columns)

    def sources(self, columns: Sequence[str]) -> dict[str, Array]:
        """Return, for each column, the indices of the rows that give the values."""
        places = {name: k for k, name in enumerate(self.columns)}
        return {
            name: np.where(self.swapped[:, places[name]], self.other, self.base)
            if name in places
            else self.base
            for name in columns
        }

    def table(self, table: Table) -> Table:
        """Return the synthetic rows as a table, with values of `table`."""
        sources = self.sources(table.names)
        columns = {name: table[name].take(rows) for name, rows in sources.items()}
        return Table(columns, table.source, first_line=table.first_line, origin=self.base)


def _places(fitted: Preprocessor, features: Array) -> Array:
    """Return standardized numbers and one-hot categories in float32, for distances of rows."""
    numbers = fitted.fitted_numbers
    values = features[:, : len(numbers.sources)].astype(np.float64)
    deviation = values.std(axis=0)
    values -= values.mean(axis=0)
    values /= np.where(deviation > 0, deviation, 1.0)
    scaled = np.clip(values, -FARTHEST, FARTHEST)
    return np.hstack([scaled, features[:, numbers.width :]]).astype(np.float32)


def _neighbors(places: Array, rng: np.random.Generator) -> Array:
    """Return the row indices (rows, neighbors) of the nearest rows of each row, unordered."""
    rows = len(places)
    chosen = rng.permutation(rows)[:CANDIDATES]
    candidates, count = places[chosen], min(NEAR_ROWS, len(chosen) - 1)
    if not count:
        return np.zeros((rows, 1), np.intp)
    squares = np.einsum("ij,ij->i", candidates, candidates)
    near = np.empty((rows, count), np.intp)
    for start in range(0, rows, DISTANCE_ROWS):
        block = np.arange(start, min(start + DISTANCE_ROWS, rows))
        distances = squares - 2 * (places[block] @ candidates.T)
        distances[chosen == block[:, None]] = np.inf  # a row is not its own neighbor
        near[block] = chosen[np.argpartition(distances, count - 1, axis=1)[:, :count]]
    return near
