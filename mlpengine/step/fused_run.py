"""Many steps in one call of machine code, on rows of whole arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.core.named import matched
from mlpengine.core.spec import Array
from mlpengine.optim import Optimizer
from mlpengine.step.bound_step import BoundStep, StepData
from mlpengine.step.dropout_rates import DropoutRates

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor

WORK_AT_ONCE = 2**28
"""Maximum of parameters * (rows + `ROWS_OF_UPDATE`), summed over the steps of one call.

This limits a call to milliseconds; signals and checkpoints are handled between calls.
"""

ROWS_OF_UPDATE = 8
"""Batch size at which forward and backward together take as long as the update."""


def steps_at_once(parameters: int, batch: int) -> int:
    """Return the number of steps in one call; 0 if a single step is too long."""
    return WORK_AT_ONCE // (parameters * (batch + ROWS_OF_UPDATE))


@dataclass(frozen=True, eq=False, repr=False)
class FusedRun:
    """Makes many training steps in one call."""

    optimizer: Optimizer
    dropout: DropoutRates | None
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
        """Make a step for each of `losses`; return the numbers of completed and clipped steps."""
        optimizer, dropout, batch, call = self.optimizer, self.dropout, self.batch_size, fused.call
        count, done, clips = len(losses), 0, 0
        rates, decays = optimizer.next_rates(count)
        arrays: Sequence[Array | None] = data
        if not all(rows is None or type(rows) is np.ndarray for rows in data):  # named arrays
            arrays = [rows for rows, _ in matched(data, bound.buffers)]
        parts = dropout.runs(optimizer.steps, count) if dropout else (slice(0, count),)
        for part in parts:
            if dropout is not None:
                dropout.begin(optimizer.steps)
            own = order[part.start * batch : part.stop * batch]
            lr = rates if isinstance(rates, float) else rates[part]
            first = call.steps = optimizer.steps
            try:
                fused.run(
                    own,
                    arrays,
                    lr,
                    decays if isinstance(decays, float) else decays[part],
                    losses[part],
                    norms[part],
                    steps=first,
                    missing=(part.stop - part.start) * batch - len(own),
                    max_norm=max_norm,
                )
            finally:  # KeyboardInterrupt is raised when the call returns
                made = call.steps - first
                if made:
                    optimizer.count(lr if isinstance(lr, float) else lr.item(made - 1), made)
            done += made
            clips += call.clips
            if made < part.stop - part.start:
                break
        return done, clips
