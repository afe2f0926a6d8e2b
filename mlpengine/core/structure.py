"""Checks of parsed JSON, key by key, and conversion of numbers for JSON.

A correct hash shows that a file is unchanged, but not that its content is valid.  These functions
check the content before an object is built from it.
"""

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, TypeVar

from mlpengine.core.errors import CheckpointError
from mlpengine.core.wording import quoted

Wanted = TypeVar("Wanted")

WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    list: "a list",
    dict: "a mapping",
}
"""Names of JSON types in messages."""


def finite(value: Any) -> Any:
    """Return a value for JSON: None replaces infinite numbers and NaN, at every depth."""
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def of_type(value: Any, kind: type[Wanted], where: str) -> Wanted:
    """Return `value`; raise CheckpointError if its JSON type is not `kind`."""
    good = isinstance(value, int | float if kind is float else kind)
    if isinstance(value, bool) and kind is not bool:
        good = False
    if good and isinstance(value, int | float):
        good = -float("inf") < value < float("inf")
    if not good:
        raise CheckpointError(f"{where}: must be {WORDS[kind]} (got {quoted(value)})")
    return value  # type: ignore[no-any-return]


def check_keys(
    value: Any, where: str, needed: Collection[str], others: Collection[str] = ()
) -> None:
    """Raise CheckpointError for a missing key of `needed`, or a key not in `needed` or `others`."""
    of_type(value, dict, where)
    for problem, names in (
        ("lacks", {*needed} - value.keys()),
        ("has unknown keys", value.keys() - {*needed, *others}),
    ):
        if names:
            listed = ", ".join(map(repr, sorted(names)[:5]))
            raise CheckpointError(f"{where}: {problem} ({listed})")
