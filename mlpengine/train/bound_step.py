"""A training step on buffers of one number of rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.buffers import Uncopyable
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BoundLoss
from mlpengine.spec import Array, Call

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor

Data = tuple[Array, Array, Array | None]
"""Features, targets and, for a weighted step, sample weights, by rows."""


@dataclass(frozen=True, eq=False)
class BoundStep(Uncopyable):
    """The step for one number of rows: its buffers, and the calls up to the gradients."""

    scratch: Scratch
    grads: Gradients
    loss: BoundLoss
    calls: tuple[Call, ...]
    fused: "Executor | None" = None
    """The whole step, update included, as machine code; then `calls` is empty."""

    @property
    def buffers(self) -> Data:
        """The buffers that a batch is written into."""
        return self.scratch.input, self.loss.target, self.loss.sample_weight

    def misfits(self, data: Data, order: Array) -> Iterator[str]:
        """Yield the reasons why the rows `order` of `data` cannot be copied into the buffers."""
        for rows, buffer in zip(data, self.buffers, strict=True):
            if text := _misfit(rows, buffer):
                yield text
        last = min(len(rows) for rows in data if rows is not None) - 1
        lowest, highest = (order.min(), order.max()) if order.size else (0, 0)
        if order.size and not 0 <= lowest <= highest <= last:
            yield f"order must name rows 0 to {last} (got {lowest} to {highest})"


def _misfit(rows: Array | None, buffer: Array | None) -> str:
    """Return why the rows cannot be copied into the buffer as is, or ""."""
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
