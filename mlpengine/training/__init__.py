"""Training: the trainer, loops, callbacks, checkpoints, run directories."""

from typing import TYPE_CHECKING

from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.training.diagnose import LoopDiagnostics
    from mlpengine.training.learner import SkipBudget
    from mlpengine.training.loading import load
    from mlpengine.training.loop import Callback, Loop
    from mlpengine.training.online import OnlineClassifier, OnlineRegressor
    from mlpengine.training.trainer import Trainer

__all__ = [
    "Callback",
    "Loop",
    "LoopDiagnostics",
    "OnlineClassifier",
    "OnlineRegressor",
    "SkipBudget",
    "Trainer",
    "load",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "diagnose": ("LoopDiagnostics",),
        "loading": ("load",),
        "learner": ("SkipBudget",),
        "loop": ("Callback", "Loop"),
        "online": ("OnlineClassifier", "OnlineRegressor"),
        "trainer": ("Trainer",),
    },
)
