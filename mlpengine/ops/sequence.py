"""Recurrences over time."""

import numpy as np

from mlpengine.errors import ShapeError
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


class SsmScan(GradOp, name="ssm_scan"):
    """Diagonal state-space recurrence, h_t = a_t * h_(t-1) + b_t * x_t; returns every h_t.

    Shapes: a, b, x, y (..., time, channels), h0 (..., channels) or left out, which is zeros.
    Backward: dh_t = dy_t + a_(t+1) dh_(t+1); da_t = dh_t h_(t-1), db_t = dh_t x_t,
    dx_t = dh_t b_t, dh0 = a_1 dh_1.
    Raises: ShapeError unless a, b and x agree, have a step, and h0 fits one.
    Source: Gu and Dao 2023, section 3.2, with the state's matrices diagonal.
    """

    def infer(self, a: Spec, b: Spec, x: Spec, h0: Spec | None = None) -> Spec:
        need_floats("ssm_scan", a=a, b=b, x=x, h0=h0)
        if not (a.shape == b.shape == x.shape and len(x.shape) >= 2 and x.shape[-2]):
            raise ShapeError(
                f"ssm_scan: operands must have one shape (..., time, channels) with a step or more "
                f"({listing(a=a, b=b, x=x)})"
            )
        if h0 is not None and h0.shape != (*x.shape[:-2], x.shape[-1]):
            raise ShapeError(
                f"ssm_scan: h0 must be x without its time axis ({listing(x=x, h0=h0)})"
            )
        return x

    def work(self, a: Spec, b: Spec, x: Spec, h0: Spec | None = None) -> dict[str, Spec]:
        step = Spec((*x.shape[:-2], x.shape[-1]), x.dtype)
        return {"carry": step, "dcarry": step, "dh": x}

    def forward(
        self, a: Array, b: Array, x: Array, h0: Array | None, *, out: Array, carry: Array
    ) -> Calls:
        yield call(np.multiply, b, x, out)
        before = [h0, *_steps(out)]
        for a_t, h_before, h in zip(_steps(a), before, _steps(out), strict=False):
            if h_before is not None:
                yield call(np.multiply, a_t, h_before, carry)
                yield call(np.add, h, carry, h)

    def backward(
        self, dy: Array, a: Array, b: Array, x: Array, y: Array, h0: Array | None,
        *, out: Slots, dcarry: Array, dh: Array,
    ) -> Calls:  # fmt: skip
        yield call(np.copyto, dh, dy)
        dh_steps, a_steps = _steps(dh), _steps(a)
        for t in range(len(a_steps) - 2, -1, -1):
            yield call(np.multiply, a_steps[t + 1], dh_steps[t + 1], dcarry)
            yield call(np.add, dh_steps[t], dcarry, dh_steps[t])
        da, db, dx, dh0 = out
        if da is not None:
            first = _steps(da)[0]
            yield call(np.multiply, dh[..., 1:, :], y[..., :-1, :], da[..., 1:, :])
            yield call(first.fill, 0) if h0 is None else call(np.multiply, dh_steps[0], h0, first)
        if db is not None:
            yield call(np.multiply, dh, x, db)
        if dx is not None:
            yield call(np.multiply, dh, b, dx)
        if dh0 is not None:
            yield call(np.multiply, a_steps[0], dh_steps[0], dh0)


def _steps(x: Array) -> list[Array]:
    """Return a view of `x` for each time."""
    return [x[..., t, :] for t in range(x.shape[-2])]
