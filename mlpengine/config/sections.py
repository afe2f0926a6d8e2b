"""Convert settings to config sections of plain values, and fill missing keys."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

from mlpengine.config.schema import TOP_SECTIONS
from mlpengine.settings import RunSettings
from mlpengine.settings.base import options_of
from mlpengine.settings.families import FAMILIES, keys_of
from mlpengine.settings.network import OWN_OPTIONS, options_for


def plain(value: Any) -> Any:
    """Return settings, or the value of an option, as plain values for a config."""
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if hasattr(value, "__pydantic_fields__"):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    name = {"name": value.name} if isinstance(value, FAMILIES) else {}
    if not name and not is_dataclass(value):
        return value
    return name | {one.key: plain(getattr(value, n)) for n, one in keys_of(type(value))}


SHOWN_DEFAULTS = {
    *("hidden", "activation", "lr", "weight_decay", "epochs", "batch_size", "patience"),
}
"""Options that recipes write even with their default value."""


def written(settings: Any) -> dict[str, Any]:
    """Return settings as a person would write them in a config: without defaults."""
    values: dict[str, Any] = {"name": settings.name} if isinstance(settings, FAMILIES) else {}
    for name, one in options_of(type(settings)).items():
        value: Any = getattr(settings, name)
        if one.given or (value == one.default and name not in SHOWN_DEFAULTS):
            continue
        if isinstance(value, tuple) and len(value) == 1 == len(one.default):
            value = value[0]
        if is_dataclass(value) or isinstance(value, FAMILIES):
            values[one.key] = written(value)
        else:
            values[one.key] = plain(value)
    return values


def sections_of(run: RunSettings) -> dict[str, Any]:
    """Return the config sections of a run, without defaults."""
    training = written(run.training)
    sections = {
        "data": written(run.features),
        "model": written(run.network),
        **{name: training.pop(name) for name in TOP_SECTIONS if name in training},
        "training": training,
    }
    return {name: options for name, options in sections.items() if options}


def fill_missing(given: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the keys of `more` that `given` lacks, at every depth.

    If a mapping has another name in `given`, such as another optimizer, it gets no keys of `more`.
    A network gets only the options that it accepts.
    """
    network = given.get("network")
    if isinstance(network, str) and network in OWN_OPTIONS:
        more = options_for(network, more)
    for key, value in more.items():
        if key not in given:
            given[key] = deepcopy(value)
            continue
        mine = given[key]
        if not isinstance(value, dict):
            continue
        if isinstance(mine, str) and mine == value.get("name"):
            given[key] = mine = {"name": mine}
        if isinstance(mine, dict) and mine.get("name", value.get("name")) == value.get("name"):
            fill_missing(mine, value)
