"""Every option has one default, one set of limits and one meaning, whatever shows it."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin

import click
import pytest
from pydantic import TypeAdapter

from mlpengine import Mlp, TrainingStep
from mlpengine.config import json_schema, load_config
from mlpengine.config.problems import key_paths
from mlpengine.config.reader import dotted
from mlpengine.config.schema import Config, reader
from mlpengine.config.sections import sections_of
from mlpengine.config.space import FIXED, MEASURES_LOSS
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits
from mlpengine.data.features.options import Options
from mlpengine.nn import InputLayer
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
from mlpengine.settings.families import LOSS, OPTIMIZER, SCHEDULE, model_of
from mlpengine.settings.fix import SECTIONS
from mlpengine.settings.recipes import PRESETS, recipe
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Loop
from mlpengine_cli.main import COMMANDS, group

SETTINGS = [
    *(FeatureSettings, SplitSettings, NetworkSettings, TrainingSettings, DiagnosticsSettings),
    *(EarlyStopping, InputLayer, Group),
]
FAMILIES = (LOSS, OPTIMIZER, SCHEDULE)
MEMBERS = [one.of(kind) for one in FAMILIES for kind in one.registry.values()]
DECLARING = [*SETTINGS, *MEMBERS]


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


def differing(
    of: Any, kinds: tuple[type, ...], names: Callable[[str], str] = str
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the parameters of a class whose default is not that of the option of their name."""
    for parameter in signature(of).parameters.values():
        known = [o for kind in kinds if (o := options_of(kind).get(names(parameter.name)))]
        if known and parameter.default is not Parameter.empty:
            default, own = known[0].default, parameter.default
            default = default[0] if isinstance(default, tuple) and len(default) == 1 else default
            if repr(own) == "<factory>":  # of a dataclass that inherits the option
                continue
            if own not in (None, default) and (of.__name__, parameter.name) not in OTHERWISE:
                yield of.__name__, parameter.name, own, default


def own_limits(kind: Any) -> dict[str, float]:
    """Return the limits of a number as a schema calls them, from its annotation."""
    found: dict[str, float] = {}
    if get_origin(kind) is Annotated:
        for limit in get_args(kind)[1:]:
            if isinstance(limit, Limits):
                bounds = {
                    "minimum": limit.at_least,
                    "exclusiveMinimum": limit.above,
                    "maximum": limit.at_most,
                    "exclusiveMaximum": limit.below,
                }
                found |= {name: bound for name, bound in bounds.items() if bound is not None}
        found |= own_limits(get_args(kind)[0])
    for one in get_args(kind) if get_origin(kind) is not Annotated else ():
        found |= own_limits(one)
    return found


def shown_limits(entry: Any) -> dict[str, float]:
    """Return the limits in an entry of a schema, at any depth."""
    names = "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"
    found: dict[str, float] = {}
    if isinstance(entry, dict):
        found |= {name: entry[name] for name in names if name in entry}
        for name, one in entry.items():
            if name not in ("default", *names):
                found |= shown_limits(one)
    for one in entry if isinstance(entry, list) else ():
        found |= shown_limits(one)
    return found


@pytest.mark.parametrize("kind", DECLARING, ids=lambda kind: kind.__name__)
def test_each_option_has_a_meaning_and_a_default_that_it_takes(kind):
    for name, option in options_of(kind).items():
        assert option.description.endswith((".", "7.", "5")), f"{name}: {option.description!r}"
        if option.default is not MISSING:
            TypeAdapter(option.type).validate_python(option.default)


def test_named_sections_of_configs_show_the_options_of_their_classes():
    schema = json_schema()
    sections = {**schema["$defs"], "Config": schema}
    shown = 0
    for family in FAMILIES:
        for name in {*family.names} - {family.none}:
            kind = family.of(family.registry[name])
            entries = dict(sections[family.member({"name": name}).__name__]["properties"])
            assert entries.pop("name")["const"] == name
            options = {one.key: one for one in options_of(kind).values() if not one.given}
            assert entries.keys() == options.keys()
            for key, one in options.items():
                assert one.description == entries[key]["description"]
                assert shown_limits(entries[key]).keys() >= own_limits(one.type).keys()
            shown += len(options)
    assert shown > 20


def test_the_defaults_of_a_config_are_those_of_the_settings():
    config = reader().validate_python({"data": {"source": "digits"}})
    run = config.settings
    assert config.validation_share == 0.15
    for name in ("network", "training", "diagnostics", "seed"):
        assert getattr(run, name) == getattr(RunSettings(), name)
    for name in options_of(FeatureSettings):
        assert getattr(run.features, name) == getattr(FeatureSettings(), name)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_classes_of_python_have_the_defaults_of_the_options(kind):
    assert not [*differing(kind, CLASSES[kind])]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_recipes_are_settings_that_a_config_gives_back(preset, task, tmp_path):
    for rows in (10, 2_000, 50_000, 1_000_000):
        run = recipe(preset, task, rows)
        sections = sections_of(run)
        sections["data"] = {"source": "digits", "task": task, **sections.get("data", {})}
        given = reader().validate_python(sections).settings
        assert given.network == run.network
        assert given.training == run.training
        assert given.features.standardize == run.features.standardize


def keys(model: Any = Config, start: str = "") -> Iterator[str]:
    yield from map(dotted, key_paths(model))


def test_sweeps_and_fixes_name_keys_that_there_are():
    known = set(keys())
    assert {*FIXED, *MEASURES_LOSS} <= known
    for kind, section in SECTIONS.items():
        assert section in known
        for name, option in options_of(kind).items():
            if is_dataclass(kind) and fields(kind) and not option.given and name not in known:
                assert f"{section}.{name}" in known or name in ("loss", "optimizer", "schedule")


def test_options_of_commands_have_no_default_of_their_own():
    shared = {name for kind in SETTINGS for name in options_of(kind)}
    with click.Context(group) as context:
        for name in COMMANDS:
            command = group.get_command(context, name)
            for option in command.params:
                if option.name in shared - {"target", "drop", "task", "features", "seed"}:
                    given = option.default in (None, False, ()) or "UNSET" in repr(option.default)
                    assert given, f"{name}: {option.name}"


# The checks above can fail.


def test_a_second_default_is_noticed():
    class Step:
        def __init__(self, epochs: int = 7, batch_size: int = 32) -> None: ...

    assert [*differing(Step, (TrainingSettings,))] == [("Step", "epochs", 7, 100)]


def test_an_option_without_a_meaning_is_noticed():
    @dataclass(frozen=True)
    class Silent:
        """Nothing is said of one option."""

        told: Annotated[int, "What it is."] = 1
        untold: int = 1

    assert [o.name for o in options_of(Silent).values() if not o.description] == ["untold"]


def test_values_beyond_limits_are_refused_by_class_and_config_alike(tmp_path):
    path = tmp_path / "c.yaml"
    refused = 0
    for family in FAMILIES:
        for name, kind in family.registry.items():
            of = family.of(kind)
            for option in options_of(of).values():
                limits = own_limits(option.type)
                low = limits.get("minimum", limits.get("exclusiveMinimum"))
                if low is None or isinstance(option.default, tuple):
                    continue
                with pytest.raises(UsageError, match=option.name):
                    of(**{option.name: low - 1})
                if not option.given:
                    with pytest.raises(ValueError, match="greater than"):
                        model_of(of, name).model_validate({"name": name, option.key: low - 1})
                refused += 1
    assert refused > 30
    path.write_text("data: {source: digits}\ntraining: {epochs: 0}\n")
    with pytest.raises(UsageError, match=r"training\.epochs: must be at least 1"):
        load_config(path)
