"""Nested state as a flat set of named arrays and plain JSON, and back, exactly."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any

import numpy as np

from mlpengine.core.errors import CheckpointError, NumericalError
from mlpengine.core.spec import Array

_ARRAY, _FLOAT = "$array", "$float"


@contextmanager
def restoring() -> Iterator[None]:
    """Turn the errors that a saved state of another structure causes into a CheckpointError."""
    try:
        yield
    except (CheckpointError, NumericalError):
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        cause = f"it has no {error}" if isinstance(error, KeyError) else repr(error)
        raise CheckpointError(f"checkpoint: does not fit this run ({cause})") from error


def pack(tree: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of `tree` by dotted name, and the other values, ready for JSON.

    JSON keeps finite floats and whole numbers of any size exactly; other floats become text.
    """
    arrays: dict[str, Array] = {}

    def plain(value: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(below, f"{name}.{key}") for key, below in value.items()}
        if isinstance(value, list | tuple):
            return [plain(below, f"{name}.{i}") for i, below in enumerate(value)]
        if isinstance(value, np.ndarray):
            arrays[name] = value
            return {_ARRAY: name}
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not isfinite(value):
            return {_FLOAT: str(value)}
        return value

    return arrays, {key: plain(value, key) for key, value in tree.items()}


def unpack(arrays: Mapping[str, Array], plain: Any) -> Any:
    """Return the tree that was given to `pack`.  Raises: CheckpointError if an array is missing."""
    if isinstance(plain, list):
        return [unpack(arrays, below) for below in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {_FLOAT}:
        with restoring():
            return float(plain[_FLOAT])
    if plain.keys() == {_ARRAY}:
        if not isinstance(plain[_ARRAY], str) or plain[_ARRAY] not in arrays:
            raise CheckpointError(f"checkpoint: the array {plain[_ARRAY]!r} is missing")
        return arrays[plain[_ARRAY]]
    return {key: unpack(arrays, below) for key, below in plain.items()}
