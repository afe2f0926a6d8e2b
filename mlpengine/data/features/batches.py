"""The order of the rows in training."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.features.prepared import Windows


class Batches:
    """Row indices in batches, in a new random order each epoch.

    `rows` is a number of rows or an array of row indices.  The int64 array `order` of all rows is
    shuffled in place, and every batch is a view of `order`.  `drop_last` leaves out a last batch
    with fewer than `batch_size` rows.  With `windows`, the rows of a file are shuffled in blocks,
    and `rows` must be a number.

    >>> [len(indices) for indices in Batches(5, 2).epoch()]
    [2, 2, 1]
    """

    def __init__(
        self,
        rows: int | Array,
        batch_size: int,
        *,
        seed: int | np.random.Generator = 0,
        windows: Windows | None = None,
        drop_last: bool = False,
    ) -> None:
        if isinstance(rows, int | np.integer):
            self.order = np.arange(rows, dtype=np.int64)
        else:
            self.order = np.array(rows, np.int64)
        if self.order.ndim != 1 or not self.order.size:
            raise DataError(f"batches: at least one row is needed (shape {self.order.shape})")
        if batch_size < 1:
            raise DataError(f"batches: batch_size must be at least 1 ({batch_size})")
        if drop_last and batch_size > self.order.size:
            raise DataError(
                "batches: with drop_last, batch_size must not exceed the number of rows "
                f"({plural(self.order.size, 'row')}, batch_size {batch_size})"
            )
        self.batch_size = int(batch_size)
        self.windows, self.drop_last = windows, drop_last
        self.cursor = self.n_rows
        if isinstance(seed, np.random.Generator):
            self.generator = seed
        else:
            self.generator = np.random.Generator(np.random.PCG64(seed))

    @property
    def n_rows(self) -> int:
        """Number of rows in an epoch."""
        count = len(self.order)
        return count - count % self.batch_size if self.drop_last else count

    def __len__(self) -> int:
        return steps_of_epoch(self.order.size, self.batch_size, drop_last=self.drop_last)

    @property
    def is_done(self) -> bool:
        """Whether no batch of the current epoch is left."""
        return self.cursor >= self.n_rows

    def begin(self) -> None:
        """Shuffle the rows for the next epoch; do nothing while batches of this epoch are left."""
        if not self.is_done:
            return
        if self.windows is not None:
            self.windows.shuffle(self.order, self.generator)
        else:
            self.generator.shuffle(self.order)
        self.cursor = 0

    def epoch(self) -> Iterator[Array]:
        """Yield the batches of the next epoch, or the rest of the current epoch."""
        self.begin()
        yield from self.remaining()

    def remaining(self) -> Iterator[Array]:
        """Yield the remaining batches of the current epoch.

        The cursor moves before a batch is yielded.  A state that is saved during a training step
        continues with the next batch.
        """
        while self.cursor < self.n_rows:
            start, self.cursor = self.cursor, min(self.cursor + self.batch_size, self.n_rows)
            yield self.order[start : self.cursor]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that determines later batches: order (a copy), cursor, generator."""
        return {
            "order": self.order.copy(),
            "cursor": self.cursor,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`.

        Raises: DataError if the state has other rows, or a cursor outside the rows.
        """
        order, cursor = np.asarray(state["order"], np.int64), int(state["cursor"])
        if order.shape != self.order.shape or not np.array_equal(
            np.sort(order), np.sort(self.order)
        ):
            raise DataError(
                "batches: the saved order must contain the same rows "
                f"({order.size} saved, {self.order.size} here)"
            )
        if not 0 <= cursor <= self.n_rows:
            raise DataError(f"batches: the cursor must lie within the rows ({cursor})")
        self.generator.bit_generator.state = state["generator"]
        self.order[:] = order
        self.cursor = cursor


def steps_of_epoch(rows: int, batch_size: int, *, drop_last: bool) -> int:
    """Return the number of batches in an epoch over `rows` rows."""
    return rows // batch_size if drop_last else -(-rows // batch_size)
