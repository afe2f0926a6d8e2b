"""A training: the trainer, loops, callbacks, checkpoints, run directories."""

from typing import TYPE_CHECKING

from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.training.callback import Callback, SkipBudget
    from mlpengine.training.diagnose import LoopDiagnostics
    from mlpengine.training.loading import load
    from mlpengine.training.loop import Loop
    from mlpengine.training.trainer import Trainer

__all__ = [
    "Callback",
    "Loop",
    "LoopDiagnostics",
    "SkipBudget",
    "Trainer",
    "load",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "callback": ("Callback", "SkipBudget"),
        "diagnose": ("LoopDiagnostics",),
        "loading": ("load",),
        "loop": ("Loop",),
        "trainer": ("Trainer",),
    },
)
