"""Recurrences over time."""

from itertools import pairwise

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops.op import GradOp


class SsmScan(GradOp, name="ssm_scan"):
    """Diagonal state-space recurrence, h_t = a_t * h_(t-1) + b_t * x_t; y has the h_t of all steps.

    Shapes: a, b, x, y (..., time, channels), h0 (..., channels); without h0 the state starts at 0.
    Backward: dh_t = dy_t + a_(t+1) dh_(t+1); da_t = dh_t h_(t-1), db_t = dh_t x_t,
    dx_t = dh_t b_t, dh0 = a_1 dh_1.
    Raises: ShapeError for other shapes, or if there is no time step.
    Source: Gu and Dao 2023, section 3.2, with diagonal state matrices.
    """

    def infer(self, a: Spec, b: Spec, x: Spec, h0: Spec | None = None) -> Spec:
        need_floats("ssm_scan", a=a, b=b, x=x, h0=h0)
        _check_shapes(a, b, x, h0)
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
        da, db, dx, dh0 = out
        yield from _accumulated(dy, a, dh, dcarry)
        if da is not None:
            first = da[..., 0, :]
            yield call(np.multiply, dh[..., 1:, :], y[..., :-1, :], da[..., 1:, :])
            yield call(first.fill, 0) if h0 is None else call(np.multiply, dh[..., 0, :], h0, first)
        if db is not None:
            yield call(np.multiply, dh, x, db)
        if dx is not None:
            yield call(np.multiply, dh, b, dx)
        if dh0 is not None:
            yield call(np.multiply, a[..., 0, :], dh[..., 0, :], dh0)


def _check_shapes(a: Spec, b: Spec, x: Spec, h0: Spec | None) -> None:
    if not (a.shape == b.shape == x.shape and len(x.shape) >= 2 and x.shape[-2]):
        raise ShapeError(
            f"ssm_scan: operands must have one shape (..., time, channels) with a step or more "
            f"({listing(a=a, b=b, x=x)})"
        )
    if h0 is not None and h0.shape != (*x.shape[:-2], x.shape[-1]):
        raise ShapeError(f"ssm_scan: h0 must be x without its time axis ({listing(x=x, h0=h0)})")


def _accumulated(dy: Array, a: Array, dh: Array, dcarry: Array) -> Calls:
    """Yield the calls that write dh_t = dy_t + a_(t+1) dh_(t+1), in descending order of t."""
    yield call(np.copyto, dh, dy)
    steps = list(zip(_steps(a), _steps(dh), strict=True))
    for (a_after, dh_after), (_, dh_t) in pairwise(reversed(steps)):
        yield call(np.multiply, a_after, dh_after, dcarry)
        yield call(np.add, dh_t, dcarry, dh_t)


def _steps(x: Array) -> list[Array]:
    return [x[..., t, :] for t in range(x.shape[-2])]
