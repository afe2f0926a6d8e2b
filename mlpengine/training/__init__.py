"""A training: the trainer, loops, callbacks, checkpoints, run directories."""

from typing import TYPE_CHECKING

from mlpengine.common.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.training.loading import load
    from mlpengine.training.loop import Callback, Loop
    from mlpengine.training.trainer import Trainer

__all__ = [
    "Callback",
    "Loop",
    "Trainer",
    "load",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "loading": ("load",),
        "loop": (
            "Callback",
            "Loop",
        ),
        "trainer": ("Trainer",),
    },
)
