"""Softmax and its logarithm along any axis."""

from dataclasses import dataclass

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.ops._check import need_floats, normal_axis
from mlpengine.ops.broadcast import largest, unbroadcast
from mlpengine.ops.op import GradOp


@dataclass(frozen=True)
class AlongAxis(GradOp):
    """Base class of softmax and log-softmax."""

    axis: int = -1

    def infer(self, x: Spec) -> Spec:
        need_floats(self.name, x=x)
        if not x.shape[normal_axis(self.name, self.axis, x)]:
            raise ShapeError(f"{self.name}: needs entries along axis {self.axis} (x {x})")
        return x

    def work(self, x: Spec) -> dict[str, Spec]:
        axis = normal_axis(self.name, self.axis, x)
        line = Spec((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype)
        return {"lines": line, "sums": line, "workspace": x}


class Softmax(AlongAxis, name="softmax"):
    """Normalized exponentials, y = exp(x - max(x)) / sum(exp(x - max(x))) along `axis`.

    Shapes: x (...), y (...), at least one axis.
    Backward: dx = y * (dy - sum(dy * y)).
    Raises: ShapeError if the axis does not exist or has length 0.
    """

    def forward(self, x: Array, *, out: Array, lines: Array) -> Calls:
        yield from largest(x, lines, out)
        yield call(np.subtract, x, lines, out)
        yield call(np.exp, out, out)
        yield from unbroadcast(out, lines)
        yield call(np.divide, out, lines, out)

    def backward(self, dy: Array, y: Array, *, out: Slots, sums: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            if self.axis % y.ndim == y.ndim - 1:
                yield call(np.vecdot, dy, y, sums[..., 0])
            else:
                yield call(np.multiply, dy, y, dx)
                yield from unbroadcast(dx, sums)
            yield call(np.subtract, dy, sums, dx)
            yield call(np.multiply, dx, y, dx)


class LogSoftmax(AlongAxis, name="log_softmax"):
    """Logarithm of softmax, y = s - log(sum(exp(s))) along `axis`, where s = x - max(x).

    Shapes: x (...), y (...), at least one axis.
    Backward: dx = dy - exp(y) * sum(dy).
    Raises: ShapeError if the axis does not exist or has length 0.
    """

    def forward(self, x: Array, *, out: Array, lines: Array, workspace: Array) -> Calls:
        yield from largest(x, lines, out)
        yield call(np.subtract, x, lines, out)
        yield call(np.exp, out, workspace)
        yield from unbroadcast(workspace, lines)
        yield call(np.log, lines, lines)
        yield call(np.subtract, out, lines, out)

    def backward(self, dy: Array, y: Array, *, out: Slots, sums: Array) -> Calls:
        (dx,) = out
        if dx is not None:
            yield call(np.exp, y, dx)
            yield from unbroadcast(dy, sums)
            yield call(np.multiply, dx, sums, dx)
            yield call(np.subtract, dy, dx, dx)
