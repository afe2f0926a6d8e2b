"""Problems of a config as messages: pydantic's errors with key paths and suggestions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mlpengine.config.options import Named, Section, Short
from mlpengine.config.reader import Document, KeyPath, dotted
from mlpengine.core.wording import nearest, suggestion

_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "finite_number": "a finite number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "literal_error": "one of {expected}",
    "unknown_name": "one of {expected}",
    "string_pattern_mismatch": "letters, digits, dots and dashes only, 100 at most",
}


def report_all(error: ValidationError, document: Document, model: type[BaseModel]) -> None:
    """Report every error of pydantic in `document`; several about one value become one."""
    expected: dict[KeyPath, list[str]] = {}
    names: dict[KeyPath, list[str]] = {}
    for issue in error.errors(include_url=False):
        path = _real_path(issue["loc"], document.data)
        context: Mapping[str, Any] = issue.get("ctx", {})
        match issue["type"]:
            case "missing":
                path = (*path, *issue["loc"][-1:])
                field = _field_at(path, document.data, model)
                about = (field and field.description) or "it has no default"
                document.report(path, f"this key is required ({about})")
            case "extra_forbidden":
                document.report(path, _unknown_key(path, document.data, model))
            case "rule":
                document.report((*path, *context["at"]), context["text"])
            case kind:
                if kind == "unknown_name" and isinstance(_value_at(path, document.data), dict):
                    path = (*path, "name")
                text = _EXPECTED.get(kind, issue["msg"]).format(**context)
                names.setdefault(path, []).extend(re.findall(r"'([^']*)'", text))
                expected.setdefault(path, []).append(_listed(text))
    for path, texts in expected.items():
        value = _value_at(path, document.data)
        text = f"must be {' or '.join(texts)} (got {shown_value(value)})"
        if _is_switch(path, document.data, model):
            text = text.replace("must be ", "must be true, false or ", 1)
        else:
            text += _advice(path, value, text, names[path])
        document.report(path, text + suggestion(value, names[path]))


def _advice(path: KeyPath, value: Any, text: str, names: Sequence[str]) -> str:
    """Return what to write in place of a value, of which `text` says what it must be, or ""."""
    if isinstance(value, list):
        return _as_mapping(path, value) if _EXPECTED["model_type"] in text else ""
    if isinstance(value, int | float):
        if "less than 1" in text and 1 < value <= 100:
            return f"; it is a share: write {value / 100:g}"
        if re.match(r"must be (text|a list) \(", text) and not isinstance(value, bool):
            return "; write it in quotes"  # of lists those of texts: others take a number alone
        whole = "whole" in text and float(value).is_integer()
        return f"; write {value:.0f}" if whole else ""
    if not isinstance(value, str):
        return ""
    if re.fullmatch(r"[+-]?\d+,\d+", value) and "a number" in text:
        return f"; write {value.replace(',', '.')}, with a point"
    if re.fullmatch(r"\d+", value) and ("whole" in text or "list" in text):
        return f"; write {value}, without quotes"
    if re.fullmatch(r"[1-9]\d*([, ]+\d+)+", value) and "a list" in text:
        return f"; write [{', '.join(re.findall(r'[0-9]+', value))}]"
    if share := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value):
        return f"; write {float(share[1]) / 100:g}"
    first, *more = value.split() or [""]
    if more and first in names:
        return f"; write {{name: {first}, KEY: VALUE}}"
    if _EXPECTED["model_type"] in text:
        return "; write its keys below it, as key: value with a space after the colon"
    return ""


VALUE_EXAMPLES = {
    ("data", "split"): "{validation: 0.15, test: 0.15}",
    ("data", "features"): "{ratio: a / b}; all columns but the target and data.drop are read",
    ("model",): "{hidden: [64, 64]}",
    ("sweep", "space"): "{log: [0.0001, 0.1]}",
}
"""What a section may be, by the beginning of its path."""


def _as_mapping(path: KeyPath, value: list[Any]) -> str:
    """Return what to write in place of a list where there are keys, or ""."""
    if value and all(isinstance(one, dict) for one in value):
        return "; leave out the '- ' before its keys"
    right = next(
        (text for start, text in VALUE_EXAMPLES.items() if path[: len(start)] == start), ""
    )
    return f"; write {path[-1]}: {right}" if right else ""


def shown_value(value: Any) -> str:
    """Return a value as it may be quoted in a message."""
    if isinstance(value, dict):
        return "a mapping"
    if value is None:
        return "nothing"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(text: str) -> str:
    """Write a list of names without a conjunction, so that several texts can be joined by one."""
    return text.replace("' or '", "', '") if text.count("'") > 2 else text.removeprefix("one of ")


def _real_path(loc: tuple[int | str, ...], data: Any) -> KeyPath:
    """Drop the steps that pydantic adds for the members of a union."""
    path: list[int | str] = []
    for place, key in enumerate(loc, 1):
        inside = isinstance(data, dict) and key in data
        if (
            inside
            and not isinstance(data[key], dict | list)
            and set(loc[place : place + 1]) & {*data}
        ):
            continue  # the name of a member that is a key as well: the next step is beside it
        if inside or (isinstance(data, list) and isinstance(key, int) and key < len(data)):
            data = data[key]
            path.append(key)
    return tuple(path)


def _value_at(path: KeyPath, data: Any) -> Any:
    for key in path:
        if isinstance(data, dict | list):
            data = data[key]  # type: ignore[index]
    return data


def _unknown_key(path: KeyPath, data: Any, model: type[BaseModel]) -> str:
    *parent, key = path
    section = _value_at(tuple(parent), data)
    before = ["", *section][[*section].index(key)]
    options = _section_at(tuple(parent), data, model)
    valid = list(options.model_fields) if options else []
    if str(key).isdigit() and section[key] is None and isinstance(section.get(before), int):
        option = _field_at((*parent, before), data, model)
        if option and any(get_origin(one) is list for one in _parts(option)):
            return f"a list needs brackets: write {before}: [{section[before]}, {key}]"
        return f"a decimal comma ends the value: write {before}: {section[before]}.{key}"
    if isinstance(key, str) and ":" in key and key.partition(":")[0] in valid:
        return "a space is needed after the colon"
    elsewhere, known = path_of(key, model, path), f" (valid here: {', '.join(valid)})"
    if elsewhere and elsewhere != path:
        return f"unknown key - did you mean {dotted(elsewhere)!r}?"
    return f"unknown key{suggestion(key, valid) or known}"


def _is_switch(path: KeyPath, data: Any, model: type[BaseModel]) -> bool:
    """Return whether true and false are short forms of the section at `path`."""
    field = _field_at(path, data, model)
    shorts = [one for one in _parts(field) if isinstance(one, Short)] if field else []
    return any(one.schema == {"type": "boolean"} for one in shorts)


def path_of(key: int | str, model: type[BaseModel], near: KeyPath = ()) -> KeyPath | None:
    """Return the path of a key of that name, or None.

    Of several, it is the first of the section that the path `near` begins with, if there is one.
    """
    paths = [path for path in _paths(model) if path[-1] == key]
    return max(paths, key=lambda path: path[:1] == near[:1], default=None)


def near_path(key: str, model: type[BaseModel]) -> KeyPath | None:
    """Return the path of the key whose name is nearest, or None."""
    near = nearest(key, (str(path[-1]) for path in _paths(model)))
    return path_of(near, model) if near else None


def _field_at(path: KeyPath, data: Any, model: type[BaseModel]) -> FieldInfo | None:
    """Return the field of the key at `path`, or None."""
    section = _section_at(path[:-1], data, model)
    return section.model_fields.get(str(path[-1])) if section and path else None


def _section_at(path: KeyPath, data: Any, model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section at `path`, of a named option that of its name, or None."""
    section: type[BaseModel] | None = model
    keys = iter(path)
    for key in keys:
        field = section.model_fields.get(str(key)) if section else None
        if field is None:
            return None
        data = data[key]
        if get_origin(field.annotation) is dict:  # a section for each name
            kind, name = get_args(field.annotation)[1], next(keys, None)
            if name is None or not issubclass(kind, BaseModel):
                return None
            data, section = data[name], kind
            continue
        whole = next((one.complete(data) for one in _parts(field) if isinstance(one, Named)), None)
        name = whole.get("name") if isinstance(whole, dict) else None
        sections = [*_members(field)]
        names = [getattr(s.model_fields.get("name"), "default", None) for s in sections]
        place = names.index(name) if name in names else 0
        section = sections[place] if sections else None
    return section


def _members(field: FieldInfo) -> Iterator[type[BaseModel]]:
    """Yield the sections that a field may have."""
    for one in _parts(field):
        if isinstance(one, Named):
            yield from one.sections.values()
        elif isinstance(one, type) and issubclass(one, BaseModel) and one is not Section:
            yield one


def _parts(field: FieldInfo) -> Iterator[Any]:
    """Yield the types and the annotations of a field."""
    yield from field.metadata
    open_types = [field.annotation]
    for one in open_types:
        if get_origin(one) in (Union, UnionType, Annotated):
            open_types += get_args(one)
        yield one


def _paths(model: type[BaseModel], start: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the key paths of all options below `model`."""
    for name, field in model.model_fields.items():
        yield (*start, name)
        for member in _members(field):
            yield from _paths(member, (*start, name))
