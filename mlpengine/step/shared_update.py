"""An update that ranks on one machine share out, in memory that all of them map."""

import ctypes
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.backends.compiled.executor import LOST_RANK
from mlpengine.backends.compiled.source import NORM_CHUNK
from mlpengine.core.buffers import address_of
from mlpengine.core.errors import RunError
from mlpengine.core.placement import ALIGNMENT
from mlpengine.core.spec import Array
from mlpengine.core.system import process_file
from mlpengine.optim import Optimizer
from mlpengine.step.ranks import Ranks
from mlpengine.step.shared_memory import SharedBlock, map_block

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor


POLLED = np.dtype([("file", np.int32), ("events", np.int16), ("happened", np.int16)])
"""What poll(2) takes and gives for a file."""

READABLE = 1
"""The event of a file that can be read, as that of a process can once it has ended."""

FIRST_MOMENT = 3
"""The row of the first moment in the memory of all ranks; before it are the barrier and the sums of
squares of chunks, the gradient, and the parameters."""


class ShardOfCall(ctypes.Structure):
    """A shard as machine code: ``struct shard`` of ranks.h."""

    _fields_ = (
        ("run", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("start", ctypes.c_int64),
    )


class TableOfCall(ctypes.Structure):
    """The addresses of a program: ``struct table`` of ranks.h."""

    _fields_ = (("addresses", ctypes.c_void_p), ("length", ctypes.c_int64))


class RanksOfCall(ctypes.Structure):
    """What the ranks of a call share: ``struct ranks`` of ranks.h, which describes it."""

    _fields_ = (
        ("index", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("numbers", ctypes.c_int64),
        ("lost", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("shard_count", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("shards", ctypes.c_void_p),
        ("drawn", ctypes.c_void_p),
        ("processes", ctypes.c_void_p),
        ("barrier", ctypes.c_void_p),
        ("gradients", ctypes.c_void_p),
        ("tails", ctypes.c_void_p),
        ("tail", ctypes.c_void_p),
        ("chunk_sums", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("shares", ctypes.c_int64),
        ("table_count", ctypes.c_int64),
        ("tables", ctypes.c_void_p),
    )


class SharedUpdate:
    """An update of which each rank makes its part, and receives the parameters of the others.

    In a call of several steps the programs of all ranks work on one copy of the parameters, which
    are the network's own again when it returns.

    A rank adds its part of all gradients and updates its part of the moments, both in memory that
    all ranks map.  The optimizer's own moments are out of date meanwhile; it takes them back when
    they are read or written, which needs no other rank: the others do not change their parts before
    this rank takes part in the next step.

    Args:
        executor: the update, compiled for ranks; it works on the shared memory from now on.
        rows: for each rank its gradient, and the numbers in float64 that are added, too.
        total: where `executor` reads the gradient, and `read_total` writes it.
        memory: (FIRST_MOMENT + moments, parameters or more), zero at first, which all ranks map.

    Attributes:
        tail: (numbers,), the sums of the numbers.
    """

    def __init__(
        self,
        ranks: Ranks,
        executor: "Executor",
        optimizer: Optimizer,
        rows: Sequence[tuple[Array, Array]],
        total: Array,
        memory: Array,
    ) -> None:
        moments = optimizer.moments
        _, shared_total, params, *shared = memory[:, : total.size]
        barrier, chunk_sums = np.split(memory[0].view(np.uint8), [ALIGNMENT])
        self.tail = np.zeros_like(rows[0][1])
        executor.move(total, shared_total)
        for private, other in zip(moments.values(), shared, strict=True):
            executor.move(private, other)
        gradients, tails = (np.array([address_of(a) for a in v]) for v in zip(*rows, strict=True))
        processes = watched(ranks)
        described = RanksOfCall(
            index=ranks.rank,
            count=ranks.size,
            numbers=self.tail.size,
            processes=address_of(processes),
            barrier=address_of(barrier),
            gradients=address_of(gradients),
            tails=address_of(tails),
            tail=address_of(self.tail),
            chunk_sums=address_of(chunk_sums),
            parameters=address_of(params),
        )
        executor.call.ranks = ctypes.addressof(described)
        executor.call.shared = described, rows, gradients, tails, memory, self.tail, processes
        self._described = described
        chunks = ranks.share(-(-total.size // NORM_CHUNK))
        own = slice(chunks.start * NORM_CHUNK, min(chunks.stop * NORM_CHUNK, total.size))
        self._optimizer = weakref.ref(optimizer)
        self._moments = [*zip(shared, moments.values(), strict=True)]
        self._own = [(other[own], private[own]) for other, private in self._moments]
        self._total = total, shared_total
        self._holds, self._is_read = False, True
        self._add = executor.library.mlpengine_add
        self._add.argtypes, self._add.restype = [ctypes.c_void_p], ctypes.c_int64
        self._call = ctypes.c_void_p(ctypes.addressof(executor.call))
        self._executor = executor

    def take_shards(
        self,
        programs: Sequence[tuple[int, "Executor"]],
        *,
        batch: int,
        stride: int,
        drawn: Array | None,
    ) -> None:
        """Let `Executor.run` of the update compute the shards of this rank, too.

        `programs` compute the gradients of a shard, of rows that they gather; each comes with its
        first row of the `batch`.  `stride` is the length of a row of partial sums, `drawn` the
        state of what dropout draws.
        """
        shards = (ShardOfCall * len(programs))()
        for shard, (start, program) in zip(shards, programs, strict=True):
            shard.run = ctypes.cast(program.library.mlpengine_run, ctypes.c_void_p).value
            shard.call, shard.start = ctypes.addressof(program.call), start
        described = self._described
        described.shards, described.shard_count = ctypes.addressof(shards), len(shards)
        described.batch, described.stride = batch, stride
        described.drawn = None if drawn is None else address_of(drawn)
        used = [p.call.memory[0] for p in (self._executor, *(p for _, p in programs))]
        tables = (TableOfCall * len(used))(*(TableOfCall(address_of(t), t.size) for t in used))
        described.tables, described.table_count = ctypes.addressof(tables), len(tables)
        described.taken = shards, programs, drawn, tables

    def add(self) -> None:
        """Wait for the gradients of all ranks, and add this rank's part of them."""
        if not self._add(self._call):
            raise RunError(LOST_RANK)
        self.lend_moments()

    def lend_moments(self) -> None:
        """Work on moments that all ranks map, from the next update on."""
        self._is_read = False
        if not self._holds and (optimizer := self._optimizer()):
            optimizer.lend_moments(self._return_moments)
            for other, private in self._own:
                np.copyto(other, private)
            self._holds = True

    def read_total(self) -> None:
        """Copy the gradient of the last step, which all ranks have added."""
        if not self._is_read:
            np.copyto(*self._total)
            self._is_read = True

    def _return_moments(self) -> None:
        for other, private in self._moments:
            np.copyto(private, other)
        self._holds = False


def watched(ranks: Ranks) -> Array:
    """Return (ranks,) of `POLLED`: a file of each process that can be read once it has ended."""
    processes = np.zeros(ranks.size, POLLED)
    processes["file"], processes["events"] = -1, READABLE  # poll ignores files below 0
    for rank, number in enumerate(ranks.of_all(os.getpid())):
        with suppress(OSError):  # they are no files
            processes["file"][rank] = file = process_file(number)
            weakref.finalize(processes, os.close, file)
    return processes


def share_update(
    ranks: Ranks,
    executor: "Executor | None",
    optimizer: Optimizer,
    rows: Sequence[tuple[Array, Array]],
    total: Array,
) -> SharedUpdate | None:
    """Return the update of which each rank makes a part; None if they cannot map one memory.

    All ranks call this; `rows` are empty if this rank cannot map those of the others.
    """
    lines = 1 + -(-total.nbytes // ALIGNMENT)  # one more in row 0, for the barrier
    shape = FIRST_MOMENT + len(optimizer.moments), lines * ALIGNMENT // total.itemsize
    block = SharedBlock(shape, total.dtype) if ranks.rank == 0 else None
    place = ranks.of_root(block.place if block else None)
    memory = block.array if block else place and map_block(place, shape, total.dtype)
    if not all(ranks.of_all(executor is not None and len(rows) > 0 and memory is not None)):
        return None
    assert executor is not None
    assert memory is not None
    return SharedUpdate(ranks, executor, optimizer, rows, total, memory)
