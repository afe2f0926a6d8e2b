"""Features in a file: preprocessed once, then read in windows of blocks."""

import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core import system
from mlpengine.core.files import read_file, write_all, writing
from mlpengine.core.spec import Array
from mlpengine.data.features.thresholds import BLOCK_BYTES, PREPARED_ROWS
from mlpengine.data.tables.stored import (
    DESCRIPTION,
    ROWS,
    OpenFile,
    complete_file,
    is_complete,
    part_of,
    preparing,
    short_digest,
)
from mlpengine.data.tables.table import Table


@dataclass(frozen=True)
class Windows:
    """Shuffles rows of a file: first the order of blocks, then the rows within windows of blocks.

    Attributes:
        block: number of rows in a block.
        count: number of blocks in a window; a window is in memory.
    """

    block: int
    count: int

    def shuffle(self, order: Array, generator: np.random.Generator) -> None:
        """Write a new order of the rows 0, 1, ... into `order`.

        If a single window holds all rows, `generator.shuffle(order)` gives the order.
        """
        n_rows, size = len(order), self.block * self.count
        if n_rows <= size:
            generator.shuffle(order)
            return
        starts = np.arange(0, n_rows, self.block)
        generator.shuffle(starts)
        position = 0
        for first in range(0, len(starts), self.count):
            begin = position
            for start in starts[first : first + self.count].tolist():
                end = min(start + self.block, n_rows)
                order[position : position + end - start] = np.arange(start, end)
                position += end - start
            generator.shuffle(order[begin:position])


class PreparedRows:
    """A float32 matrix of features in a file.

    A cache holds as many blocks as a window, so an epoch in the order of `Windows` reads each block
    once.  A batch with rows from more blocks than the cache holds bypasses the cache.

    Attributes:
        checksum: CRC-32 of shape and values, equal to the checksum of the matrix in memory.
    """

    def __init__(self, target: Path, windows: Windows, batch_size: int) -> None:
        description = json.loads(read_file(target.with_suffix(DESCRIPTION)))
        rows, width = (int(size) for size in description["shape"])
        self.shape, self.dtype = (rows, width), np.dtype(np.float32)
        self.checksum = int(description["checksum"])
        self.file = OpenFile(target)
        self.windows = windows
        self._slots = min(windows.count, -(-rows // windows.block))
        self._cache = np.empty((0, width), np.float32)  # allocated when rows are gathered
        self._slot_of = np.full(-(-rows // windows.block), -1, np.int64)
        self._block_in = np.full(self._slots, -1, np.int64)
        self._next = 0
        self._blocks, self._places = np.empty((2, batch_size), np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Array | slice) -> Array:
        """Return the given rows as a new array."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self.shape[0]))
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        out = np.empty((len(rows), self.shape[1]), np.float32)
        blocks, places = np.divmod(rows, self.windows.block)
        for block in np.unique(blocks).tolist():
            own = blocks == block
            out[own] = self._block(block)[places[own]]
        return out

    def gather(self, indices: Array, out: Array) -> None:
        """Write the given rows, at most `batch_size`, into float32 `out`."""
        count, size = len(indices), self.windows.block
        blocks, places = self._blocks[:count], self._places[:count]
        np.floor_divide(indices, size, out=blocks)
        self._slot_of.take(blocks, 0, places, "clip")
        if places.min() < 0:
            if not self._load(blocks):
                out[...] = self[indices]
                return
            self._slot_of.take(blocks, 0, places, "clip")
        # row r of block b in slot s is at position s * size + (r - b * size)
        np.subtract(places, blocks, out=places)
        np.multiply(places, size, out=places)
        np.add(places, indices, out=places)
        self._cache.take(places, 0, out, "clip")

    def _load(self, blocks: Array) -> bool:
        """Read blocks into the cache, in place of the oldest; return False if they do not fit."""
        wanted = np.unique(blocks)
        if len(wanted) > self._slots:
            return False
        size = self.windows.block
        if not len(self._cache):
            self._cache = np.empty((self._slots * size, self.shape[1]), np.float32)
        for block in wanted[self._slot_of[wanted] < 0].tolist():
            while self._block_in[self._next] in wanted:
                self._next = (self._next + 1) % self._slots
            slot, self._next = self._next, (self._next + 1) % self._slots
            if self._block_in[slot] >= 0:
                self._slot_of[self._block_in[slot]] = -1
            values = self._block(block)
            self._cache[slot * size : slot * size + len(values)] = values
            self._slot_of[block], self._block_in[slot] = slot, block
        return True

    def _block(self, block: int) -> Array:
        """Return the rows of a block, mapped from the file."""
        start, width = block * self.windows.block, self.shape[1]
        rows = min(self.windows.block, self.shape[0] - start)
        with writing(self.file.path, "read"):
            values = self.file.values(self.dtype, start * width * self.dtype.itemsize, rows * width)
        return values.reshape(rows, width)


Transform = Callable[[Table], Array]
"""Function from a table in memory to its float32 features."""


def prepared_rows(
    table: Table,
    rows: Array | None,
    state: Mapping[str, Any],
    transform: Transform,
    width: int,
    *,
    window: int,
    batch_size: int,
) -> PreparedRows:
    """Return features of a table's rows from a file; write the file if it does not exist.

    The columns of `table` are in a file.  `state` determines the result of `transform`.

    Raises: DataError for a value that cannot be used; RunError if the file cannot be written.
    """
    source = next(iter(table.columns.values())).file  # type: ignore[attr-defined]
    block = max(1, BLOCK_BYTES // (4 * max(1, width)))
    chosen = "all" if rows is None else sha256(rows.tobytes()).hexdigest()
    key = short_digest({"columns": source.path.name, "state": state, "rows": chosen})
    target = source.path.with_name(f"{source.path.stem}-{key}{ROWS}")
    count = table.n_rows if rows is None else len(rows)
    with preparing(target):
        if not is_complete(target):
            _write(table, rows, count, width, target, transform)
        return PreparedRows(target, Windows(block, window), batch_size)


def _write(
    table: Table, rows: Array | None, count: int, width: int, target: Path, transform: Transform
) -> None:
    """Write preprocessed rows to a file, part by part; after an error, no file remains."""
    checksum = zlib.crc32(repr((count, width)).encode())
    temporary = part_of(target)
    try:
        with writing(target):
            descriptor = system.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for start in range(0, count, PREPARED_ROWS):
                part = np.arange(start, min(start + PREPARED_ROWS, count))
                features = transform(table.rows(part if rows is None else rows[part]))
                data = np.ascontiguousarray(features, np.float32).tobytes()
                checksum = zlib.crc32(data, checksum)
                with writing(target):
                    write_all(descriptor, data)
            with writing(target):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        complete_file(target, {"shape": [count, width], "checksum": checksum})
    finally:
        temporary.unlink(missing_ok=True)
