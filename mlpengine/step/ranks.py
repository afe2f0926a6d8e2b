"""The processes that train over MPI, one rank each; mpi4py is imported only here."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mlpengine.core.spec import Array, Call, call
from mlpengine.core.system import SHARES_MEMORY, usable_cores
from mlpengine.core.wording import differing
from mlpengine.step.blas_threads import cpu_quota
from mlpengine.step.shared_memory import SharedBlock, map_block

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

DOUBLING_BYTES = 1 << 16
"""Bytes up to which ranks exchange whole vectors: half as many messages, each of all the bytes."""

TAG = 1_234
"""The tag of the messages of a reduction."""

T = TypeVar("T")


class Ranks:
    """The ranks of a communicator of mpi4py, all of which make the same calls in the same order.

    Attributes:
        comm: the communicator.
        rank, size: number of this process, and of processes.
        cores: how many threads this rank may have.
        ended: whether all ranks know of an error that ends them.
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

    def minimum(self, *numbers: float) -> list[float]:
        """Return the minimum of each number over the ranks."""
        values = np.array(numbers, np.float64)
        self.comm.Allreduce(_mpi().IN_PLACE, values, _mpi().MIN)
        return [float(value) for value in values]

    def agree_to_stop(self) -> bool:
        """Return, and record in `stops`, whether any rank wants to stop."""
        self.stops = any(self.comm.allgather(self.wants_stop))
        return self.stops

    def difference(self, values: Mapping[str, Any]) -> str:
        """Return what differs between the `values` of the ranks, or "", on every rank."""
        everyone = self.comm.allgather(dict(values))
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
        """Return how many of its machine's cores each rank on this machine may use."""
        from mpi4py import MPI

        here = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        usable = here.allgather(usable_cores())
        share = int(min(len(set().union(*usable)), cpu_quota())) // len(usable)
        here.Free()
        return max(1, share)

    def share(self, count: int, rank: int | None = None) -> slice:
        """Return the part of `count` things that a rank, by default this one, works on."""
        rank = self.rank if rank is None else rank
        return slice(count * rank // self.size, count * (rank + 1) // self.size)

    def exchange(self, rows: Array, parts: Sequence[slice]) -> None:
        """Send this rank's part of `rows` to all ranks, and receive theirs; `parts`, by rank."""
        row_bytes = rows[:1].nbytes
        counts = [(p.stop - p.start) * row_bytes for p in parts]
        starts = [p.start * row_bytes for p in parts]
        whole = rows.reshape(-1).view(np.uint8)
        self.comm.Allgatherv(_mpi().IN_PLACE, [whole, counts, starts, _mpi().BYTE])

    def block(
        self, shape: tuple[int, int], dtype: "np.dtype[Any]", *, compiled: bool
    ) -> SharedBlock | None:
        """Return memory for what `reduction` adds that other ranks can read, if that is faster.

        It is for large vectors, and for steps that are `compiled`, which make no calls of MPI.
        """
        large = compiled or shape[1] * dtype.itemsize > DOUBLING_BYTES
        useful = self.size > 1 and large and SHARES_MEMORY
        return SharedBlock(shape, dtype) if useful else None

    def map_all(self, block: SharedBlock) -> list[Array]:
        """Return the blocks of all ranks, [] unless every rank can map all of them."""
        own = block.array
        blocks = [map_block(place, own.shape, own.dtype) for place in self.of_all(block.place)]
        blocks[self.rank] = own
        mapped = [one for one in blocks if one is not None]
        return mapped if all(self.of_all(len(mapped) == self.size)) else []

    def reduction(
        self, vector: Array, tail: Array, *, fast: bool, block: SharedBlock | None = None
    ) -> Call:
        """Return the call that adds all ranks' `vector` and its `tail`, each into itself.

        The ranks' vectors are the leaves of a binary tree: every entry is added in the order of the
        tree, so that the sum does not depend on how many of its leaves are on one rank.  With
        `fast` MPI chooses the order.
        Where `vector` is row 0 of a `block`, ranks on one machine read it in each other's memory.
        Shapes: `vector` ends with the bytes of `tail`, a view of it in float64.
        """
        body = vector[: vector.size - tail.nbytes // vector.itemsize]
        if self.size == 1:
            return lambda: None
        if fast:
            return partial(_run_all, [
                partial(self.comm.Allreduce, _mpi().IN_PLACE, part) for part in (body, tail)
            ])  # fmt: skip
        if self.size == 2 or vector.nbytes <= DOUBLING_BYTES:
            calls = self._doubling(body, vector, tail)
        else:
            calls = self._halving(body, vector, tail)
        messages = partial(_run_all, calls)
        return messages if block is None else _SharedSum(self, body.size, block, messages)

    def _doubling(self, body: Array, vector: Array, tail: Array) -> list[Call]:
        """Return calls that exchange whole vectors, at level l with the rank at distance 2**l."""
        other = np.empty_like(vector)
        other_tail = other[body.size :].view(tail.dtype)
        calls: list[Call] = []
        for level in range(self.size.bit_length() - 1):
            calls += [
                self._exchange(self.rank ^ 1 << level, vector, other),
                call(np.add, body, other[: body.size], body),
                call(np.add, tail, other_tail, tail),
            ]
        return calls

    def _halving(self, body: Array, vector: Array, tail: Array) -> list[Call]:
        """Return calls that add ever smaller parts of the vectors, and then exchange the sums."""
        other = np.empty_like(vector)
        other_tail = other[body.size :].view(tail.dtype)
        first, last = 0, vector.size
        calls: list[Call] = []
        back: list[Call] = []
        for level in range(self.size.bit_length() - 1):
            peer, middle = self.rank ^ 1 << level, (first + min(last, body.size)) // 2
            halves = [(first, middle), (middle, last)]
            (a, b), (c, d) = halves if peer > self.rank else halves[::-1]
            end = min(b, body.size)
            calls += [
                self._exchange(peer, vector[c:d], other[a:b]),
                call(np.add, vector[a:end], other[a:end], vector[a:end]),
            ]
            if b > body.size:
                calls.append(call(np.add, tail, other_tail, tail))
            back.insert(0, self._exchange(peer, vector[a:b], vector[c:d]))
            first, last = a, b
        return calls + back

    def _exchange(self, peer: int, sent: Array, received: Array) -> Call:
        """Return the call that sends to and receives from a rank, by persistent requests."""
        from mpi4py import MPI

        requests = [
            self.comm.Recv_init([received, MPI.BYTE], peer, TAG),
            self.comm.Send_init([sent, MPI.BYTE], peer, TAG),
        ]
        exchange = partial(_exchange, MPI.Prequest.Startall, MPI.Request.Waitall, requests)
        weakref.finalize(exchange, _free, requests)
        return exchange


class _SharedSum:
    """The sum of row 0 of the blocks of all ranks, where they can map the blocks of all others.

    Each rank adds its part of all rows, and then copies the parts of the others, which is less to
    read and write than messages are.  The first call maps the blocks: ranks make their training
    steps at different times.  On several machines `messages` run instead.
    """

    def __init__(self, ranks: Ranks, size: int, block: SharedBlock, messages: Call) -> None:
        self._ranks, self._size = ranks, size
        self._block: SharedBlock | None = block
        self._messages = messages
        self._calls: list[Call] = []

    def __call__(self) -> None:
        if self._block is not None:
            self._calls = self._mapped(self._block) or [self._messages]
            self._block = None  # which other ranks have mapped
        _run_all(self._calls)

    def _mapped(self, block: SharedBlock) -> list[Call]:
        """Return the calls of the sum; none unless every rank has mapped all blocks."""
        ranks, size, own = self._ranks, self._size, block.array
        rows = [one[0] for one in ranks.map_all(block)]
        if not rows:
            return []
        part, tail = ranks.share(size), own[0][size:].view(np.float64)
        _, calls = _tree([row[part] for row in rows], own[0][part])
        tails, of_tail = _tree([row[size:].view(np.float64) for row in rows], np.empty_like(tail))
        barrier: Call = ranks.comm.Barrier
        calls = [barrier, *calls, *of_tail, barrier]
        for rank, row in enumerate(rows):
            if rank != ranks.rank:
                there = ranks.share(size, rank)
                calls.append(call(np.copyto, own[0][there], row[there]))
        return [*calls, call(np.copyto, tail, tails), barrier]


def _tree(vectors: Sequence[Array], out: Array) -> tuple[Array, list[Call]]:
    """Return the sum of vectors, and the calls that add neighbors first and it into `out`."""
    if len(vectors) == 1:
        return vectors[0], []
    middle = len(vectors) // 2
    halves = vectors[:middle], vectors[middle:]
    (left, first), (right, then) = (_tree(half, np.empty_like(out)) for half in halves)
    return out, [*first, *then, call(np.add, left, right, out)]


def _free(requests: list[Any]) -> None:
    """Free requests that no call uses; without it MPI reports them when it ends."""
    if not _mpi().Is_finalized():
        for request in requests:
            request.Free()


def _exchange(start: Callable[..., Any], wait: Callable[..., Any], requests: list[Any]) -> None:
    start(requests)
    wait(requests)


def _run_all(calls: Sequence[Call]) -> None:
    for one in calls:
        one()


def _mpi() -> Any:
    from mpi4py import MPI

    return MPI
