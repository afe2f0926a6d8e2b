"""Settings of a run by the keys of configs, such as ``training.clip_norm``."""

from dataclasses import replace
from typing import Any

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import suggestion
from mlpengine.settings.base import fitting, options_of, refusals
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.run import RunSettings
from mlpengine.settings.training import EarlyStopping, TrainingSettings

PLACES = {
    "data": ("features",),
    "model": ("network",),
    "training": ("training",),
    "loss": ("training", "loss"),
    "optimizer": ("training", "optimizer"),
    "schedule": ("training", "schedule"),
}
"""The places of the sections of a config in `RunSettings`."""


def with_setting(run: RunSettings, key: str, value: Any, where: str) -> RunSettings:
    """Return the settings of a run with the value of a key.

    Raises: UsageError, led by `where`, for a key that there is not, or a value that it refuses.
    """
    section, *names = key.split(".")
    if section not in PLACES:
        known = ", ".join(PLACES)
        raise UsageError(f"{where}: must begin with one of {known}{suggestion(section, PLACES)}")
    path = [*PLACES[section], *names]
    if path[-1] == "name":  # another class, with its own defaults
        path = path[:-1]
    replaced: RunSettings = _replaced(run, path, value, where)
    return replaced


def _replaced(owner: Any, path: list[str], value: Any, where: str) -> Any:
    """Return settings with a value at a path of names."""
    options = {option.key: (name, option) for name, option in options_of(type(owner)).items()}
    if not path or path[0] not in options:
        name = path[0] if path else ""
        raise UsageError(
            f"{where}: there is no such key (valid here: {', '.join(options)})"
            f"{suggestion(name, options)}"
        )
    name, option = options[path[0]]
    if len(path) == 1:
        value = fitting(where, option.type, value)
        if isinstance(owner, NetworkSettings) and name == "network":
            return owner.of(value)
    else:
        inner = getattr(owner, name)
        if inner is None and isinstance(owner, TrainingSettings) and name == "early_stopping":
            inner = EarlyStopping()
        value = _replaced(inner, path[1:], value, where)
    with refusals(where):
        return replace(owner, **{name: value})
