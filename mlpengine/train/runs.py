"""Many steps at once, over rows of whole arrays."""

from math import inf

import numpy as np

from mlpengine.spec import Array
from mlpengine.train.bound_step import Data
from mlpengine.train.step import TrainingStep

WORK_AT_ONCE = 2**27
"""Parameters times rows of the steps that one call makes: some 10 to 50 milliseconds, after which a
signal is answered and a checkpoint that is due is written."""

ROWS_OF_UPDATE = 8
"""Rows whose arithmetic takes as long as the optimizer's."""

MIN_STEPS = 4
"""Steps from which one call is quicker than a call each: it costs 8 us, and each some 3 us."""


class CompiledSteps:
    """The full batches of a data set as steps in machine code, many in one call.

    The steps are those that gathering and `TrainingStep.run` would make, bit for bit.

    Args:
        step: fused.
        data: rows that fit its buffers.
        order: int64 numbers of them, which may be shuffled in place between calls.
        max_steps: largest number of steps of one call.
    """

    def __init__(self, step: TrainingStep, data: Data, order: Array, max_steps: int) -> None:
        self._step, self._bound = step, step.bound(step.batch_size)
        self._data, self._order, self.max_steps = data, order, max_steps
        self._losses, self._norms = np.zeros(max_steps), np.zeros(max_steps)

    def make(self, start: int, count: int, norm: float = inf) -> tuple[list[float], list[float]]:
        """Make `count` steps, the first on the batch that begins at place `start` of the order.

        Return losses and gradient norms of those made: the last is the one before a step that
        fails or whose norm exceeds `norm`.
        """
        order = self._order[start : start + count * self._step.batch_size]
        results = self._losses[:count], self._norms[:count]
        done = self._step.run_fused(self._bound, self._data, order, *results, norm)
        return self._losses[:done].tolist(), self._norms[:done].tolist()


def compiled_steps(step: TrainingStep, data: Data, order: Array) -> CompiledSteps | None:
    """Return the full batches of `order` as machine code; None where steps are made one by one.

    That is so unless the step is fused and the rows lie in memory as its buffers take
    them, and where a step takes so long that a call each costs nothing.
    """
    work = len(step.mlp.params) * (step.batch_size + ROWS_OF_UPDATE)
    max_steps = min(WORK_AT_ONCE // work, len(order) // step.batch_size)
    bound = step.bound(step.batch_size)
    if bound.fused is None or max_steps < MIN_STEPS or any(bound.misfits(data, order)):
        return None
    return CompiledSteps(step, data, order, max_steps)
