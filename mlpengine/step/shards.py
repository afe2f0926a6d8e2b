"""The gradient of a batch as a sum over shards (parts of the batch) in a fixed order.

The sum is a binary tree: for 4 shards, (g0 + g1) + (g2 + g3).  Each rank computes one subtree, such
as g0 + g1, and the ranks add their results in the order of the tree.  So the bits of the sum depend
on the number of shards, but not on the number of ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.core.buffers import replay
from mlpengine.core.errors import MlpEngineError, RunError, ShapeError, UsageError
from mlpengine.core.named import check_rows
from mlpengine.core.placement import ALIGNMENT
from mlpengine.core.spec import Array, Call, call
from mlpengine.core.wording import plural
from mlpengine.nn.gradients import GradientMemory, Gradients
from mlpengine.nn.network import Network
from mlpengine.nn.scratch import Scratch
from mlpengine.step.bound_step import BoundStep, StepData
from mlpengine.step.fault import Fault
from mlpengine.step.ranks import Ranks
from mlpengine.tape.flat import Flat

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor

TAIL_BYTES = ALIGNMENT
"""Bytes after each gradient, for float64 sums over shards such as the loss."""

LOSS_PLACE, FAILURES_PLACE, STOPS_PLACE = range(3)
"""Positions in the tail: the loss, the number of ranks with an error, and the number of ranks that
ask to stop."""


def shard_rows(rows: int, shards: int) -> list[slice]:
    """Return the rows of each shard; the sizes differ by one row at most.

    >>> [(s.start, s.stop) for s in shard_rows(5, 4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    bounds = [-(-rows * s // shards) for s in range(shards + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def shards_problem(shards: int, batch_size: int, ranks: int) -> str:
    """Return the reason why a number of shards is invalid, or ""."""
    if not isinstance(shards, int | np.integer) or shards < 1 or shards & (shards - 1):
        return f"must be a power of two (got {shards!r})"
    if shards > batch_size:
        return f"must be at most the batch size, {batch_size} (got {shards})"
    if ranks & (ranks - 1):
        return f"need a power of two as the number of ranks (got {ranks})"
    if shards % ranks:
        return f"must be a multiple of the ranks: {ranks}, {2 * ranks}, ... (got {shards})"
    return ""


class Shards:
    """The buffers of this rank's shards, and the sum of their gradients.

    Args:
        count: number of shards of a batch, on all ranks together.
        make: function that returns a `Scratch` for a number of rows.

    Attributes:
        total: (parameters,), the gradient of a batch.
        tail: (TAIL_BYTES / 8,) of float64, other values that are summed over all shards.
        scratches, grads: a scratch and gradients for each shard of this rank.  Gradients are rows
            of one block.  The block has few rows, because sums are added early.  For 4 shards:
            shard 0 writes row 0; shard 1 writes row 1, which is added to row 0; shard 2 writes row
            1 again; shard 3 writes row 2, which is added to row 1, and row 1 to row 0.

    Raises: UsageError unless the number of shards is a power of two and a multiple of the number
        of ranks.
    """

    def __init__(
        self,
        mlp: Network,
        batch_size: int,
        count: int,
        ranks: Ranks | None,
        *,
        make: Callable[[int], Scratch],
    ) -> None:
        size = ranks.size if ranks else 1
        if problem := shards_problem(count, batch_size, size):
            raise UsageError(f"training step: shards {problem}")
        self._settings = mlp, batch_size, count, ranks
        self.count, self.ranks = count, ranks
        self._mine = ranks.share(count) if ranks else slice(0, count)
        here, rows = count // size, -(-batch_size // count)
        # a row holds the gradient, zeros as padding, and the tail; with the padding, the part of
        # the row that each rank sums is a whole number of cache lines
        line, tail = ALIGNMENT // mlp.dtype.itemsize * size, TAIL_BYTES // mlp.dtype.itemsize
        length = -(-(len(mlp.params) + tail) // line) * line
        self._block = np.zeros((here.bit_length(), length), mlp.dtype)
        bodies, tails = self._block[:, :-tail], self._block[:, -tail:].view(np.float64)
        self._sums = [*zip(bodies, tails, strict=True)]
        flats = [Flat(mlp.params.specs) for _ in self._block]
        for row, flat in enumerate(flats):
            flat.move_to(self._block, row)
        self.total: Array = flats[0].flat
        self.tail: Array = tails[0]
        mlp.rng.rows = batch_size
        self.scratches = [make(rows) for _ in range(here)]
        if self.scratches[0].recording.statistics:
            raise UsageError(
                "training step: batch_norm needs shards=1 and one rank, because it averages over "
                "a whole batch"
            )
        self._rng = mlp.rng if self.scratches[0].recording.draws else None
        d_outputs = [mlp.empty_outputs(rows) for _ in range(here)]
        self.grads = [
            Gradients(mlp, rows, memory=GradientMemory(flats[k.bit_count()], d_output, None))
            for k, d_output in enumerate(d_outputs)
        ]
        self._add_ranks = ranks.sum(self._block[0], TAIL_BYTES) if ranks else None

    def bind(
        self,
        batch: int,
        build: Callable[[Scratch, Gradients], BoundStep],
        update: "Executor | None",
    ) -> "BoundShards":
        """Return the step for `batch` rows; `build` makes the step of one shard."""
        if batch > self._settings[1]:
            limit = plural(self._settings[1], "row")
            raise ShapeError(f"training step: takes up to {limit} (got {batch})")
        groups: list[tuple[int, list[Call]]] = []
        parts: list[tuple[slice, BoundStep]] = []
        for k, rows in enumerate(shard_rows(batch, self.count)[self._mine]):
            size = rows.stop - rows.start
            calls: list[Call]
            body, tail = self._sums[k.bit_count()]
            if size:
                part = build(self.scratches[k].for_rows(size), self.grads[k].for_rows(size))
                parts.append((rows, part))
                calls = [*part.calls, call(tail.__setitem__, LOSS_PLACE, part.loss.value)]
            else:
                calls = [call(body.fill, 0), call(tail.fill, 0)]
            groups.append((rows.start, [*calls, *self._sums_after(k)]))
        first = parts[0][1] if parts else build(self.scratches[0], self.grads[0])
        return BoundShards(
            first.scratch,
            first.grads,
            first.loss,
            update=update,
            calls=(call(self._add_up, groups),),
            batch=batch,
            shards=self,
            parts=tuple(parts),
        )

    def _sums_after(self, k: int) -> Iterator[Call]:
        """Yield the additions that are possible once shard k is complete."""
        row = k.bit_count()
        while k & 1:
            for one, other in zip(self._sums[row - 1], self._sums[row], strict=True):
                yield call(np.add, one, other, one)
            k, row = k >> 1, row - 1

    def _add_up(self, groups: Sequence[tuple[int, Sequence[Call]]]) -> None:
        """Add the gradients of this rank's shards, then the sums of all ranks.

        `groups` holds the first row and the calls of each shard.
        Raises: if ranks fail, the error of the lowest failed rank, on every rank.
        """
        ranks, tail, error, first, rng = self.ranks, self.tail, None, 0, self._rng
        step = rng.step if rng else 0
        try:
            for start, calls in groups:
                first = start
                if rng:
                    rng.step, rng.row = step, start
                replay(calls)
        except MlpEngineError as caught:
            error = type(caught)(f"{caught} (its row 0 is row {first} of the batch)")
        if rng:
            rng.row = 0
        if ranks is None or self._add_ranks is None:
            if error is not None:
                raise error
            return
        # errors and requests to stop travel with the gradients, so that all ranks act alike
        tail[FAILURES_PLACE], tail[STOPS_PLACE] = error is not None, ranks.wants_stop
        self._add_ranks()
        ranks.stops = tail.item(STOPS_PLACE) > 0
        if tail.item(FAILURES_PLACE):
            raise ranks.first(error) or RunError(
                "ranks: a shard failed on a rank that reported no error"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {
            "settings": self._settings,
            "scratches": [copy(scratch) for scratch in self.scratches],
            "sums": self._block.copy(),
            "d_output": [grads.d_output for grads in self.grads],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        scratches = iter(state["scratches"])
        mlp, *settings = state["settings"]
        Shards.__init__(self, mlp, *settings, make=lambda rows: next(scratches))
        self._block[...] = state["sums"]
        for grads, values in zip(self.grads, state["d_output"], strict=True):
            grads.d_output[...] = values


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundShards(BoundStep):
    """The step of a batch in shards; `scratch`, `grads` and `loss` belong to the first shard.

    After `calls`, ``grads.flat`` is the gradient of the batch on every rank.

    Attributes:
        batch: number of rows.
        parts: the rows and the step of each shard of this rank that has rows.
    """

    batch: int
    shards: Shards
    parts: tuple[tuple[slice, BoundStep], ...]

    @property
    def forward(self) -> "Executor | None":
        return self.parts[0][1].forward if self.parts else None

    @property
    def value(self) -> float:
        return float(self.shards.tail.item(LOSS_PLACE))

    @property
    def loss_parts(self) -> Sequence[Any]:
        return [part.loss for _, part in self.parts]

    def targets(self) -> Iterator[Array]:
        for _, part in self.parts:
            yield from part.targets()

    def gather(self, data: StepData, order: Array) -> None:
        for rows, part in self.parts:
            part.gather(data, order[rows])

    def write(self, x: Array, y: Array, weight: Array | None) -> None:
        for name, array in (("x", x), ("y", y), ("sample_weight", weight)):
            check_rows(array, self.batch, f"training step: {name}")
        for rows, part in self.parts:
            part.write(x[rows], y[rows], None if weight is None else weight[rows])

    def find_fault(self, first: int = 0, *, alone: bool = True) -> Fault | None:
        ranks, fault, error = self.shards.ranks, None, None
        for rows, part in self.parts:
            try:
                fault = part.find_fault(first + rows.start, alone=False)
            except MlpEngineError as caught:
                error = caught
            if fault or error:
                break
        if ranks is not None:
            fault, error = ranks.first((fault, error) if fault or error else None) or (None, None)
        if error is not None:
            raise error
        return fault


Buffers = Shards | tuple[Scratch, Gradients]
"""Buffers of a training step, with or without shards."""


def make_buffers(
    mlp: Network, batch_size: int, shards: int, ranks: Ranks | None, make: Callable[[int], Scratch]
) -> Buffers:
    """Return the buffers of a step; `make` returns a scratch for a number of rows."""
    if shards == 1 and ranks is None:
        return make(batch_size), mlp.gradients(batch_size)
    return Shards(mlp, batch_size, shards, ranks, make=make)
