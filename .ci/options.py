"""Check that each option has one default, one set of limits and one meaning, whatever shows it.

``python .ci/options.py`` compares the settings with the schema of configs, the classes of Python,
the commands, and the keys that sweeps and fixes name; it exits with 1 for a difference.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin

import click
from pydantic import TypeAdapter, ValidationError

from mlpengine import Mlp, TrainingStep
from mlpengine.config import json_schema
from mlpengine.config.problems import key_paths
from mlpengine.config.reader import dotted
from mlpengine.config.schema import Config, reader
from mlpengine.config.space import FIXED, MEASURES_LOSS
from mlpengine.core.fields import Limits
from mlpengine.data.features.options import Options
from mlpengine.optim import Group
from mlpengine.settings import (
    DiagnosticsSettings,
    EarlyStopping,
    FeatureSettings,
    NetworkSettings,
    RunSettings,
    SplitSettings,
    TrainingSettings,
)
from mlpengine.settings.base import options_of
from mlpengine.settings.families import LOSS, OPTIMIZER, SCHEDULE
from mlpengine.settings.fix import SECTIONS
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Loop
from mlpengine_cli.main import COMMANDS, group

SETTINGS = [
    *(FeatureSettings, SplitSettings, NetworkSettings, TrainingSettings, DiagnosticsSettings),
    *(EarlyStopping, Group),
]
FAMILIES = (LOSS, OPTIMIZER, SCHEDULE)
MEMBERS = [one.of(kind) for one in FAMILIES for kind in one.registry.values()]

OTHERWISE = {
    ("Mlp", "dtype"): "the type of the numbers that it is given",
    ("TrainingStep", "threads"): "those of one step, which shares the machine with others",
    ("TrainingStep", "backend"): "a step of one's own",
    ("Loop", "threads"): "those of several networks, which share the machine with others",
    ("LoopDiagnostics", "every"): "None is auto",
}
"""Parameters whose default is not that of the option of their name, and why."""

CLASSES: dict[Any, tuple[type, ...]] = {
    Mlp: (NetworkSettings, TrainingSettings, RunSettings),
    TrainingStep: (TrainingSettings,),
    Loop: (TrainingSettings,),
    LoopDiagnostics: (DiagnosticsSettings,),
    Options: (FeatureSettings,),
}
"""Classes of Python whose parameters are options, and the settings that declare these."""

OWN = {"target", "drop", "task", "features", "seed"}
"""Options of commands that have the name of one in the config, and other defaults."""


def differing(of: Any, kinds: tuple[type, ...]) -> Iterator[str]:
    """Yield the parameters of a class whose default is not that of the option of their name."""
    for parameter in signature(of).parameters.values():
        known = [o for kind in kinds if (o := options_of(kind).get(parameter.name))]
        if known and parameter.default is not Parameter.empty:
            default, own = known[0].default, parameter.default
            default = default[0] if isinstance(default, tuple) and len(default) == 1 else default
            if repr(own) == "<factory>":  # of a dataclass that inherits the option
                continue
            if own not in (None, default) and (of.__name__, parameter.name) not in OTHERWISE:
                yield f"{of.__name__}: {parameter.name} is {own}, and {default} in settings"


def unclear(kind: type) -> Iterator[str]:
    """Yield the options of a class without a meaning, or with a default that they do not take."""
    for name, option in options_of(kind).items():
        if not option.description.endswith((".", "7.", "5")):
            yield f"{kind.__name__}.{name}: has no meaning that ends as a sentence"
        if option.default is not MISSING:
            try:
                TypeAdapter(option.type).validate_python(option.default)
            except ValidationError as error:
                yield f"{kind.__name__}.{name}: does not take its default: {error}"


def own_limits(kind: Any) -> set[str]:
    """Return the kinds of limits of a number as a schema calls them, from its annotation."""
    if get_origin(kind) is not Annotated:
        return {name for one in get_args(kind) for name in own_limits(one)}
    found = own_limits(get_args(kind)[0])
    for limit in get_args(kind)[1:]:
        if isinstance(limit, Limits):
            bounds = {
                "minimum": limit.at_least,
                "exclusiveMinimum": limit.above,
                "maximum": limit.at_most,
                "exclusiveMaximum": limit.below,
            }
            found |= {name for name, bound in bounds.items() if bound is not None}
    return found


def shown_limits(entry: Any) -> set[str]:
    """Return the kinds of limits in an entry of a schema, at any depth."""
    names = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}
    parts: list[Any] = entry if isinstance(entry, list) else []
    if isinstance(entry, dict):
        parts = [one for name, one in entry.items() if name not in ("default", *names)]
    found = names & entry.keys() if isinstance(entry, dict) else set()
    return found.union(*map(shown_limits, parts))


def meanings() -> Iterator[str]:
    """Yield options without a meaning, or with a default that they do not take."""
    for kind in (*SETTINGS, *MEMBERS):
        yield from unclear(kind)
    schema = json_schema()
    for section in (schema, *schema["$defs"].values()):
        properties = section["properties"].items()
        yield from (
            f"schema: {n} has no meaning" for n, one in properties if "description" not in one
        )


def defaults() -> Iterator[str]:
    """Yield defaults of classes and of the config that are not those of the settings."""
    for kind, declaring in CLASSES.items():
        yield from differing(kind, declaring)
    config = reader().validate_python({"data": {"source": "digits"}})
    run, plain = config.settings, RunSettings()
    names = ("network", "training", "diagnostics", "seed")
    pairs = [(name, getattr(run, name), getattr(plain, name)) for name in names]
    features = FeatureSettings()
    pairs += [
        (n, getattr(run.features, n), getattr(features, n)) for n in options_of(type(features))
    ]
    yield from (f"config: {n} is {a}, and {b} in settings" for n, a, b in pairs if a != b)


def sections() -> Iterator[str]:
    """Yield what named sections of configs show otherwise than the options of their classes."""
    schema = json_schema()
    named = {**schema["$defs"], "Config": schema}
    for family in FAMILIES:
        for name in {*family.names} - {family.none}:
            entries = dict(named[family.member({"name": name}).__name__]["properties"])
            entries.pop("name")
            kind = family.of(family.registry[name])
            options = {one.key: one for one in options_of(kind).values() if not one.given}
            if different := entries.keys() ^ options.keys():
                yield f"{name}: {different} must be in the schema and the class"
            for key in entries.keys() & options.keys():
                one, entry = options[key], entries[key]
                if one.description != entry["description"]:
                    yield f"{name}.{key}: the schema says {entry['description']!r}"
                if missing := own_limits(one.type) - shown_limits(entry):
                    yield f"{name}.{key}: the schema lacks {missing}"


def keys() -> Iterator[str]:
    """Yield keys that sweeps or fixes name, and no config has."""
    known = {*map(dotted, key_paths(Config))}
    yield from (f"sweeps: there is no {name}" for name in {*FIXED, *MEASURES_LOSS} - known)
    for kind, section in SECTIONS.items():
        names = options_of(kind).items() if is_dataclass(kind) and fields(kind) else ()
        own = {name for name, option in names if not option.given} - known
        own -= {"loss", "optimizer", "schedule"}
        yield from (
            f"fixes: there is no {key}"
            for key in {section, *(f"{section}.{name}" for name in own)} - known
        )


def commands() -> Iterator[str]:
    """Yield options of commands that have a default of their own."""
    shared = {name for kind in SETTINGS for name in options_of(kind)} - OWN
    with click.Context(group) as context:
        for name in COMMANDS:
            command = group.get_command(context, name)
            for option in command.params if command else ():
                given = option.default not in (None, False, ())
                if option.name in shared and given and "UNSET" not in repr(option.default):
                    yield f"{name}: {option.name} has the default {option.default!r}"


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (meanings, defaults, sections, keys, commands)

if __name__ == "__main__":
    problems = [problem for check in CHECKS for problem in check()]
    print(*problems, sep="\n")
    sys.exit(bool(problems))
