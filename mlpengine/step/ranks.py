"""MPI processes (ranks) that train together; only this module imports mpi4py."""

from collections.abc import Mapping, Sequence
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlpengine.core.buffers import replay
from mlpengine.core.spec import Array, Call, call
from mlpengine.core.system import usable_cores
from mlpengine.core.wording import differing
from mlpengine.step.blas_threads import cpu_quota

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

T = TypeVar("T")


class Ranks:
    """The ranks of an mpi4py communicator; all ranks make the same calls in the same order.

    Attributes:
        comm: the communicator.
        rank, size: number of this process, and number of processes.
        cores: maximum number of threads of this rank.
        ended: whether all ranks end, because one rank reported an error to all.
        wants_stop: whether this rank asks all ranks to end training.
        stops: whether all ranks end training after this step.
    """

    def __init__(self, comm: "Comm") -> None:
        self.comm, self.rank, self.size = comm, int(comm.Get_rank()), int(comm.Get_size())
        self.ended = self.wants_stop = self.stops = False
        self.cores = maxsize

    def first(self, value: T | None) -> T | None:
        """Return the value of the first rank with a value that is not None, or None."""
        return next((v for v in self.of_all(value) if v is not None), None)

    def of_all(self, value: T) -> list[T]:
        """Return the values of all ranks."""
        values: list[T] = self.comm.allgather(value)
        return values

    def of_root(self, value: T) -> T:
        """Return the value of rank 0."""
        root: T = self.comm.bcast(value)
        return root

    def agree_to_stop(self) -> bool:
        """Set and return `stops`: whether any rank wants to stop."""
        self.stops = any(self.of_all(self.wants_stop))
        return self.stops

    def difference(self, values: Mapping[str, Any]) -> str:
        """Return a message (the same on all ranks) if a value differs between ranks, else ""."""
        everyone = self.of_all(dict(values))
        for name, value in everyone[0].items():
            for rank, other in enumerate(everyone):
                if other[name] != value:
                    first, this = differing(value, other[name])
                    return (
                        f"{name} must be the same on all ranks "
                        f"(rank 0 has {first}, rank {rank} has {this})"
                    )
        return ""

    def share_of_cores(self) -> int:
        """Return the usable cores of this machine, divided by its number of ranks; at least 1."""
        from mpi4py import MPI

        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        usable = here.allgather(usable_cores())
        share = int(min(len(set().union(*usable)), cpu_quota())) // len(usable)
        here.Free()
        return max(1, share)

    def share(self, count: int, rank: int | None = None) -> slice:
        """Return the slice of `count` items that belongs to `rank`, by default to this rank."""
        rank = self.rank if rank is None else rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def exchange(self, rows: Array, parts: Sequence[slice]) -> None:
        """Send this rank's part of `rows` to all ranks, and receive their parts into `rows`.

        ``parts[r]`` is the slice of `rows` that rank r sends.
        """
        from mpi4py import MPI

        row_bytes = rows[:1].nbytes
        counts = [(p.stop - p.start) * row_bytes for p in parts]
        starts = [p.start * row_bytes for p in parts]
        whole = rows.reshape(-1).view(np.uint8)
        self.comm.Allgatherv(MPI.IN_PLACE, [whole, counts, starts, MPI.BYTE])

    def sum(self, vector: Array, tail_bytes: int) -> Call:
        """Return the call that replaces each rank's `vector` by the sum over all ranks.

        The sum is a binary tree: ranks 0 and 1, ranks 2 and 3, then these two sums, and so on.  So
        the bits of the sum of all shards do not depend on the number of shards per rank.

        Rank r receives part r of every vector, adds these parts, and sends the sum to all ranks.
        So each rank sends and receives at most two vectors, for any number of ranks.
        Shapes: vector (n,), with n a multiple of the number of ranks.  Its last `tail_bytes` bytes
        hold float64 numbers, and belong to the last part.
        """
        parts = np.empty((self.size, vector.size // self.size), vector.dtype)
        has_tail = self.rank == self.size - 1
        end = parts.shape[1] - has_tail * (tail_bytes // vector.itemsize)
        calls: list[Call] = [partial(self.comm.Alltoall, vector, parts)]
        for numbers in filter(np.size, (parts[:, :end], parts[:, end:].view(np.float64))):
            for distance in (1 << level for level in range(self.size.bit_length() - 1)):
                left, right = (numbers[i :: 2 * distance] for i in (0, distance))
                calls.append(call(np.add, left, right, left))
        return partial(replay, [*calls, partial(self.comm.Allgather, parts[0], vector)])
