"""What a training leaves: models, tasks, metrics, calibration, explanations."""

from typing import TYPE_CHECKING

from mlpengine.common.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.models.metrics import metric
    from mlpengine.models.model import Model
    from mlpengine.models.task import (
        BinaryClassification,
        Classification,
        MultiLabel,
        Regression,
        Split,
        Task,
    )

__all__ = [
    "BinaryClassification",
    "Classification",
    "Model",
    "MultiLabel",
    "Regression",
    "Split",
    "Task",
    "metric",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "metrics": ("metric",),
        "model": ("Model",),
        "task": (
            "BinaryClassification",
            "Classification",
            "MultiLabel",
            "Regression",
            "Split",
            "Task",
        ),
    },
)
