"""Training: the bound step, the loop over epochs, tasks and metrics, models, populations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlpengine.train.loading import load
    from mlpengine.train.loop import Callback, Loop
    from mlpengine.train.metrics import metric
    from mlpengine.train.model import Model
    from mlpengine.train.population import Population, PopulationStep
    from mlpengine.train.step import TrainingStep
    from mlpengine.train.task import (
        BinaryClassification,
        Classification,
        MultiLabel,
        Regression,
        Split,
        Task,
    )

__all__ = [
    "BinaryClassification",
    "Callback",
    "Classification",
    "Loop",
    "Model",
    "MultiLabel",
    "Population",
    "PopulationStep",
    "Regression",
    "Split",
    "Task",
    "TrainingStep",
    "load",
    "metric",
]

_PLACES = {
    "loop": ("Callback", "Loop"),
    "metrics": ("metric",),
    "loading": ("load",),
    "model": ("Model",),
    "population": ("Population", "PopulationStep"),
    "step": ("TrainingStep",),
}
"""The modules of the names above, which are imported when one is first used: else `task`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        place = next((place for place, names in _PLACES.items() if name in names), "task")
        value = getattr(import_module(f"{__name__}.{place}"), name)
        return globals().setdefault(name, value)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
