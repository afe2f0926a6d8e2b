"""The processes that train over MPI, one rank each; mpi4py is imported only here."""

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
    """The ranks of a communicator of mpi4py; all make the same calls in the same order.

    Attributes:
        comm: the communicator.
        rank, size: the number of this process, and the count of processes.
        cores: number of threads that this rank may have.
        ended: whether an error ends all ranks, and all ranks know it.
        wants_stop: whether this rank asks all ranks to end training.
        stops: whether all ranks end training after this step.
    """

    def __init__(self, comm: "Comm") -> None:
        self.comm, self.rank, self.size = comm, int(comm.Get_rank()), int(comm.Get_size())
        self.ended = self.wants_stop = self.stops = False
        self.cores = maxsize

    def first(self, value: T | None) -> T | None:
        """Return the value of the lowest rank that has one, or None."""
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
        """Return, and record in `stops`, whether any rank wants to stop."""
        self.stops = any(self.of_all(self.wants_stop))
        return self.stops

    def difference(self, values: Mapping[str, Any]) -> str:
        """Return, on every rank, a text of the differing `values` of the ranks, or ""."""
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
        """Return the number of cores of this machine that each of its ranks may use."""
        from mpi4py import MPI

        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        usable = here.allgather(usable_cores())
        share = int(min(len(set().union(*usable)), cpu_quota())) // len(usable)
        here.Free()
        return max(1, share)

    def share(self, count: int, rank: int | None = None) -> slice:
        """Return the slice of `count` items that a rank, by default this one, works on."""
        rank = self.rank if rank is None else rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def exchange(self, rows: Array, parts: Sequence[slice]) -> None:
        """Send this rank's part of `rows` to all ranks, and receive theirs.

        `parts` are the slices of `rows` by rank.
        """
        from mpi4py import MPI

        row_bytes = rows[:1].nbytes
        counts = [(p.stop - p.start) * row_bytes for p in parts]
        starts = [p.start * row_bytes for p in parts]
        whole = rows.reshape(-1).view(np.uint8)
        self.comm.Allgatherv(MPI.IN_PLACE, [whole, counts, starts, MPI.BYTE])

    def sum(self, vector: Array, tail_bytes: int) -> Call:
        """Return the call that replaces the `vector` of every rank by the sum of all vectors.

        The vectors are the leaves of a binary tree, and neighbors are added first.  So the bits of
        the sum do not depend on the number of leaves on a rank.  Each rank receives its part of all
        vectors, adds the parts, and sends the sum to all ranks.  So for any number of ranks, a rank
        sends and receives at most the bytes of two vectors, and adds one vector. The last
        `tail_bytes` are numbers in float64.
        Shapes: vector (n,), a multiple of the ranks; the tail lies in the part of the last rank.
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
