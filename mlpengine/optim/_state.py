"""Checks that saved state has the expected names, shapes, dtypes and types of numbers."""

from collections.abc import Mapping
from math import isnan
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from mlpengine.core.errors import CheckpointError
from mlpengine.core.spec import Array, Spec
from mlpengine.core.wording import quoted

State: TypeAlias = dict[str, Array | int | float]
"""Arrays and numbers by name."""


def matching_state(where: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> State:
    """Return `given`, the state to load into an object with the current state `own`.

    Integers must be at least 0; other numbers must not be NaN.  Numbers may be 0-d arrays, as
    `numpy.savez` stores them.
    Raises: CheckpointError if names, shapes or dtypes differ.
    """
    if not isinstance(given, Mapping):
        raise CheckpointError(f"{where}: state must be a mapping (got {quoted(given)})")
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or unknown:
        raise CheckpointError(
            f"{where}: saved state must have the same names (missing {missing}, unknown {unknown})"
        )
    state = {name: _plain(own[name], value) for name, value in given.items()}
    for name, expected in own.items():
        problem = _misfit(expected, state[name])
        if problem:
            raise CheckpointError(f"{where}: saved {name!r} must be {problem}")
    return state


def _plain(expected: Any, given: Any) -> Any:
    is_number = isinstance(given, np.ndarray) and not given.ndim
    return given.item() if is_number and not isinstance(expected, np.ndarray) else given


def _misfit(expected: Any, given: Any) -> str:
    """Return text such as "float32[3] (got float64[3])", or "" if `given` fits."""
    if isinstance(expected, np.ndarray):
        if isinstance(given, np.ndarray) and Spec.of(given) == Spec.of(expected):
            return ""
        shown = Spec.of(given) if isinstance(given, np.ndarray) else repr(given)
        return f"{Spec.of(expected)} (got {shown})"
    if isinstance(expected, int):
        good = isinstance(given, int | np.integer) and not isinstance(given, bool) and given >= 0
        return "" if good else f"a whole number of at least 0 (got {given!r})"
    good = isinstance(given, Real) and not isinstance(given, bool) and not isnan(given)
    return "" if good else f"a number (got {given!r})"
