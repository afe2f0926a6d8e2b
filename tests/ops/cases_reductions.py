"""Rows of reductions over every kind of axes, in float64."""

from functools import partial

import numpy as np
from case import Case, distinct, normal
from scipy import special

from mlpengine.ops import LogSumExp, Max, Mean, Min, Sum, Var

SHAPES = {
    "all": (None, False, (3, 2)),
    "all, kept": (None, True, (3,)),
    "the batch": (0, False, (4,)),
    "the last axis": (-1, False, (4,)),
    "a short last axis, kept": (-1, True, (1,)),
    "the middle": (1, True, (3, 2)),
    "two trailing axes": ((2, -1), False, (2, 3, 2)),
    "two axes apart": ((0, 2), False, (2, 3, 1)),
    "axes out of order": ((3, 1), True, (2, 1, 3)),
}


def reduction(op, formula, draw=normal, *, empty=True, **fields):
    """Rows of one reduction; without `empty`, not over a batch of no rows."""

    def rows(axis, keepdims, shape):
        over_batch = axis is None or 0 in np.atleast_1d(axis)
        apply = partial(formula, axis=axis, keepdims=keepdims)
        make = lambda n: (draw(n, *shape),)  # noqa: E731
        return {"make": make, "expect": apply, "empty": empty or not over_batch}

    return [
        Case(f"{op.name} over {name}", op(axis, keepdims), **rows(axis, keepdims, shape), **fields)
        for name, (axis, keepdims, shape) in SHAPES.items()
    ] + [
        Case(f"{op.name} of 0 axes", op(), lambda n: (draw(),), formula, **fields),
        Case(
            f"{op.name} over no axes",
            op(()),
            lambda n: (draw(n, 3),),
            partial(formula, axis=()),
            **fields,
        ),
    ]


def logsumexp(x, axis=None, keepdims=False):
    """SciPy's function fails on empty arrays."""
    if not x.size:
        return np.sum(x, axis, keepdims=keepdims)
    return special.logsumexp(x, axis, keepdims=keepdims)


CASES = [
    *reduction(Sum, np.sum),
    *reduction(Mean, np.mean, empty=False),
    *reduction(Var, np.var, empty=False),
    Case(
        "var with ddof",
        Var((0, 2), ddof=1),
        lambda n: (normal(n, 3, 2),),
        partial(np.var, axis=(0, 2), ddof=1),
        empty=False,
    ),
    *reduction(Max, np.max, distinct, empty=False),
    *reduction(Min, np.min, distinct, empty=False),
    *reduction(LogSumExp, logsumexp, empty=False),
]
