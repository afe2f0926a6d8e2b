"""Checks that parsed JSON of model files, checkpoints and results has the structure of a type.

A hash says that a file is as it was written, and nothing about who wrote it: what a file holds is
checked before anything is built from it.
"""

import json
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from mlpengine.core.errors import CheckpointError
from mlpengine.settings.base import EXPECTED, UNKNOWN

JSON = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what checks a list with a value of a type; a list takes the rules of `JSON`."""
    return TypeAdapter(list[kind], config=JSON)


def conform(value: Any, kind: Any, where: str) -> None:
    """Check that a value from JSON has the structure of `kind`, such as a `TypedDict`.

    Raises: CheckpointError naming `where` and the first place below it that does not fit.
    """
    try:
        _adapter(kind).validate_json(json.dumps([value]))
    except ValidationError as error:
        issues = error.errors(include_url=False)
    else:
        return
    places = [_place(issue["loc"][1:], value) for issue in issues]
    at, issue = max(zip(places, issues, strict=True), key=lambda pair: len(pair[0]))
    kind_of_error, last = issue["type"], [0, *issue["loc"]][-1]
    if kind_of_error in UNKNOWN:
        at = at[:-1]
    path, inner = "", value
    for key in at:
        path += f"[{key}]" if isinstance(key, int) else f".{key}"
        inner = inner[key]
    context = issue.get("ctx", {})
    if isinstance(last, str) and kind_of_error in ("missing", *UNKNOWN):
        alike = [one["loc"] for one in issues if one["type"] == kind_of_error]
        names = sorted({repr(loc[-1]) for loc in alike if loc[:-1] == issue["loc"][:-1]})
        problem = "lacks" if kind_of_error == "missing" else "has unknown keys"
        raise CheckpointError(f"{where}{path}: {problem} ({', '.join(names[:5])})")
    if kind_of_error == "missing":
        kind_of_error, context = "too_short", {"min_length": int(last) + 1}
    text = EXPECTED.get(kind_of_error, issue["msg"]).format(**context)
    raise CheckpointError(f"{where}{path}: must be {text} (got {inner!r:.60})")


def _place(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """Return the part of a path that leads into a value, without names of members of unions."""
    place: list[int | str] = []
    for key in loc:
        inside = key in value if isinstance(value, dict) else isinstance(value, list)
        if inside and (isinstance(value, dict) or (isinstance(key, int) and key < len(value))):
            value = value[key]
            place.append(key)
    return place
