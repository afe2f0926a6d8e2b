"""Functions for ops with a list or an array as first operand; all other ops are methods."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine import ops
from mlpengine.tape.operand import apply


def cat(values: Sequence[Any], axis: int = 0) -> Any:
    """Return the values joined along an existing axis."""
    shapes = [np.shape(v) for v in values]
    constant = [i for i, v in enumerate(values) if not getattr(v, "wants_grad", False)]
    scattered = bool(constant) and constant[-1] - constant[0] >= len(constant)
    whole = isinstance(axis, int | np.integer)  # `Cat` refuses other axes
    fits = whole and all(-len(s) <= axis < len(s) for s in shapes)
    fixed = fits and any(axis % len(s) for s in shapes)  # a program may change axis 0, the batch
    sizes = tuple(s[axis] for s in shapes) if fixed or (fits and scattered) else None
    return apply(ops.Cat(axis, sizes), *values)


def where(cond: Any, a: Any, b: Any) -> Any:
    """Return `a` where `cond` is true (bool, or a number other than 0), and `b` elsewhere."""
    return apply(ops.Where(), cond, a, b)
