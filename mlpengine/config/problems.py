"""Messages about wrong configs, made from pydantic's errors."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import chain
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from mlpengine.config.reader import Document, KeyPath, dotted
from mlpengine.config.schema import Config
from mlpengine.core.fields import Option
from mlpengine.core.wording import nearest, quoted, suggestion
from mlpengine.settings.base import EXPECTED, UNKNOWN, expected, options_of
from mlpengine.settings.families import EngineObject, Family


def report_all(error: ValidationError, document: Document) -> None:
    """Report every pydantic error in `document`; several errors about one value become one."""
    texts_of: dict[KeyPath, list[str]] = {}
    names: dict[KeyPath, list[str]] = {}
    issues = error.errors(include_url=False)
    for issue in issues:
        path = _real_path(issue["loc"], document.data)
        context: Mapping[str, Any] = issue.get("ctx", {})
        match issue["type"]:
            case "missing" if isinstance(issue["loc"][-1], int):
                texts_of.setdefault(path, []).append(expected(issue))
            case "missing":
                path = (*path, *issue["loc"][-1:])
                option = _option_at(path, document.data)
                about = ((option and option.description) or "it has no default").removesuffix(".")
                document.report(path, f"this key is required ({about})")
            case kind if kind in UNKNOWN:
                document.report(path, _unknown_key(path, document.data))
            case "rule":
                document.report((*path, *context["at"]), context["text"])
            case "is_instance_of":  # such values exist in Python only, not in YAML
                continue
            case kind:
                section = _value_at(path, document.data)
                text = expected(issue)
                if kind == "unknown_name" and isinstance(section, dict):
                    path = (*path, "name")
                    if "name" not in section:
                        document.report(path, f"this key is required ({text})")
                        continue
                names.setdefault(path, []).extend(re.findall(r"'([^']*)'", text))
                texts_of.setdefault(path, []).append(_listed(text))
    reported = {_real_path(one["loc"], document.data) for one in issues} | texts_of.keys()
    keys = (one["loc"] for one in issues if one["loc"][-1:] == ("[key]",))
    wrong_keys = {_real_path(loc, document.data) for loc in keys}
    for path, texts in texts_of.items():
        value = _value_at(path, document.data)
        if isinstance(value, dict) and any(path == one[: len(path)] != one for one in reported):
            continue  # errors within the mapping are more precise
        given = path[-1] if path in wrong_keys else value
        text = f"must be {' or '.join(dict.fromkeys(texts))} (got {shown_value(given)})"
        if _is_switch(path, document.data):
            text = text.replace("must be ", "must be true, false or ", 1)
        else:
            text += _quotes(path, document.data) or _advice(path, value, text, names.get(path, []))
            is_none = isinstance(value, str) and value == "None"
            option = _option_at(path, document.data) if is_none else None
            text += "; write null" if option and type(None) in _parts(option.type) else ""
        if isinstance(value, str) and value not in ("none", r"\t"):
            text += suggestion(value, names.get(path, []))
        document.report(path, text)


def _quotes(path: KeyPath, data: Any) -> str:
    """Return advice on a text that YAML reads as nothing, as a list or as keys, or ""."""
    value = _value_at(path, data)
    if value is None and path[-2:-1] == ("features",):
        formulas = map(str, _value_at(path[:-1], data).values())
        if not any(one.count("(") > one.count(")") for one in formulas):
            return "; leave it out, or give a formula"
        return "; a comma ends a formula without quotes: put it in quotes"
    is_bare = isinstance(value, list | dict) and value in ([None], {"": None})
    return "; put - and ? in quotes" if is_bare else ""


def _advice(path: KeyPath, value: Any, text: str, names: Sequence[str]) -> str:
    """Return advice on what to write instead of `value`, or ""; `text` is the problem."""
    if isinstance(value, list):
        return _as_mapping(path, value) if EXPECTED["model_type"] in text else ""
    is_bare = value is None or isinstance(value, bool)  # null and true without quotes
    if is_bare and text.startswith("must be text (") and isinstance(path[-1], int):
        return '; write "null"' if value is None else "; write it in quotes"
    if isinstance(value, int | float):
        if "less than 1" in text and 1 < value <= 100:
            return f"; it is a share: write {value / 100:g}"
        if text.startswith("must be text (") and not isinstance(value, bool):
            return "; write it in quotes"
        whole = "whole" in text and float(value).is_integer() and not isinstance(value, bool)
        return f"; write {value:.0f}" if whole else ""
    if not isinstance(value, str):
        return ""
    if re.fullmatch(r"[+-]?\d+,\d+", value) and "a number" in text:
        return f"; write {value.replace(',', '.')}, with a point"
    wanted = r"[0-9]+" if "whole" in text else r"[0-9]+\.?[0-9]*"
    if re.fullmatch(wanted, value) and ("whole" in text or "a number" in text):
        return f"; write {value}, without quotes"
    option = re.fullmatch(r"[1-9]\d*([, ]+\d+)+", value)
    if option and "whole" in text:
        return f"; write [{', '.join(re.findall(r'[0-9]+', value))}]"
    if share := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value):
        return f"; write {float(share[1]) / 100:g}"
    if value == r"\t" and value in names:
        return '; write "\\t", in double quotes'
    first, *more = value.split() or [""]
    if more and first in names:
        return f"; write {{name: {first}, KEY: VALUE}}"
    if EXPECTED["model_type"] in text:
        return "; write its keys below it, as key: value with a space after the colon"
    return ""


VALUE_EXAMPLES = {
    ("data", "split"): "{validation: 0.15, test: 0.15}",
    ("data", "features"): "{ratio: a / b}; all columns but the target and data.drop are read",
    ("model",): "{hidden: [64, 64]}",
    ("sweep", "space"): "{choice: [A, B]}, or for numbers {log: [0.0001, 0.1]}",
}
"""Examples of valid values, by the start of a key path."""


def _as_mapping(path: KeyPath, value: list[Any]) -> str:
    """Return advice on what to write if a section is a list instead of a mapping, or ""."""
    if value and all(isinstance(one, dict) for one in value):
        return "; leave out the '- ' before its keys"
    right = next(
        (text for start, text in VALUE_EXAMPLES.items() if path[: len(start)] == start), ""
    )
    return f"; write {path[-1]}: {right}" if right else ""


def shown_value(value: Any) -> str:
    """Return a value as text for a message."""
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else quoted(value)


def _listed(text: str) -> str:
    """Remove "or" from a list of names, because the caller joins several texts with "or"."""
    return text.replace("' or '", "', '") if text.count("'") > 2 else text.removeprefix("one of ")


def _real_path(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """Return the key path of an error; pydantic's location also has names of union members."""
    path: list[int | str] = []
    for place, key in enumerate(loc, 1):
        inside = isinstance(data, dict) and key in data
        if (
            inside
            and not isinstance(data[key], dict | list)
            and set(loc[place : place + 1]) & {*data}
        ):
            # a key that names a union member adds no level
            continue
        if inside or (isinstance(data, list) and isinstance(key, int) and key < len(data)):
            data = data[key]
            path.append(key)
    return tuple(path)


def _value_at(path: KeyPath, data: Any) -> Any:
    for key in path:
        if isinstance(data, dict | list):
            data = data[key]  # type: ignore[index]
    return data


OTHER_NAMES = {
    "learning_rate": "lr",
    "learning_rate_init": "lr",
    "hidden_layer_sizes": "hidden",
    "max_iter": "epochs",
    "random_state": "seed",
}
"""Our keys, by names in scikit-learn and Keras."""


def _unknown_key(path: KeyPath, data: Any) -> str:
    *parent, key = path
    section = _value_at(tuple(parent), data)
    before = ["", *section][[*section].index(key)]
    valid = _options_at(tuple(parent), data)
    if str(key).isdigit() and section[key] is None and isinstance(section.get(before), int):
        option = valid.get(before)
        if option and any(get_origin(one) in (list, tuple) for one in _parts(option.type)):
            return f"a list needs brackets: write {before}: [{section[before]}, {key}]"
        return f"a decimal comma ends the value: write {before}: {section[before]}.{key}"
    words = str(key).split(".")
    if words[1:] and (*parent, *words) in key_paths(Config):
        return f"write {': {'.join(words)}: ...{'}' * (len(words) - 1)}"
    if isinstance(key, str) and ":" in key and key.partition(":")[0] in valid:
        return "a space is needed after the colon"
    key = OTHER_NAMES.get(str(key), key)
    elsewhere, known = path_of(key, path), f" (valid here: {', '.join(valid)})"
    if not parent and not elsewhere and not suggestion(key, valid):
        near = nearest(key, (str(one[-1]) for one in key_paths(Config)), 0.75)
        elsewhere = path_of(near) if near else None
    if elsewhere and elsewhere != path:
        level = " at the top level" if len(elsewhere) == 1 else ""
        known = known if len(valid) < 9 else ""  # the key of another section may not be meant
        return f"unknown key - did you mean {dotted(elsewhere)!r}{level}?{known}"
    return f"unknown key{suggestion(key, valid) or known}"


def _is_switch(path: KeyPath, data: Any) -> bool:
    """Return whether true and false are short forms of the section at `path`."""
    option = _option_at(path, data)
    parts = [*_parts(option.type)] if option else []
    accepted = [getattr(one, "json_schema_input_type", None) for one in parts]
    return any(bool in get_args(one) for one in accepted)


def path_of(key: int | str, near: KeyPath = ()) -> KeyPath | None:
    """Return the path of the key with this name, or None.

    If several keys have the name, a key in the first section of the path `near` is preferred.
    """
    paths = [path for path in key_paths(Config) if path[-1] == key]
    return max(paths, key=lambda path: path[:1] == near[:1], default=None)


def key_paths(kind: Any, start: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the key paths of all options below a section."""
    for name, option in options_of(kind).items():
        if option.given:
            continue
        yield (*start, name)
        members = (key_paths(member, (*start, name)) for member in _members(option.type))
        yield from dict.fromkeys(chain.from_iterable(members))


def _option_at(path: KeyPath, data: Any) -> Option | None:
    return _options_at(path[:-1], data).get(str(path[-1])) if path else None


def _options_at(path: KeyPath, data: Any) -> Mapping[str, Option]:
    """Return the options of the section at `path`; they may depend on a name in the section."""
    options = options_of(Config)
    keys = iter(path)
    for key in keys:
        option = options.get(str(key))
        if option is None:
            return {}
        data = data[key]
        parts = [*_parts(option.type)]
        if any(_is_mapping(one) for one in parts):  # a section for each name
            name = next(keys, None)
            if name is None:
                return {}
            data = data[name]
        family = next((one for one in parts if isinstance(one, EngineObject)), None)
        whole = family.complete(data) if family else None
        if family and isinstance(whole, dict):
            options = options_of(family.member(whole))
        else:
            member = next(_members(option.type), None)
            options = options_of(member) if member else {}
    return options


def _members(kind: Any) -> Iterator[Any]:
    """Yield the section classes of a type, or of the values of a mapping."""
    for one in _parts(kind):
        if isinstance(one, Family):
            yield from one.members
        elif isinstance(one, EngineObject):
            yield one.member({})
        elif _is_mapping(one):
            yield from _members(get_args(one)[1])
        elif isinstance(one, type) and (is_dataclass(one) or issubclass(one, BaseModel)):
            yield one


def _is_mapping(kind: Any) -> bool:
    return isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping)


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type, its annotations, and the members of its union."""
    if get_origin(kind) is Annotated:
        base, *marks = get_args(kind)
        yield from marks
        if not any(isinstance(one, EngineObject) for one in marks):
            yield from _parts(base)
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _parts(one)
    else:
        yield kind
