"""Checks of hyper-parameters, with one form of message."""

from collections.abc import Sequence
from contextlib import suppress
from math import inf, isfinite
from numbers import Real

import numpy as np

from mlpengine.errors import UsageError


def number(
    where: str,
    name: str,
    value: object,
    *,
    minimum: float = -inf,
    maximum: float = inf,
    below: float = inf,
) -> float:
    """Return `value` as a float if it is finite, minimum <= value <= maximum and value < below.

    Raises: UsageError naming `where`, `name` and the value.
    """
    if isinstance(value, Real) and not isinstance(value, bool) and isfinite(value):
        result = float(value)
        if minimum <= result <= maximum and result < below:
            return result
    bounds = [("at least", minimum), ("at most", maximum), ("less than", below)]
    limits = " and ".join(f"{words} {limit:g}" for words, limit in bounds if isfinite(limit))
    limits = f", {limits}" if limits else ""
    hint = ""
    if isinstance(value, str):
        with suppress(ValueError):
            hint = f"; write {name}={float(value):g}"
    raise UsageError(f"{where}: {name} must be a finite number{limits} (got {value!r}){hint}")


def positive(where: str, name: str, value: object) -> float:
    """Return `value` as a float if it is finite and above zero; raise UsageError if not."""
    result = number(where, name, value, minimum=0.0)
    if result == 0.0:
        raise UsageError(f"{where}: {name} must be above zero (got {value!r})")
    return result


def count(where: str, name: str, value: object, *, minimum: int = 0) -> int:
    """Return `value` as an int if it is a whole number of at least `minimum`.

    Raises: UsageError naming `where`, `name` and the value.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= minimum:
        return int(value)
    raise UsageError(
        f"{where}: {name} must be a whole number of at least {minimum} (got {value!r})"
    )


def fractions(where: str, name: str, value: object) -> tuple[float, float]:
    """Return `value` as two numbers of 0 <= number < 1; raise UsageError if they are not."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        first, second = (
            number(where, f"{name}[{i}]", item, minimum=0.0, below=1.0)
            for i, item in enumerate(value)
        )
        return first, second
    raise UsageError(f"{where}: {name} must be two numbers (got {value!r})")
