"""Results of a training: models, tasks, metrics, calibration, explanations."""

from typing import TYPE_CHECKING

from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.models.comparison import Comparison, Lead
    from mlpengine.models.drift_check import DriftCheck
    from mlpengine.models.explanation import Explanation
    from mlpengine.models.metrics import metric
    from mlpengine.models.model import Model
    from mlpengine.models.task import (
        BinaryClassification,
        Classification,
        LossOnly,
        MultiLabel,
        Regression,
        Split,
        Task,
    )

__all__ = [
    "BinaryClassification",
    "Classification",
    "Comparison",
    "DriftCheck",
    "Explanation",
    "Lead",
    "LossOnly",
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
        "comparison": ("Comparison", "Lead"),
        "drift_check": ("DriftCheck",),
        "explanation": ("Explanation",),
        "metrics": ("metric",),
        "model": ("Model",),
        "task": (
            "BinaryClassification",
            "Classification",
            "LossOnly",
            "MultiLabel",
            "Regression",
            "Split",
            "Task",
        ),
    },
)
