"""Functions of floats or formulas, for `Optimizer.numbers`."""

from math import sqrt as root
from typing import Any

from mlpengine import formula
from mlpengine.formula import Expr


def sqrt(x: Any) -> Any:
    """Return the square root."""
    return formula.sqrt(x) if type(x) is Expr else root(x)


def power(base: Any, exponent: Any) -> Any:
    """Return base**exponent."""
    return formula.power(base, exponent) if type(exponent) is Expr else base**exponent
