"""The base class of ops such as a slice, which copy a part of their operand."""

import numpy as np

from mlpengine.core.spec import Array, Calls, Slots, call
from mlpengine.ops.op import GradOp


class CopiedEntries(GradOp):
    """Base class of ops that copy a part of x.

    Backward: dx = dy in the part, 0 elsewhere.
    """

    def part(self, x: Array) -> Array:
        """Return the part of `x`, as a view."""
        raise NotImplementedError

    def forward(self, x: Array, *, out: Array) -> Calls:
        yield call(np.copyto, out, self.part(x))

    def backward(self, dy: Array, *, out: Slots) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(dx.fill, 0)
            yield call(np.copyto, self.part(dx), dy)
