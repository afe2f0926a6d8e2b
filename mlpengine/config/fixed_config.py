"""The fixes of verdicts as overrides of a config, and as a new config with comments."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlpengine.config.build import LoadedData
from mlpengine.config.load import ConfigFile, Override, load_config
from mlpengine.config.schema import reader
from mlpengine.config.sections import plain, written
from mlpengine.config.writer import with_short_lists, yaml_text
from mlpengine.diagnostics import Verdict, combined_fix
from mlpengine.diagnostics.verdict import CORRECTIONS, NOTE
from mlpengine.settings.fix import by_key
from mlpengine.settings.recipes import recipe
from mlpengine.settings.training import SMOOTH


def fix_overrides(verdicts: Sequence[Verdict]) -> list[Override]:
    """Return the settings of the verdicts' fixes as overrides of a config."""
    return as_overrides({key: value for key, (value, _) in combined_fix(verdicts).items()})


def as_overrides(settings: Mapping[str, Any]) -> list[Override]:
    """Return settings by dotted key as overrides of a config."""
    return [
        Override(f"fix {key}", tuple(key.split(".")), json.dumps(value))
        for key, value in settings.items()
    ]


def corrections(verdicts: Sequence[Verdict], file: ConfigFile) -> dict[str, Any]:
    """Return the settings of the verdicts' fixes that correct the data, by dotted key.

    If the task becomes classification, smooth members are removed: they predict only numbers.
    """
    settings = {k: value for k, (value, _) in combined_fix(verdicts).items() if k in CORRECTIONS}
    members = file.config.training.members
    if settings.get("data.task") == "classification" and SMOOTH in members:
        others = [one for one in members if one != SMOOTH]
        settings["training.members"] = others if len(others) > 1 else []
    return settings


def repairs(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return settings to try in this order: all fixes of warnings together, then each fix alone.

    Corrections of the data are left out.
    """
    warnings = [one for one in verdicts if one.severity != NOTE]
    every = {key: value for key, (value, _) in combined_fix(warnings).items()}
    each = [by_key(fix) for one in warnings for fix in (one.fix, *one.others)]
    tried: list[dict[str, Any]] = []
    for settings in (every, *each):
        one = {key: value for key, value in settings.items() if key not in CORRECTIONS}
        if one and one not in tried:
            tried.append(one)
    return tried


PROPOSED = (
    *("data.standardize", "data.standardize_target", "data.clip", "model.activation"),
    *("model.dropout", "model.initializer", "optimizer", "schedule", "training.epochs"),
    *("training.batch_size", "training.clip_norm", "training.early_stopping", "training.freeze"),
)
"""Settings that `proposed_settings` replaces, all together."""


def proposed_settings(data: LoadedData) -> dict[str, Any]:
    """Return the values of ``mlpengine init`` for `PROPOSED` settings, where the config differs."""
    rows = sum(data.tables.rows.values())
    run = recipe(str(data.tables.preprocessor.task), rows)
    training = plain(run.training)
    sections = {"data": plain(run.features), "model": plain(run.network), "training": training}
    sections |= {name: training[name] for name in ("optimizer", "schedule")}
    given, settings = data.file.plain(), {}
    for key in PROPOSED:
        value = _value_at(sections, key)
        if value != _value_at(given, key):
            whole = getattr(run.training, key, None)  # without the defaults of an optimizer
            settings[key] = value if whole is None else written(whole)
    return settings


def fixed_config(path: Path, verdicts: Sequence[Verdict]) -> str:
    """Return a commented config file with the settings of the verdicts' fixes.

    Default settings are left out, and paths are absolute.  Verdicts without settings are listed
    above the config.
    """
    file = load_config(path)
    fixes = [*fix_overrides(verdicts), *as_overrides(corrections(verdicts, file))]
    changed = {fix.path for fix in fixes}
    before, after = file.plain(), load_config(path, fixes).plain()
    default = plain(reader().validate_python({"data": {"source": ""}}))
    tree = with_short_lists(_differing(after, default, changed))
    for key, (_, verdict) in combined_fix(verdicts).items():
        *above, last = key.split(".")
        section = tree
        for name in above:
            section = section[name]
        was = json.dumps(_value_at(before, key))
        section.yaml_set_comment_before_after_key(
            last, before=f"{verdict} (was {was})", indent=2 * len(above)
        )
    others = [f"{v} (no setting: {v.no_fix})" for v in verdicts if not v.fix]
    if others:
        tree.yaml_set_start_comment("\n".join(others))
    return yaml_text(tree)


def _differing(
    tree: Mapping[str, Any], default: Any, kept: set[tuple[str, ...]], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the settings that differ from their defaults, and the settings at the `kept` paths."""
    if not isinstance(default, Mapping) or tree.get("name") != default.get("name"):
        default = {} if path else default
    shown = {}
    for key, value in tree.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            below = _differing(value, default.get(key), kept, here)
            if below or not isinstance(default.get(key), Mapping):
                shown[key] = below
        elif key not in default or value != default[key] or here in kept or key == "name":
            shown[key] = value
    return {} if list(shown) == ["name"] and default.get("name") == shown["name"] else shown


def _value_at(tree: Any, key: str) -> Any:
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
