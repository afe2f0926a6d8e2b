"""Optimizers, learning-rate schedules and gradient clipping over flat vectors."""

from mlpengine.optim._groups import Group
from mlpengine.optim._optimizer import Optimizer
from mlpengine.optim.adam import Adam, AdamW, NAdam
from mlpengine.optim.clipping import AdaptiveClip, Clip, NormClip, PercentileClip
from mlpengine.optim.lion import Lion
from mlpengine.optim.rmsprop import RmsProp
from mlpengine.optim.schedules import (
    ConstantSchedule,
    CosineSchedule,
    CosLogSchedule,
    ExponentialSchedule,
    FlatCosineSchedule,
    LinearSchedule,
    OneCycleSchedule,
    PlateauSchedule,
    Schedule,
    StepSchedule,
)
from mlpengine.optim.sgd import Sgd

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "lion": Lion,
    "nadam": NAdam,
    "rmsprop": RmsProp,
    "sgd": Sgd,
}
"""The optimizers by the names that configs and estimators give them."""

__all__ = [
    "Adam",
    "AdamW",
    "AdaptiveClip",
    "Clip",
    "ConstantSchedule",
    "CosLogSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "FlatCosineSchedule",
    "Group",
    "LinearSchedule",
    "Lion",
    "NAdam",
    "NormClip",
    "OneCycleSchedule",
    "Optimizer",
    "PercentileClip",
    "PlateauSchedule",
    "RmsProp",
    "Schedule",
    "Sgd",
    "StepSchedule",
]
