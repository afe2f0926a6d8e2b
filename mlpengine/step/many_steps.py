"""Many steps on rows of whole arrays, in one call where whole steps are machine code."""

from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.core.errors import DataError, ShapeError
from mlpengine.core.named import matched
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.step.bound_step import BoundStep, StepData

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor
    from mlpengine.step.step import TrainingStep

WORK_AT_ONCE = 2**28
"""Parameters times rows of the steps of one call, milliseconds, after which signals are handled and
checkpoints that are due are written."""

ROWS_OF_UPDATE = 8
"""Number of rows whose arithmetic takes as long as the update of the optimizer."""

MIN_STEPS = 4
"""Number of steps from which one call is faster than a call for each."""


def steps_at_once(step: "TrainingStep") -> int:
    """Return how many steps one call may make; 0 where one step takes longer than that."""
    work = len(step.mlp.params) * (step.batch_size + ROWS_OF_UPDATE)
    return WORK_AT_ONCE // work


def count_steps(step: "TrainingStep", data: StepData, order: Array, where: str) -> int:
    """Return how many full batches `order` names.

    Raises: ShapeError or DataError, beginning with `where`, unless `make_steps` can make a step
    on each; IndexRangeError for targets that are no probabilities.
    """
    known = isinstance(order, np.ndarray) and order.dtype == np.int64 and order.ndim == 1
    if not known or order.size % step.batch_size:
        raise ShapeError(
            f"{where}: order must be an array of int64, a multiple of {step.batch_size} long "
            f"(got {quoted(order)}); write np.arange({step.batch_size}), say"
        )
    if misfit := next(step.bound(step.batch_size).layout_errors(data, order), ""):
        raise DataError(f"{where}: {misfit}")
    step.check_target(data[1])
    return order.size // step.batch_size


def make_steps(
    step: "TrainingStep", data: StepData, order: Array, losses: Array, norms: Array
) -> None:
    """Make the steps that `count_steps` has counted, and write their losses and norms."""
    bound, batch = step.bound(step.batch_size), step.batch_size
    done, at_once = 0, max(1, steps_at_once(step))
    many = bound.fused is not None and order.flags.c_contiguous
    while many and done < len(losses):
        part, rows = slice(done, done + at_once), slice(done * batch, (done + at_once) * batch)
        made = make_fused_steps(step, bound, data, order[rows], losses[part], norms[part])
        many = made == len(losses[part])
        done += made
    for i in range(done, len(losses)):  # a step that failed does so again, and raises
        bound.gather(data, order[i * batch : (i + 1) * batch])
        losses[i] = step.run(bound)
        norms[i] = step.grad_norm


def make_fused_steps(
    step: "TrainingStep",
    bound: BoundStep,
    data: StepData,
    order: Array,
    losses: Array,
    norms: Array,
    max_norm: float = inf,
) -> int:
    """Make a step for each entry of `losses` in machine code; return how many are completed.

    `bound` is the step of whole batches.  The last batch may have fewer rows, where its program is
    that of whole ones.  A step that fails, or whose gradient norm exceeds `max_norm`, updates
    nothing and is the last one.
    """
    if bound.fused is None:
        return 0
    make = partial(_make, step, bound, bound.fused)
    return step.alone(make, data, order, losses, norms, max_norm)


def _make(
    step: "TrainingStep",
    bound: BoundStep,
    fused: "Executor",
    data: StepData,
    order: Array,
    losses: Array,
    norms: Array,
    max_norm: float,
) -> int:
    optimizer, dropout, count, batch = step.optimizer, step.dropout, len(losses), step.batch_size
    rates, decays = optimizer.next_rates(count)
    arrays = [rows for rows, _ in matched(data, bound.buffers)]
    done, step.clipped_steps = 0, 0
    for part in [slice(0, count)] if dropout is None else dropout.runs(optimizer.steps, count):
        if dropout is not None:
            dropout.begin(optimizer.steps)
        rows = order[part.start * batch : part.stop * batch]
        wanted = part.stop - part.start
        first = fused.call.steps = optimizer.steps
        try:
            fused.run(
                rows,
                arrays,
                rates if isinstance(rates, float) else rates[part],
                decays if isinstance(decays, float) else decays[part],
                losses[part],
                norms[part],
                steps=first,
                missing=wanted * batch - len(rows),
                max_norm=max_norm,
            )
        finally:  # KeyboardInterrupt is raised where the call returns
            made = fused.call.steps - first
            done += made
            if made:
                last = part.start + made - 1
                optimizer.count(rates if isinstance(rates, float) else rates.item(last), made)
        step.clipped_steps += fused.call.clips
        if made < wanted:
            break
    step.last = step.bound(len(order) % batch) if done * batch > len(order) else bound
    if done:
        step.loss_value, step.grad_norm = losses.item(done - 1), norms.item(done - 1)
        step.clipped_norm = fused.call.clipped
    return done


class CompiledSteps:
    """The batches of a data set as steps in machine code, many in one call.

    The results are those of gathering and `TrainingStep.run`, bit for bit.

    Args:
        step: a step whose `BoundStep.fused` is not None.
        data: arrays whose rows fit the step's buffers.
        order: int64 row numbers, which may be shuffled in place between calls.
        rows: number of rows of the order in an epoch, whose last batch may be a short one.
        max_steps: maximum number of steps in one call.
    """

    def __init__(
        self, step: "TrainingStep", data: StepData, order: Array, rows: int, max_steps: int
    ) -> None:
        self._step, self._bound = step, step.bound(step.batch_size)
        short, program = rows % step.batch_size, self._bound.fused
        last = step.bound(short).fused if short and program else None
        self._takes_short = (
            last is not None and program is not None and last.source is program.source
        )
        self._data, self._order, self.max_steps = data, order, max_steps
        self._losses, self._norms = np.zeros(max_steps), np.zeros(max_steps)

    def count(self, rows: int) -> int:
        """Return how many steps one call may make on the last `rows` rows of an epoch.

        A short batch is one of them where the program of whole batches takes it.
        """
        whole, short = divmod(rows, self._step.batch_size)
        return min(whole + (self._takes_short and short > 0), self.max_steps)

    def make(self, start: int, count: int, norm: float = inf) -> tuple[list[float], list[float]]:
        """Run up to `count` steps, the first on the batch at position `start` of the order.

        Returns the `results` of the completed steps; they end before the first step that fails or
        whose norm exceeds `norm`.
        """
        order = self._order[start : start + count * self._step.batch_size]
        results = self._losses[:count], self._norms[:count]
        done = make_fused_steps(self._step, self._bound, self._data, order, *results, norm)
        return self.results(done)

    def results(self, made: int) -> tuple[list[float], list[float]]:
        """Return the losses and gradient norms of the steps that the last call has made."""
        return self._losses[:made].tolist(), self._norms[:made].tolist()


def compiled_steps(
    step: "TrainingStep", data: StepData, order: Array, rows: int
) -> CompiledSteps | None:
    """Return the batches of `order`, of which an epoch has so many rows, as machine code.

    The result is None, and steps must run one by one, if whole steps are not machine code, if the
    rows do not have the layout of the buffers, or if one call would have fewer than `MIN_STEPS`.
    """
    max_steps = min(steps_at_once(step), -(-rows // step.batch_size))
    bound = step.bound(step.batch_size)
    if bound.fused is None or max_steps < MIN_STEPS or any(bound.layout_errors(data, order)):
        return None
    return CompiledSteps(step, data, order, rows, max_steps)
