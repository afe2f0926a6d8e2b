"""The arrays of a part of a table, in memory or in a memory-mapped file."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.data.features.numbers import NumberBuffers, Numbers
from mlpengine.data.features.prepared import PreparedRows
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables.table import Block, Table


class TableFeatures:
    """The feature matrix of a table, of which `write` computes adjacent rows when they are read.

    It has the `shape`, the `dtype` and the values of that matrix.
    """

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
    """The arrays of one part of a table, row for row.

    Shapes: features (n, d), a Stream or PreparedRows if they stay in a file, TableFeatures if they
        are computed when they are read; target (n,) int64 classes or (n, k) numbers, or None;
        weights (n,), or None.
    Dtype: the preprocessor's; float32 in a file.
    """

    features: "Array | Stream | PreparedRows | TableFeatures"
    target: Array | None = None
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.features)


class Stream:
    """The feature matrix of some rows of a file larger than memory, computed when gathered.

    It has the `shape`, the `dtype` and the values of that matrix.
    """

    def __init__(
        self, table: Table, block: Block, numbers: Numbers, rows: Array | None, batch_size: int
    ) -> None:
        self.table, self.matrix, self.numbers = table, block.matrix, numbers
        if not self.matrix.flags.c_contiguous:
            raise DataError(
                f"{table.source}: rows must lie one after another to be streamed; save the "
                "array in C order"
            )
        self.rows = np.arange(table.n_rows) if rows is None else rows.astype(np.int64)
        self.columns = np.array([block.positions[source.column] for source in numbers.sources])
        wide, width = self.matrix.shape[1], len(self.columns)
        self.index = np.empty(batch_size, np.int64)
        self.raw = np.empty((batch_size, wide), self.matrix.dtype)
        self.picked = np.empty((batch_size, width), self.matrix.dtype)
        self.work = np.empty((batch_size, width))
        self.missing = np.empty((batch_size, width), bool)
        self.space = numbers.workspace(batch_size)
        self.shape = (len(self.rows), numbers.width)
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Array | slice) -> Array:
        """Return the features of these rows as a new array, of any length."""
        index = self.rows[rows]
        out = np.empty((len(index), self.shape[1]), np.float32)
        self.numbers.encode(self.table, out, index)
        return out

    def gather(self, indices: Array, out: Array) -> None:
        """Write the features of these rows into float32 `out`, at most `batch_size` of them.

        Raises: DataError naming the first cell that is infinite, or missing if that is an error.
        """
        count = len(indices)
        work, missing = self.work[:count], self.missing[:count]
        index = self.index[:count]
        self.rows.take(indices, 0, index, "clip")
        self.matrix.take(index, 0, self.raw[:count], "clip")
        self.raw[:count].take(self.columns, 1, self.picked[:count], "clip")
        np.copyto(work, self.picked[:count])
        np.isnan(work, out=missing)
        np.copyto(work, 0.0, where=missing)
        if work.size and not (work.max() <= LIMIT and work.min() >= -LIMIT):
            self._refuse(index)
        if self.numbers.strict and missing.any():
            self._refuse(index)
        buffers = NumberBuffers(*(a[:count] for a in self.space))
        if not self.numbers.write(work, missing, out, buffers):
            self._refuse(index)

    def _refuse(self, index: Array) -> None:
        """Raise the error of the first bad cell, by reading these rows slice by slice."""
        out = np.empty((len(index), self.shape[1]), np.float32)
        self.numbers.encode(self.table, out, index)
