"""Rows of arithmetic: the operators themselves, in float64."""

import numpy as np
from case import Case, normal, positive

from mlpengine.ops import (
    Add,
    Div,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    ScalarAdd,
    ScalarMul,
    Sub,
    Where,
)

SHAPES = {
    "": (lambda draw, n: draw(n, 4), lambda draw, n: draw(n, 4)),
    " by a row": (lambda draw, n: draw(n, 4), lambda draw, n: draw(4)),
    " by a number": (lambda draw, n: draw(n, 3, 2), lambda draw, n: draw()),
    " of a number": (lambda draw, n: draw(), lambda draw, n: draw(n, 2)),
    " of a column": (lambda draw, n: draw(n, 1), lambda draw, n: draw(n, 3)),
    " of 4 axes": (lambda draw, n: draw(n, 1, 3, 1), lambda draw, n: draw(2, 1, 2)),
    " of 0 axes": (lambda draw, n: draw(), lambda draw, n: draw()),
}


def binary(op, formula, first=normal, second=normal, **fields):
    """Rows of an op on two operands, broadcast on either side, on both and on none."""
    return [
        Case(
            op.name + name,
            op,
            lambda n, a=a, b=b: (a(first, n), b(lambda *shape: second(*shape) + 0.03, n)),
            formula,
            **fields,
        )
        for name, (a, b) in SHAPES.items()
    ]


def unary(name, op, formula, draw=normal, **fields):
    """Rows of an op on one operand, of 0, 2 and 4 axes."""
    shapes = {
        "": lambda n: (draw(n, 4),),
        " of 4 axes": lambda n: (draw(n, 2, 1, 3),),
        " of 0 axes": lambda n: (draw(),),
    }
    return [Case(name + s, op, m, formula, **fields) for s, m in shapes.items()]


def power(exponent, draw=normal, **fields):
    def formula(x):
        return np.power(x, np.full(np.shape(x), float(exponent)))

    return unary(f"pow {exponent}", Pow(exponent), formula, draw, **fields)


def chosen(name, draw_mask, *shapes, of=np.bool_):
    def make(n):
        cond, a, b = ([n if size == "n" else size for size in shape] for shape in shapes)
        return (draw_mask(*cond) > 0).astype(of), normal(*a), normal(*b) + 1

    formula = lambda cond, a, b: np.where(cond != 0, a, b)  # noqa: E731
    return Case(f"where {name}", Where(), make, formula)


CASES = [
    *binary(Add(), lambda a, b: a + b),
    *binary(Sub(), lambda a, b: a - b),
    *binary(Mul(), lambda a, b: a * b),
    *binary(Div(), lambda a, b: a / b, second=positive),
    *binary(Maximum(), np.maximum, rtol=1e-4),
    *binary(Minimum(), np.minimum, rtol=1e-4),
    *unary("neg", Neg(), lambda x: -x),
    *unary("scalar_mul", ScalarMul(-2.5), lambda x: -2.5 * x),
    *unary("scalar_add", ScalarAdd(0.75), lambda x: 0.75 + x),
    *power(0),
    *power(1),
    *power(2),
    *power(3),
    *power(4, extremes=(1e-6, 1e6)),
    *power(7, extremes=(1e-3, 1e3)),
    *power(-1, positive),
    *power(-2, positive, extremes=(1e-6, 1e6)),
    *power(0.5, positive),
    *power(-2.5, positive, extremes=(1e-6, 1e6)),
    chosen("of equal shapes", normal, ("n", 4), ("n", 4), ("n", 4)),
    chosen("of a row and a number", normal, ("n", 4), (4,), ()),
    chosen("by a column", normal, ("n", 1), (), ("n", 3)),
    chosen("by a row", normal, (3,), ("n", 1), ("n", 3)),
    chosen("of 4 axes", normal, ("n", 1, 3, 1), (2, 1, 2), ("n", 1, 1, 1)),
    chosen("of 0 axes", normal, (), (), ()),
    chosen("by a mask of integers", normal, ("n", 4), ("n", 4), (4,), of=np.int8),
]
