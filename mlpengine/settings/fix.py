"""Fixes.  A verdict is a problem that diagnostics found; its fix sets one option or several."""

import json
import shlex
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from typing import Any

from mlpengine.core.errors import UsageError
from mlpengine.ops import Loss
from mlpengine.optim import OPTIMIZERS, Optimizer, Schedule
from mlpengine.settings.base import options_of
from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.split import SplitSettings
from mlpengine.settings.training import TrainingSettings

SECTIONS: dict[type, str] = {
    FeatureSettings: "data",
    SplitSettings: "data.split",
    NetworkSettings: "model",
    Loss: "loss",
    Optimizer: "optimizer",
    Schedule: "schedule",
    TrainingSettings: "training",
}
"""Section of a config for each class of options."""


@dataclass(frozen=True)
class Fix:
    """A value for the option `name` of the class `of`; the value is not checked here.

    Raises: UsageError if the class has no such option.
    """

    of: type
    name: str
    value: Any

    @classmethod
    def read(cls, key: str, value: Any) -> "Fix":
        """Return the fix for a `key` of a config.

        Raises: UsageError if no option has this key.
        """
        section, _, name = key.rpartition(".")
        kinds = (kind for kind, text in SECTIONS.items() if not section or text == section)
        for kind in (*kinds, *(OPTIMIZERS.values() if section == "optimizer" else ())):
            if name in options_of(kind):
                return cls(kind, name, value)
        raise UsageError(f"{key}: there is no such option")

    def __post_init__(self) -> None:
        if self.name not in options_of(self.of):
            raise UsageError(f"{self.of.__name__}: {self.name}: there is no such option")

    @property
    def key(self) -> str:
        """Key of the option in a config, such as ``training.clip_norm``."""
        if self.name in SECTIONS.values():  # a loss, an optimizer or a schedule as a whole
            return self.name
        section = next(text for kind, text in SECTIONS.items() if issubclass(self.of, kind))
        return f"{section}.{self.name}"

    @property
    def plain(self) -> Any:
        """The value as plain data for a config; a settings object becomes true."""
        if is_dataclass(self.value):
            return True
        return [*self.value] if isinstance(self.value, tuple) else self.value


def by_key(fixes: Iterable[Fix]) -> dict[str, Any]:
    """Return the values of fixes by config key."""
    return {fix.key: fix.plain for fix in fixes}


def with_earlier(key: str, earlier: Any, value: Any) -> Any:
    """Return a fix's value for `key`; lists and conditions are combined with the earlier value."""
    if key in ("data.drop", "data.na_values"):
        return [*dict.fromkeys([*([earlier] if isinstance(earlier, str) else earlier), *value])]
    return f"{earlier} and {value}" if key == "data.where" else value


def put(sections: dict[str, Any], key: str, value: Any) -> None:
    """Set a key such as ``training.clip_norm`` in the sections of a config."""
    *above, last = key.split(".")
    for name in above:
        below = sections.get(name)
        sections[name] = {"name": below} if isinstance(below, str) else below or {}
        sections = sections[name]
    sections[last] = value


def command_text(settings: Mapping[str, Any]) -> str:
    """Return settings as options of a command, such as ``--set optimizer.lr=0.1``."""
    texts = {  # a command reads values as YAML
        k: v if isinstance(v, str) and v.isidentifier() else json.dumps(v, default=str)
        for k, v in settings.items()
    }
    return " ".join(f"--set {shlex.quote(f'{key}={text}')}" for key, text in texts.items())


def keywords(
    settings: Mapping[str, Any],
    parameters: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return settings as keywords of `mlpengine.fit`, such as ``{'optimizer': {'lr': 0.1}}``.

    The settings replace or extend values of the keywords `given` (see `with_earlier`).
    `parameters` maps config keys to an estimator's parameters.  Then the keywords are for
    `set_params`, and keys without a parameter of their own go into the parameter ``settings``.
    """
    sections: dict[str, Any] = deepcopy(dict(given or {}))
    own = {f"data.{name}": value for name, value in sections.get("data", {}).items()}
    own |= sections.get("settings", {})
    for key, value in settings.items():
        if earlier := own.get(key):
            value = with_earlier(key, f"({earlier})" if key == "data.where" else earlier, value)
        if parameters is None:
            put(sections, key, value)
        elif key in parameters:
            sections[parameters[key]] = value
            sections.get("settings", {}).pop(key, None)
        else:
            sections.setdefault("settings", {})[key] = value
    return sections


def call_text(settings: Mapping[str, Any], parameters: Mapping[str, str] | None = None) -> str:
    """Return `keywords` as a call, such as ``fit(..., optimizer={'lr': 0.1})``."""
    given = keywords(settings, parameters)
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"fit(..., {arguments})" if parameters is None else f"set_params({arguments})"


def loop_text(settings: Mapping[str, Any]) -> str:
    """Return settings for a training loop in Python, such as ``TrainingStep(..., clip_norm=1.0)``.

    Settings that such a loop does not have are left out.
    """
    calls = []
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        if section == "optimizer" and name != "name":
            calls.append(f"optimizer(..., {name}={value!r})")
        elif key == "training.early_stopping":
            calls.append("Loop(..., early_stopping=EarlyStopping())")
        elif key in _CLASSES:
            calls.append(f"{_CLASSES[key]}(..., {name}={value!r})")
    return "; ".join(calls)


_CLASSES = {
    "model.activation": "Mlp",
    "model.dropout": "Mlp",
    "training.batch_size": "TrainingStep",
    "training.clip_norm": "TrainingStep",
    "training.epochs": "Loop",
}
"""The class that takes a setting as a parameter, by config key."""
