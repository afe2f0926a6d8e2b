"""Many steps in one call of machine code, on rows of whole arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlpengine.core.named import matched
from mlpengine.core.spec import Array
from mlpengine.optim import Optimizer
from mlpengine.step.bound_step import BoundStep, StepData
from mlpengine.step.dropout_rates import DropoutRates

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor

WORK_AT_ONCE = 2**28
"""Parameters times rows of the steps of one call, milliseconds, after which signals are handled and
checkpoints that are due are written."""

ROWS_OF_UPDATE = 8
"""Number of rows whose arithmetic takes as long as the update of the optimizer."""


def steps_at_once(parameters: int, batch: int) -> int:
    """Return how many steps one call may make; 0 where one step takes longer than that."""
    return WORK_AT_ONCE // (parameters * (batch + ROWS_OF_UPDATE))


@dataclass(frozen=True, eq=False, repr=False)
class FusedRun:
    """Makes many steps of a training step in one call."""

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
        """Make a step for each of `losses`; return how many are completed, and how many clipped."""
        optimizer, dropout, batch = self.optimizer, self.dropout, self.batch_size
        count, done, clips = len(losses), 0, 0
        rates, decays = optimizer.next_rates(count)
        arrays = [rows for rows, _ in matched(data, bound.buffers)]
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
            clips += fused.call.clips
            if made < wanted:
                break
        return done, clips
