"""The arrays of a part of a table, in memory or in a file."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.features.prepared import PreparedRows


class TableFeatures:
    """A feature matrix that is computed when rows are read: `write(rows, out)` fills `out`."""

    def __init__(
        self,
        write: Callable[[range, Array], None],
        shape: tuple[int, int],
        dtype: "np.dtype[np.floating]",
    ) -> None:
        self._write, self.shape, self.dtype = write, shape, dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Return the features of adjacent rows as a new array."""
        part = range(self.shape[0])[rows]
        out = np.empty((len(part), self.shape[1]), self.dtype)
        self._write(part, out)
        return out


@dataclass(frozen=True, slots=True)
class Dataset:
    """The arrays of one part of a table, row by row.

    Shapes: features (n, d), as an array, `PreparedRows` (in a file) or `TableFeatures` (computed
        when read); target (n,) int64 classes or (n, k) numbers, or None; weights (n,) or None.
    Dtype: numbers have the preprocessor's `dtype`; features in a file are float32.
    """

    features: Array | PreparedRows | TableFeatures
    target: Array | None = None
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.features)
