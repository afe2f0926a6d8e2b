"""Strict checks of saved state: names, shapes, dtypes and kinds of numbers must match."""

from collections.abc import Mapping
from math import isnan
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from mlpengine.core.errors import CheckpointError
from mlpengine.core.spec import Array, Spec
from mlpengine.core.wording import quoted

State: TypeAlias = dict[str, Array | int | float]
"""Copies of arrays, and plain numbers, as `state_dict` returns them."""


def matching_state(where: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> State:
    """Return `given` if it fits an object with the state `own`.

    Whole numbers must be at least zero; other numbers must not be NaN.  Numbers may be arrays
    without axes, as `numpy.savez` stores them.
    Raises: CheckpointError.
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
    """Return a text with the expected and the given value, or "" if `given` fits."""
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
