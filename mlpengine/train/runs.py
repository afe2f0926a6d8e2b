"""Many steps at once, over rows of whole arrays."""

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mlpengine.errors import DataError, ShapeError
from mlpengine.spec import Array

if TYPE_CHECKING:
    from mlpengine.train.step import BoundStep, TrainingStep

Data = tuple[Array, Array, Array | None]
"""Features, targets and, for a weighted step, sample weights, by rows."""

WORK_AT_ONCE = 2**27
"""Parameters times rows of the steps that one call makes: some 10 to 50 milliseconds, after which a
signal is answered and a checkpoint that is due is written."""

ROWS_OF_UPDATE = 8
"""Rows whose arithmetic takes as long as the optimizer's."""

FEWEST = 4
"""Steps from which one call is quicker than a call each: it costs 8 us, and each some 3 us."""


class Unseen(NamedTuple):
    """What an observer need not see: `steps` to come, while no gradient norm exceeds `norm`."""

    steps: float = inf
    norm: float = inf


def run_many(
    step: "TrainingStep", bound: "BoundStep", data: Data, order: Array
) -> tuple[Array, Array]:
    """Make the steps of `TrainingStep.run_many`; return their losses and gradient norms.

    Raises: ShapeError or DataError for arrays that do not fit the step; what a step raises.
    """
    batch = bound.scratch.batch_size
    if order.dtype != np.int64 or order.ndim != 1 or order.size % batch:
        raise ShapeError(
            f"run_many: order must be int64 and a multiple of {batch} long "
            f"(got {order.dtype}{list(order.shape)})"
        )
    if misfit := next(_misfits(bound, data, order), ""):
        raise DataError(f"run_many: {misfit}")
    count = order.size // batch
    losses, norms = np.zeros(count), np.zeros(count)
    if bound.whole is None or not order.flags.c_contiguous:
        for i in range(count):
            for rows, buffer in zip(data, _buffers(bound), strict=True):
                if rows is not None and buffer is not None:
                    rows.take(order[i * batch : (i + 1) * batch], 0, buffer, "clip")
            losses[i] = step.run(bound)
            norms[i] = step.grad_norm
        return losses, norms
    done = _run_compiled(step, bound, data, order, losses, norms)
    if done < count:
        step.take_over(losses.item(done), norms.item(done))
        step.raise_failed(bound, bound.whole.call.status)
    return losses, norms


class CompiledSteps:
    """The full batches of a data set as steps in machine code, many in one call.

    The steps are those that gathering and `TrainingStep.run` would make, bit for bit.

    Args:
        step: compiled whole.
        data: rows that fit its buffers.
        order: int64 numbers of them, which may be shuffled in place between calls.
        most: steps of one call, at most.
    """

    def __init__(self, step: "TrainingStep", data: Data, order: Array, most: int) -> None:
        self._step, self._bound = step, step.bound(step.batch_size)
        self._data, self._order, self.most = data, order, most
        self._losses, self._norms = np.zeros(most), np.zeros(most)

    def make(self, start: int, count: int, norm: float = inf) -> tuple[list[float], list[float]]:
        """Make `count` steps, the first on the batch that begins at place `start` of the order.

        Return losses and gradient norms of those made: the last is the one before a step that
        fails or whose norm exceeds `norm`.
        """
        order = self._order[start : start + count * self._step.batch_size]
        results = self._losses[:count], self._norms[:count]
        done = _run_compiled(self._step, self._bound, self._data, order, *results, norm)
        return self._losses[:done].tolist(), self._norms[:done].tolist()


def compiled_steps(step: "TrainingStep", data: Data, order: Array) -> CompiledSteps | None:
    """Return the full batches of `order` as machine code; None where steps are made one by one.

    That is so unless the step is compiled whole and the rows lie in memory as its buffers take
    them, and where a step takes so long that a call each costs nothing.
    """
    work = len(step.mlp.params) * (step.batch_size + ROWS_OF_UPDATE)
    most = min(WORK_AT_ONCE // work, len(order) // step.batch_size)
    bound = step.bound(step.batch_size)
    if bound.whole is None or most < FEWEST or any(_misfits(bound, data, order)):
        return None
    return CompiledSteps(step, data, order, most)


def _run_compiled(
    step: "TrainingStep",
    bound: "BoundStep",
    data: Data,
    order: Array,
    losses: Array,
    norms: Array,
    max_norm: float = inf,
) -> int:
    """Make a step for each of `losses`; return how many succeeded before one did not."""
    optimizer, whole, count = step.optimizer, bound.whole, len(losses)
    assert whole is not None
    rates = np.full(count, optimizer.lr)
    if optimizer.schedule is not None:
        rates[:] = [optimizer.scheduled_lr(optimizer.steps + i) for i in range(count)]
    done = whole.run(order, data, rates, losses, norms, steps=optimizer.steps, max_norm=max_norm)
    step.scratch, step.grads = bound.scratch, bound.grads
    optimizer.steps += done
    if done:
        optimizer.current_lr = rates.item(done - 1)
        step.take_over(losses.item(done - 1), norms.item(done - 1))
    return done


def _buffers(bound: "BoundStep") -> tuple[Array, Array, Array | None]:
    return bound.scratch.input, bound.loss.target, bound.loss.sample_weight


def _misfits(bound: "BoundStep", data: Data, order: Array) -> Iterator[str]:
    for rows, buffer in zip(data, _buffers(bound), strict=True):
        if text := _misfit(rows, buffer):
            yield text
    last = min(len(rows) for rows in data if rows is not None) - 1
    least, most = (order.min(), order.max()) if order.size else (0, 0)
    if order.size and not 0 <= least <= most <= last:
        yield f"order must name rows 0 to {last} (got {least} to {most})"


def _misfit(rows: Array | None, buffer: Array | None) -> str:
    """Say why rows of the array cannot be copied into the buffer as they are; "" if they can."""
    if rows is None or buffer is None:
        same = rows is buffer
        return "" if same else "sample weights must come with a weighted step, and only then"
    if not isinstance(rows, np.ndarray) or not rows.flags.c_contiguous:
        return "arrays must be in memory and C-contiguous"
    if rows.dtype != buffer.dtype or rows.shape[1:] != buffer.shape[1:]:
        return (
            f"rows must be as the step's buffer {buffer.dtype}{list(buffer.shape)} "
            f"(got {rows.dtype}{list(rows.shape)})"
        )
    return ""
