"""Element-wise ops as NumExpr kernels, made from the formulas of the ops.

Constants are arrays with the dtype of the operands, because a Python float would promote a float32
expression to float64.  Kernels are compiled when a program is bound to arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numexpr
import numpy as np

from mlpengine.core.spec import Array, Calls, Slots, call
from mlpengine.formula import Expr, Plan, numexpr_text, order
from mlpengine.formula.numpy_functions import constant_like, copied
from mlpengine.ops import Elementwise, GradOp
from mlpengine.ops.op import Direction


@cache
def _kernel(expression: str, names: tuple[str, ...], dtype: np.dtype[Any]) -> Callable[..., Any]:
    kind = float if dtype == np.float32 else np.double  # NumExpr's names of the two dtypes
    kernel: Callable[..., Any] = numexpr.NumExpr(expression, [(name, kind) for name in names])
    return kernel


def fused(formula: Expr, out: Array, given: Mapping[Expr, Array]) -> Calls:
    """Yield the call that writes `formula` to `out`; `given` maps its variables to arrays."""
    leaves = [n for n in order([formula], given) if n in given or n.number is not None]
    names = {n: f"a{i}" for i, n in enumerate(leaves)}
    text = numexpr_text(formula, names)
    if text is None:
        raise LookupError(formula)
    if formula in given:
        yield from copied(given[formula], out)
    elif formula.number is not None:
        yield call(out.fill, formula.number)
    elif out.size:
        arrays = [given[n] if n.number is None else constant_like(n.number, out) for n in leaves]
        kernel = _kernel(text, tuple(names.values()), out.dtype)
        yield call(kernel, *arrays, out=out, order="K", casting="same_kind", ex_uses_vml=False)


def _several(outputs: Sequence[Expr], out: Slots, given: dict[Expr, Array]) -> list[Any]:
    calls: list[Any] = []
    for formula, array in zip(outputs, out, strict=True):
        if array is not None:
            calls += fused(formula, array, given)
            given[formula] = array
    return calls


def _forward(op: Elementwise, *operands: Array, out: Array, **work: Array) -> Calls:
    f = op.formulas
    given = dict(zip(f.operands.values(), operands, strict=True))
    kept = [work[name] for name in f.kept]
    yield from _several([*f.kept.values(), f.y], [*kept, out], given)


def _backward(op: Elementwise, *residuals: Array, out: Slots, **work: Array) -> Calls:
    f = op.formulas
    given = dict(zip(f.residuals.values(), residuals, strict=True))
    given |= {formula: work[name] for name, formula in f.kept.items()}
    yield from _several(f.gradients[::-1], out[::-1], given)


def find_rule(op: GradOp, direction: Direction) -> Callable[..., Calls] | None:
    """Return an op's NumExpr rule; None if NumPy needs one call or NumExpr lacks a function."""
    if not isinstance(op, Elementwise):
        return None
    f = op.formulas
    planned = f.forward if direction == "forward" else f.backward[(True,) * len(f.gradients)]
    formulas = [f.y, *f.kept.values()] if direction == "forward" else f.gradients
    known = all(numexpr_text(formula, {}) is not None for formula in formulas)
    if not known or not isinstance(planned, Plan) or len(planned.steps) < 2:
        return None
    return partial(_forward if direction == "forward" else _backward, op)
