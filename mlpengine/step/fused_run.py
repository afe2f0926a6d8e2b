"""Many training steps in one call of a compiled program, on rows of arrays in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.core.named import matched
from mlpengine.core.spec import Array
from mlpengine.ops.philox import Philox
from mlpengine.optim import Optimizer
from mlpengine.step.bound_step import BoundStep, StepData

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor

WORK_AT_ONCE = 2**28
"""Maximum of steps * parameters * (batch size + `ROWS_OF_UPDATE`) in one call.

A call then takes milliseconds.  Signals and checkpoints are handled between calls.
"""

ROWS_OF_UPDATE = 8
"""Batch size for which forward and backward together take as long as the update."""


def steps_at_once(parameters: int, batch: int) -> int:
    """Return the maximum number of steps in one call; 0 if a single step takes too long."""
    return WORK_AT_ONCE // (parameters * (batch + ROWS_OF_UPDATE))


@dataclass(frozen=True, eq=False, repr=False)
class FusedRun:
    """Makes many training steps in one call."""

    optimizer: Optimizer
    rng: Philox | None
    batch_size: int

    def make(
        self,
        bound: BoundStep,
        fused: "Executor",
        data: StepData,
        order: Array,
        losses: Array,
        norms: Array,
        max_norm: float,
    ) -> tuple[int, int]:
        """Make ``len(losses)`` steps; return the number of completed and of clipped steps."""
        optimizer, call, count = self.optimizer, fused.call, len(losses)
        first, own = optimizer.steps, order[: count * self.batch_size]
        rates = optimizer.next_rates(count)
        arrays: Sequence[Array | None] = data
        if not all(rows is None or type(rows) is np.ndarray for rows in data):  # named arrays
            arrays = [rows for rows, _ in matched(data, bound.buffers)]
        if self.rng is not None:
            self.rng.step = first
        call.steps = first
        try:
            fused.run(
                own,
                arrays,
                rates,
                losses,
                norms,
                steps=first,
                missing=count * self.batch_size - len(own),
                max_norm=max_norm,
            )
        finally:  # KeyboardInterrupt is raised when the call returns
            if made := call.steps - first:
                optimizer.count(rates if isinstance(rates, float) else rates.item(made - 1), made)
        return made, call.clips
