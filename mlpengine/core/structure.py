"""Checks that parsed JSON has the structure that type annotations describe.

A hash says that a file is as it was written, and nothing about who wrote it: what a file holds is
checked before anything is built from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from mlpengine.core.errors import CheckpointError

Test = Callable[[Any], bool]

_SCALARS: dict[Any, tuple[str, Test]] = {
    NoneType: ("null", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: _is_number(value, int)),
    float: ("a finite number", lambda value: _is_number(value, int | float)),
    str: ("text", lambda value: isinstance(value, str) and _is_unicode(value)),
}


def finite(value: Any) -> Any:
    """Return numbers, in lists and mappings too, as JSON has them: None where one is not finite."""
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value


def conform(value: Any, kind: Any, where: str) -> None:
    """Check that a value from JSON has the structure of the annotation `kind`.

    Understood are the scalars of JSON (numbers must be finite and text valid Unicode), `Literal`,
    unions, lists, tuples, dicts by name, `TypedDict` and dataclasses, whose keys must all be
    known.

    Raises: CheckpointError naming `where` and the first place below it that does not fit.
    """
    if kind is Any:
        return
    if kind in _SCALARS:  # most values, of which the model of a wide table has many
        text, test = _SCALARS[kind]
        _demand(test(value), where, text, value)
        return
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        same = any(type(value) is type(each) and value == each for each in args)
        _demand(same, where, f"one of {', '.join(map(str, args))}", value)
    elif origin in (Union, UnionType):
        _conform_union(value, args, where)
    elif origin is list or (origin is tuple and args[1:] == (...,)):
        _demand(isinstance(value, list), where, "a list", value)
        for i, item in enumerate(value):
            conform(item, args[0], f"{where}[{i}]")
    elif origin is tuple:
        whole = isinstance(value, list) and len(value) == len(args)
        _demand(whole, where, f"a list of {len(args)}", value)
        for i, (item, each) in enumerate(zip(value, args, strict=True)):
            conform(item, each, f"{where}[{i}]")
    elif origin is dict:
        _demand(isinstance(value, dict), where, "a mapping", value)
        for key, item in value.items():
            conform(key, str, f"{where}: a key")
            conform(item, args[1], f"{where}.{key}")
    else:
        _conform_record(value, kind, where)


def _conform_union(value: Any, kinds: tuple[Any, ...], where: str) -> None:
    problems = []
    for kind in kinds:
        try:
            return conform(value, kind, where)
        except CheckpointError as error:
            problems.append(str(error))
    # the member that went furthest before it failed is the closest
    raise CheckpointError(max(problems, key=lambda text: text.partition(" must be ")[0].__len__()))


def _conform_record(value: Any, kind: Any, where: str) -> None:
    """Check a TypedDict or a dataclass: known keys only, and all of those that are required."""
    hints = _hints(kind)
    if is_typeddict(kind):
        required = kind.__required_keys__
    elif is_dataclass(kind):
        defaults = {f.name for f in fields(kind) if f.default is not MISSING}
        hints = {f.name: hints[f.name] for f in fields(kind)}
        required = frozenset(hints) - defaults
    else:
        raise TypeError(f"conform: {kind!r} describes no JSON")
    _demand(isinstance(value, dict), where, "a mapping", value)
    for problem, names in (
        ("lacks", required - value.keys()),
        ("has unknown keys", value.keys() - hints.keys()),
    ):
        if names:
            listed = ", ".join(map(repr, sorted(map(str, names))[:5]))
            raise CheckpointError(f"{where}: {problem} ({listed})")
    for name, item in value.items():
        conform(item, hints[name], f"{where}.{name}")


_hints = cache(get_type_hints)


def _demand(true: bool, where: str, wanted: str, value: Any) -> None:
    if not true:
        text = repr(value)
        raise CheckpointError(f"{where}: must be {wanted} (got {text[:60]})")


def _is_number(value: Any, kind: Any) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
