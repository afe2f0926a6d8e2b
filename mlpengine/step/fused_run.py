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
"""Maximum of parameters times rows, summed over the steps of one call.

A call takes milliseconds at most; signals and checkpoints are handled between calls.
"""

ROWS_OF_UPDATE = 8
"""Number of rows for which forward and backward take as long as the update."""


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
        optimizer, dropout, batch = self.optimizer, self.dropout, self.batch_size
        count, done, clips = len(losses), 0, 0
        rates, decays = optimizer.next_rates(count)
        arrays: Sequence[Array | None] = data
        if not all(rows is None or type(rows) is np.ndarray for rows in data):  # named arrays
            arrays = [rows for rows, _ in matched(data, bound.buffers)]
        if dropout is None:  # no slices: they would add a microsecond
            whole = order, losses, norms, rates, decays
            return self._run(fused, arrays, *whole, max_norm), fused.call.clips
        for part in dropout.runs(optimizer.steps, count):
            dropout.begin(optimizer.steps)
            made = self._run(
                fused,
                arrays,
                order[part.start * batch : part.stop * batch],
                losses[part],
                norms[part],
                rates if isinstance(rates, float) else rates[part],
                decays if isinstance(decays, float) else decays[part],
                max_norm,
            )
            done += made
            clips += fused.call.clips
            if made < part.stop - part.start:
                break
        return done, clips

    def _run(
        self,
        fused: "Executor",
        arrays: Sequence[Array | None],
        order: Array,
        losses: Array,
        norms: Array,
        rates: Array | float,
        decays: Array | float,
        max_norm: float,
    ) -> int:
        """Make a step for each entry of `losses` at constant dropout rates; return their number."""
        call, optimizer = fused.call, self.optimizer
        first = call.steps = optimizer.steps
        missing = len(losses) * self.batch_size - len(order)
        try:
            fused.run(
                order,
                arrays,
                rates,
                decays,
                losses,
                norms,
                steps=first,
                missing=missing,
                max_norm=max_norm,
            )
        finally:  # KeyboardInterrupt is raised when the call returns
            made: int = call.steps - first
            if made:
                optimizer.count(rates if isinstance(rates, float) else rates.item(made - 1), made)
        return made
