"""Sparse features, made dense one batch at a time, and statistics of features."""

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.preprocessing import StandardScaler

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.features.duplicate_rows import DuplicateRows, find_duplicates, hashed
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.sources import LIMIT, Source
from mlpengine.data.features.statistics import Statistics
from mlpengine.data.tables import Table
from mlpengine.settings.features import BINS

__all__ = [
    "RawRows",
    "dense_rows",
    "exact_scale",
    "issparse",
    "matrix_duplicates",
    "quantile_edges",
    "updated_scale",
]

DENSE = 1 << 20
"""Count of numbers of a sparse matrix that become dense at once."""


def dense_rows(x: Any) -> Array:
    """Return rows of a matrix as a dense array."""
    array: Array = x.toarray() if issparse(x) else x
    return array


def matrix_duplicates(x: Any) -> DuplicateRows:
    """Return the duplicate rows of a matrix; dense and sparse matrices have the same hashes."""
    if issparse(x) and not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()

    def hashes_of(rows: Array, k: int) -> Array:
        return hashed(dense_rows(x[rows][:, [k]]).astype(np.float64)[:, 0].copy(), k)

    return find_duplicates(_row_hashes(x), hashes_of, x.shape[1])


def _row_hashes(x: Any) -> Array:
    if issparse(x):
        each = hashed(x.data.astype(np.float64), x.indices)
        sums = np.append(np.uint64(0), np.cumsum(each, dtype=np.uint64))
        return np.asarray(sums[x.indptr[1:]] - sums[x.indptr[:-1]])
    size, columns = max(1, DENSE // max(1, x.shape[1])), np.arange(x.shape[1])
    chunks = (x[start : start + size].astype(np.float64) for start in range(0, len(x), size))
    return np.concatenate([hashed(rows, columns).sum(axis=1) for rows in chunks])


def updated_scale(scaler: Any, x: Array, weights: Array | None, where: str, start: int = 0) -> Any:
    """Return a copy of a scaler, updated with these rows; the first row has number `start`.

    Raises: DataError for a number with a square that overflows.
    """
    _check_size(x, where, start)
    scaler = copy(scaler)  # `partial_fit` replaces its attributes
    with np.errstate(invalid="ignore"):  # the variance of very different weights rounds below 0
        scaler.partial_fit(x, sample_weight=weights)
    return scaler


def exact_scale(x: Array) -> StandardScaler:
    """Return a scaler with the mean and deviation of the preprocessing of configs.

    They are equal to the last bit.  Raises: DataError for a number with a square that overflows.
    """
    _check_size(x, "X", 0)
    table = Table.from_arrays(x)
    stats = Statistics(table, [Source(name) for name in table.names], strict=True, rows=None)
    center, spread = stats.scale("standard")
    varies = (stats.high > stats.low) & (spread > 1e-13 * np.abs(stats.mean))
    scaler = StandardScaler()
    scaler.mean_, scaler.var_ = center, np.square(spread)
    scaler.scale_ = np.where(varies, spread, 1.0)
    scaler.n_features_in_, scaler.n_samples_seen_ = x.shape[1], np.int64(len(x))
    return scaler


def _check_size(x: Array, where: str, start: int) -> None:
    if max(float(x.max()), -float(x.min())) > LIMIT:
        row, column = (int(k) for k in np.argwhere(np.abs(x) > LIMIT)[0])
        raise DataError(
            f"{where}: row {start + row}, column {column}: a number beyond {LIMIT:g} cannot be "
            f"scaled ({x[row, column]:g}); divide it, or leave it out"
        )


def quantile_edges(x: Any) -> list[Array]:
    """Return the edges of the quantile bins of each feature, as in configs.

    The list is empty if a number of any feature is too large for such statistics.
    """
    if float(abs(x).max()) > LIMIT:
        return []
    edges: list[Array] = []
    at_once = max(1, DENSE // x.shape[0]) if issparse(x) else x.shape[1]
    for start in range(0, x.shape[1], at_once):
        table = Table.from_arrays(dense_rows(x[:, start : start + at_once]))
        sources = [Source(name) for name in table.names]
        edges += Numbers.fit(table, sources, "standard", "mean", bins=BINS).bins.edges
    return edges


class RawRows:
    """The features of the rows of a matrix, dense or sparse, computed when they are read.

    `features` is a function that computes `width` features of type `dtype`.
    """

    def __init__(
        self, matrix: Any, features: Callable[[Array], Array], width: int, dtype: Any
    ) -> None:
        self._matrix, self._features = matrix, features
        self.shape, self.dtype = (matrix.shape[0], width), dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Array:
        """Return the features of these rows as a new array."""
        return self._features(dense_rows(self._matrix[rows]))

    def gather(self, indices: Array, out: Array) -> None:
        """Write the features of these rows into `out`."""
        out[...] = self[indices]
