"""A training step: its buffers, its backends, shards, ranks and threads."""

from typing import TYPE_CHECKING

from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.step.ranks import Ranks
    from mlpengine.step.step import TrainingStep

__all__ = [
    "Ranks",
    "TrainingStep",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ranks": ("Ranks",),
        "step": ("TrainingStep",),
    },
)
