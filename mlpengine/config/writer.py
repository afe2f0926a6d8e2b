"""Conversion of plain data to YAML text that `reader` reads back as the same data."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/]([A-Za-z0-9_./ -]*[A-Za-z0-9_./-])?")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Texts that some reader of YAML takes for another value."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_LONG = 500
"""Length from which a key is marked as one; without a mark it may have 1,024 characters."""


def write_yaml(plain: Mapping[str, Any]) -> str:
    """Return a mapping as YAML: on one line each innermost mapping, and each list.

    ruamel.yaml takes 20 times as long.
    """
    return "".join(f"{line}\n" for line in _lines(plain))


def _lines(mapping: Mapping[Any, Any], indent: str = "") -> list[str]:
    lines = []
    for key, value in mapping.items():
        name = _flow(key)
        start = f"{indent}{name}:" if len(name) < _LONG else f"{indent}? {name}\n{indent}:"
        if isinstance(value, Mapping) and not _fits_line(value):
            lines += [start, *_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{start} {_flow(value)}")
    return lines


def _fits_line(mapping: Mapping[Any, Any]) -> bool:
    """Return whether a mapping holds no other collection and no long key."""
    nested = any(isinstance(value, Mapping | list) for value in mapping.values())
    return not nested and all(len(str(key)) < _LONG // 10 for key in mapping)


def _flow(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float() if not isfinite(value):
            return f".{value}".replace(".-", "-.")
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case Mapping():
            return f"{{{', '.join(f'{_flow(k)}: {_flow(v)}' for k, v in value.items())}}}"
        case Sequence():
            return f"[{', '.join(map(_flow, value))}]"
    raise TypeError(f"configs hold no {type(value).__name__}")


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if known := _ESCAPES.get(character):
        return known
    return character if character.isprintable() else f"\\U{ord(character):08x}"
