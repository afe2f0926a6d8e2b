"""Many steps at once, over rows of whole arrays."""

from typing import TYPE_CHECKING

import numpy as np

from mlpengine.errors import DataError, ShapeError
from mlpengine.spec import Array

if TYPE_CHECKING:
    from mlpengine.train.step import BoundStep, TrainingStep

Data = tuple[Array, Array, Array | None]
"""Features, targets and, for a weighted step, sample weights, by rows."""


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
    buffers = (bound.scratch.input, bound.loss.target, bound.loss.sample_weight)
    for rows, buffer in zip(data, buffers, strict=True):
        _check(rows, buffer, order)
    count = order.size // batch
    losses, norms = np.zeros(count), np.zeros(count)
    if bound.whole is None or not order.flags.c_contiguous:
        for i in range(count):
            for rows, buffer in zip(data, buffers, strict=True):
                if rows is not None and buffer is not None:
                    rows.take(order[i * batch : (i + 1) * batch], 0, buffer, "clip")
            losses[i] = step.run(bound)
            norms[i] = step.grad_norm
        return losses, norms
    _run_compiled(step, bound, data, order, losses, norms)
    return losses, norms


def _run_compiled(
    step: "TrainingStep", bound: "BoundStep", data: Data, order: Array, losses: Array, norms: Array
) -> None:
    optimizer, whole, count = step.optimizer, bound.whole, len(losses)
    assert whole is not None
    rates = np.full(count, optimizer.lr)
    if optimizer.schedule is not None:
        first, schedule = optimizer.steps, optimizer.schedule
        rates *= [schedule(first + i) for i in range(count)]
    whole.numbers[3] = optimizer.steps
    done = whole.run(order, data, rates, losses, norms)
    step.scratch, step.grads = bound.scratch, bound.grads
    optimizer.steps += done
    if done:
        optimizer.current_lr = rates.item(done - 1)
    last = min(done, count - 1)
    if count:
        step.take_over(losses.item(last), norms.item(last))
    if done < count:
        step.raise_failed(bound, whole.status)


def _check(rows: Array | None, buffer: Array | None, order: Array) -> None:
    if rows is None and buffer is None:
        return
    if rows is None or buffer is None:
        raise DataError("run_many: sample weights must come with a weighted step, and only then")
    if rows.dtype != buffer.dtype or rows.shape[1:] != buffer.shape[1:]:
        raise DataError(
            f"run_many: rows must be as the step's buffer {buffer.dtype}{list(buffer.shape)} "
            f"(got {rows.dtype}{list(rows.shape)})"
        )
    if not rows.flags.c_contiguous:
        raise DataError("run_many: arrays must be C-contiguous")
    if order.size and not 0 <= order.min() <= order.max() < len(rows):
        raise DataError(
            f"run_many: order must name rows 0 to {len(rows) - 1} "
            f"(got {order.min()} to {order.max()})"
        )
