"""Checks that JSON of model files, checkpoints and results has the structure of a Python type.

A hash shows that a file is unchanged, but not who wrote the file.  So the content is checked before
objects are built from it.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from mlpengine.core.errors import CheckpointError
from mlpengine.core.wording import quoted, suggestion
from mlpengine.settings.base import UNKNOWN, expected

JSON = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the strict validator of a list with one value of this type."""
    return TypeAdapter(list[kind], config=JSON)


def conform(value: Any, kind: Any, where: str) -> None:
    """Check that a value from JSON has the structure of `kind`, such as a `TypedDict`.

    Raises: CheckpointError with `where`, and with the path and the problem of a wrong value.
    """
    try:
        _adapter(kind).validate_json(json.dumps([value]))
    except ValidationError as error:
        fault = fault_of(error, [value]).removeprefix("[0]")
        raise CheckpointError(f"{where}{fault}") from None


def fault_of(error: ValidationError, value: Any, names: Sequence[str] = ()) -> str:
    """Return the path and the problem of the most deeply nested wrong value.

    The text is of the form ``.a[0]: must be a number (got 'x')``.  `names` are the names of
    positional arguments.
    """
    issues = error.errors(include_url=False)
    for issue in issues:
        if names and isinstance(issue["loc"][0], int):
            issue["loc"] = (*names[issue["loc"][0] :][:1], *issue["loc"][1:])
    places = [_place(issue["loc"], value) for issue in issues]
    at, issue = max(zip(places, issues, strict=True), key=lambda pair: len(pair[0]))
    kind, last, context = issue["type"], [0, *issue["loc"]][-1], issue.get("ctx", {})
    alike = [one for one, place in zip(issues, places, strict=True) if place == at]
    if kind in UNKNOWN:
        at = at[:-1]
    path, inner = "", value
    for key in at:
        path += f"[{key}]" if isinstance(key, int) else f".{key}"
        inner = inner[key]
    if kind == "rule":
        return f"{path}{''.join(f'.{key}' for key in context['at'])}: {context['text']}"
    if isinstance(last, str) and kind in ("missing", *UNKNOWN):
        same = [one["loc"] for one in issues if one["type"] == kind]
        names = sorted({repr(loc[-1]) for loc in same if loc[:-1] == issue["loc"][:-1]})
        problem = "lacks" if kind == "missing" else "has unknown keys"
        return f"{path}: {problem} ({', '.join(names[:5])})"
    texts = dict.fromkeys(expected(one) for one in alike if one["type"] != "is_instance_of")
    names = [name for text in texts for name in text.split("'")[1::2]]
    near = suggestion(inner, names) if isinstance(inner, str) else ""
    return f"{path}: must be {' or '.join(texts)} (got {quoted(inner)}){near}"


def _place(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """Return the keys of an error's path that exist in the value; pydantic adds names of types."""
    place: list[int | str] = []
    for key in loc:
        inside = key in value if isinstance(value, dict) else isinstance(value, list)
        if inside and (isinstance(value, dict) or (isinstance(key, int) and key < len(value))):
            value = value[key]
            place.append(key)
    return place
