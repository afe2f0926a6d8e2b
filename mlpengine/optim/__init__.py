"""Optimizers, learning-rate schedules and gradient clipping on flat vectors."""

from mlpengine.optim._optimizer import OPTIMIZERS, Optimizer
from mlpengine.optim.adam import Adam, AdamW
from mlpengine.optim.full_batch import FullBatch
from mlpengine.optim.lbfgs import Lbfgs
from mlpengine.optim.levenberg_marquardt import BayesianRegularization, LevenbergMarquardt
from mlpengine.optim.lion import Lion
from mlpengine.optim.parameter_groups import Group
from mlpengine.optim.rmsprop import RmsProp
from mlpengine.optim.schedules import (
    SCHEDULES,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    OneCycleSchedule,
    PlateauSchedule,
    Schedule,
    StepSchedule,
)
from mlpengine.optim.settings import OptimizerSettings, settings_class
from mlpengine.optim.sgd import Sgd

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Adam",
    "AdamW",
    "BayesianRegularization",
    "ConstantSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "FullBatch",
    "Group",
    "Lbfgs",
    "LevenbergMarquardt",
    "LinearSchedule",
    "Lion",
    "OneCycleSchedule",
    "Optimizer",
    "OptimizerSettings",
    "PlateauSchedule",
    "RmsProp",
    "Schedule",
    "Sgd",
    "StepSchedule",
    "settings_class",
]
