"""Gradients recorded as nodes, so that a loss may contain a gradient."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlpengine import ops
from mlpengine.core.errors import TapeError
from mlpengine.ops.reductions import Reduction
from mlpengine.tape.functions import cat
from mlpengine.tape.record import Record, dependents, needed_records

Slopes = Sequence[Any]
"""The gradient of each operand, or a function that records this gradient."""


def record_gradient(y: Any, xs: Sequence[Any]) -> list[Any]:
    """Record the gradients of the sum of all entries of `y` with respect to the nodes `xs`."""
    records = needed_records(y.tape.records, [y])
    flowing = [record for record in records if not record.op.stops_gradient]
    between = dependents(flowing, xs)
    known = {y.index: y.tape.constant(np.ones((1, *y.shape[1:]) if y.shape else (), y.dtype))}
    for record in reversed(flowing):
        wanted = [x is not None and x.index in between for x in record.operands]
        if not any(wanted) or not any(out.index in known for out in record.outputs):
            continue
        if not _accepts_one_row(record, wanted):
            known |= {
                y.index: _whole(known[y.index], y) for y in record.outputs if y.index in known
            }
        for x, slope in zip(record.operands, _slopes(record, known, wanted), strict=False):
            if x is not None and x.index in between:
                slope = slope() if callable(slope) else slope
                if slope.shape != (1, *x.spec.shape[1:]):
                    slope = _unbroadcast(slope, x.spec.shape)
                known[x.index] = known[x.index] + slope if x.index in known else slope
    for x in xs:
        if x.index not in known:
            raise TapeError(f"gradient: {y!r} must depend on {x!r}")
    return [_whole(known[x.index], x) for x in xs]


def _accepts_one_row(record: Record, wanted: Sequence[bool]) -> bool:
    """Return whether the op's gradient rule accepts one row of dy in place of many equal rows."""
    op, (y, *others) = record.op, record.outputs
    if isinstance(op, ops.Linear | ops.MatMul):
        return len(y.spec.shape) == 2 and not any(wanted[1:])
    elementwise = isinstance(op, ops.Elementwise) and not others
    shapes = {
        x.spec.shape for x, w in zip(record.operands, wanted, strict=True) if w and x is not None
    }
    return elementwise and shapes == {y.spec.shape}


def _whole(slope: Any, x: Any) -> Any:
    """Record a gradient with the shape of `x`; repeat a single row for all rows of `x`."""
    if slope.shape == x.spec.shape:
        return slope
    rows = (x.spec.shape[0], *(1,) * (len(x.spec.shape) - 1))
    return slope * np.ones(rows, x.spec.dtype)


def _slopes(record: Record, known: dict[int, Any], wanted: Sequence[bool]) -> Slopes:
    """Record the gradients of a record's operands; `known` has the gradients of its outputs."""
    op, y = record.op, record.outputs[0]
    dys = [known.get(out.index) for out in record.outputs]
    rule = next((GRADIENT_RULES[kind] for kind in type(op).__mro__ if kind in GRADIENT_RULES), None)
    if rule is None and isinstance(op, ops.Elementwise) and not op.broadcasts:
        return [y.tape.apply(ops.Slope.of(op), dys[0], record.operands[0])]  # type: ignore[attr-defined]
    if rule is None:
        names = ", ".join(sorted(kind.name for kind in GRADIENT_RULES))
        raise TapeError(
            f"gradient: no rule for {op.name}; element-wise ops of one operand and these ops have "
            f"rules: {names}"
        )
    return rule(op, dys[0] if len(dys) == 1 else dys, y, *record.operands)


def _unbroadcast(slope: Any, shape: tuple[int, ...]) -> Any:
    """Record the sum over the axes along which an operand of `shape` was broadcast."""
    lead = slope.ndim - len(shape)
    own = (*(1,) * lead, *shape)
    axes = tuple(i for i, n in enumerate(slope.shape) if n != own[i])
    slope = slope.sum(axis=axes, keepdims=True) if axes else slope
    return slope if slope.shape == shape else slope.reshape(shape)


def _matrix_transpose(x: Any) -> Any:
    """Record `x` with its last two axes exchanged."""
    axes = list(range(x.ndim))
    return x.transpose((*axes[:-2], axes[-1], axes[-2]))


def _times(dy: Any, w: Any) -> Any:
    """Record dy @ w; for a single row of dy, record a sum, which compiled steps compute once."""
    one = dy.ndim == w.ndim == 2 and dy.shape[0] == 1
    return (dy.T * w).sum(axis=0, keepdims=True) if one else dy @ w


def _linear(op: ops.Linear, dy: Any, y: Any, x: Any, w: Any, b: Any) -> Slopes:
    def rows(value: Any) -> Any:
        return value.reshape(-1, value.shape[-1]) if value.ndim > 2 else value

    return lambda: _times(dy, w), lambda: rows(dy).T @ rows(x), lambda: dy


def _product(op: Any, dy: Any, y: Any, a: Any, b: Any) -> Slopes:
    return lambda: _times(dy, _matrix_transpose(b)), lambda: _matrix_transpose(a) @ dy


def _transpose(op: ops.Transpose, dy: Any, y: Any, x: Any) -> Slopes:
    axes = op.axes or tuple(reversed(range(x.ndim)))
    return [dy.transpose(tuple(int(i) for i in np.argsort(axes)))]


def _sum(op: Reduction, dy: Any, y: Any, x: Any) -> Slopes:
    axes = op.axes(x)
    spread = tuple(n if i in axes else 1 for i, n in enumerate(x.shape))
    share = 1 / op.count(x) if isinstance(op, ops.Mean) else 1.0
    return [op.kept(dy, x) * np.full(spread, share, x.dtype)]


def _var(op: ops.Var, dy: Any, y: Any, x: Any) -> Slopes:
    centered = x - x.mean(axis=op.axis, keepdims=True)
    return [op.kept(dy, x) * centered * (2 * op.factor(x))]


def _log_sum_exp(op: Reduction, dy: Any, y: Any, x: Any) -> Slopes:
    return [op.kept(dy, x) * (x - op.kept(y, x)).exp()]


def _softmax(op: ops.Softmax, dy: Any, y: Any, x: Any) -> Slopes:
    return [y * (dy - (dy * y).sum(axis=op.axis, keepdims=True))]


def _log_softmax(op: ops.LogSoftmax, dy: Any, y: Any, x: Any) -> Slopes:
    return [dy - y.exp() * dy.sum(axis=op.axis, keepdims=True)]


def _layer_norm(op: ops.LayerNorm, dy: Any, y: Any, x: Any, scale: Any, bias: Any) -> Slopes:
    centered = x - x.mean(axis=-1, keepdims=True)
    rstd = (x.var(axis=-1, keepdims=True) + op.eps).rsqrt()
    xhat = centered * rstd
    h = dy if scale is None else dy * scale

    def dx() -> Any:
        along = xhat * (h * xhat).mean(axis=-1, keepdims=True)
        return (h - h.mean(axis=-1, keepdims=True) - along) * rstd

    return dx, lambda: dy * xhat, lambda: dy


def _slope(op: ops.Slope, dy: Any, y: Any, g: Any, x: Any) -> Slopes:
    def apply(order: int, factor: Any) -> Any:
        return y.tape.apply(replace(op, order=order), factor, x)

    return lambda: apply(op.order, dy), lambda: apply(op.order + 1, dy * g)


def _cat(op: ops.Cat, dy: Any, y: Any, *xs: Any) -> Slopes:
    axis, start, slopes = op.axis % dy.ndim, 0, []
    for x in xs:
        stop = start + x.shape[axis]
        slopes.append(dy[(*(slice(None),) * axis, slice(start, stop))])
        start = stop
    return slopes


def _chunk(op: ops.Chunk, dys: Any, y: Any, x: Any) -> Slopes:
    dys = dys if isinstance(dys, list) else [dys]
    parts = [np.zeros(y.shape, y.dtype) if dy is None else dy for dy in dys]
    return [cat(parts, axis=op.axis)]


def _slice(op: ops.Slice, dy: Any, y: Any, x: Any) -> Slopes:
    """Record dy padded with zeros; raise TapeError for a slice with a step."""
    entries = [entry for entry in op.entries() if entry is not None]
    if ... not in entries:
        entries.append(...)
    at, missing = entries.index(...), x.ndim - len(entries) + 1
    entries[at : at + 1] = [slice(None)] * missing
    bounds = []
    for entry, length in zip(entries, x.shape, strict=True):
        if not isinstance(entry, slice):
            entry = slice(int(entry) % length, int(entry) % length + 1)
        start, stop, step = entry.indices(length)
        if step != 1:
            raise TapeError(f"gradient: no rule for slices with a step (got {op.key})")
        bounds.append((start, max(start, stop)))
    part = dy.reshape(tuple(stop - start for start, stop in bounds))
    for axis, (start, stop) in enumerate(bounds):
        sizes = start, x.shape[axis] - stop
        before, after = (
            [np.zeros((*part.shape[:axis], n, *part.shape[axis + 1 :]), x.dtype)] if n else []
            for n in sizes
        )
        part = cat([*before, part, *after], axis=axis) if any(sizes) else part
    return [part]


GRADIENT_RULES: dict[type[ops.GradOp], Callable[..., Slopes]] = {
    ops.Add: lambda op, dy, y, a, b: (dy, dy),
    ops.BatchMatMul: _product,
    ops.Cast: lambda op, dy, y, x: [dy.cast(x.dtype)],
    ops.Cat: _cat,
    ops.Chunk: _chunk,
    ops.Div: lambda op, dy, y, a, b: (dy / b, -(dy * y / b)),
    ops.LayerNorm: _layer_norm,
    ops.Linear: _linear,
    ops.LogSoftmax: _log_softmax,
    ops.LogSumExp: _log_sum_exp,
    ops.MatMul: _product,
    ops.Mean: _sum,
    ops.Mul: lambda op, dy, y, a, b: (dy * b, dy * a),
    ops.Reshape: lambda op, dy, y, x: [dy.reshape(x.shape)],
    ops.Slice: _slice,
    ops.Slope: _slope,
    ops.Softmax: _softmax,
    ops.Sub: lambda op, dy, y, a, b: (dy, -dy),
    ops.Sum: _sum,
    ops.Transpose: _transpose,
    ops.Var: _var,
}
"""Functions that record the gradients of an op's operands, for each type of op.

Arguments: the op, dy, the output, and the operands.  For an op with several outputs, dy is a list
of gradients, and the output is the first output."""
