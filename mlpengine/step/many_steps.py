"""An epoch of compiled training steps, with many steps in one call."""

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.step.bound_step import StepData
from mlpengine.step.fused_run import steps_at_once
from mlpengine.step.step import TrainingStep

MIN_STEPS = 4
"""Minimum number of steps for which one call is faster than one call for each step."""


class CompiledSteps:
    """Runs the batches of an epoch, with many steps in one call.

    The results have the same bits as a loop over `BoundStep.gather` and `TrainingStep.run`.

    Args:
        step: a training step that is one compiled program (`TrainingStep.fused`).
        data: arrays with rows that fit the step's buffers.
        order: int64 row indices; they may be shuffled in place between calls.
        rows: number of rows in an epoch; the last batch may be shorter.
        max_steps: maximum number of steps in one call.
    """

    def __init__(
        self, step: TrainingStep, data: StepData, order: Array, rows: int, max_steps: int
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
        """Return the number of steps of the next call, if `rows` rows of the epoch are left.

        A shorter last batch is included if the program for full batches can run it.
        """
        whole, short = divmod(rows, self._step.batch_size)
        return min(whole + (self._takes_short and short > 0), self.max_steps)

    def make(self, start: int, count: int, norm: float) -> None:
        """Run `count` steps on rows from ``order[start]``; stop at a gradient norm above `norm`."""
        order = self._order[start : start + count * self._step.batch_size]
        results = self._losses[:count], self._norms[:count]
        self._step.make_fused_steps(self._bound, self._data, order, *results, norm)

    def results(self, made: int) -> tuple[list[float], list[float]]:
        """Return the losses and gradient norms of the last call's `made` steps."""
        return self._losses[:made].tolist(), self._norms[:made].tolist()


def compiled_steps(
    step: TrainingStep, data: StepData, order: Array, rows: int
) -> CompiledSteps | None:
    """Return an object that runs the steps of an epoch of `rows` rows, or None.

    None means that steps must run one by one: the step is not one compiled program, `data` has
    another dtype or layout than the buffers, or a call would make fewer than `MIN_STEPS` steps.
    """
    max_steps = min(
        steps_at_once(len(step.mlp.params), step.batch_size), -(-rows // step.batch_size)
    )
    bound = step.bound(step.batch_size)
    if bound.fused is None or max_steps < MIN_STEPS or any(bound.layout_errors(data, order)):
        return None
    return CompiledSteps(step, data, order, rows, max_steps)
