"""The fix of a verdict: a value for an option, and the option's key in configs."""

from collections.abc import Iterable
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
    """A value for the option `name` of the class `of`.

    The config checks the value.

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
        """The value as a config writes it; true for default settings."""
        if is_dataclass(self.value):
            return True
        return [*self.value] if isinstance(self.value, tuple) else self.value


def by_key(fixes: Iterable[Fix]) -> dict[str, Any]:
    """Return the values by config keys."""
    return {fix.key: fix.plain for fix in fixes}
