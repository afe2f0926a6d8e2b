"""Train multilayer perceptrons of fixed architecture in preallocated buffers.

From a table to predictions, and from a trained run:

    >>> import mlpengine
    >>> model, result = mlpengine.fit("penguins", training={"epochs": 5, "batch_size": 8})
    >>> model.predict({"island": "Dream", "bill_length_mm": 50.0, "bill_depth_mm": 18.0,
    ...                "flipper_length_mm": 195, "body_mass_g": 3700, "sex": "female"}).tolist()
    ['Chinstrap']

``mlpengine.load("runs/penguins")`` returns the model of a run.

The architecture is fixed, so everything is decided before the first step; a step then allocates
nothing and costs the arithmetic and little more.  A whole training loop by hand:

    >>> import numpy as np
    >>> from mlpengine import Adam, Mlp, SoftmaxCrossEntropy
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((32, 64)).astype("float32")
    >>> y = rng.integers(0, 10, 32)

    >>> mlp = Mlp([64, 128, 10], activation="relu", seed=0)
    >>> scratch, grads = mlp.scratch(batch_size=32), mlp.gradients(batch_size=32)
    >>> loss, adam = SoftmaxCrossEntropy(), Adam(mlp, lr=1e-3)
    >>> for step in range(100):
    ...     _ = mlp.forward(x, scratch)
    ...     value = loss(scratch.output, y, grads.d_output)  # writes dL/d(output)
    ...     mlp.backward(scratch, grads)  # overwrites every gradient
    ...     norm = grads.clip_global_norm_params(1.0)  # returns the norm before clipping
    ...     adam.step(mlp, grads)
    >>> value < 0.05
    True

`TrainingStep` binds the body of that loop into one call.  `Tape` and `Program` are the layer
underneath, for networks that are not a chain of dense layers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlpengine.errors import (
    CheckpointError,
    CompileError,
    ConfigError,
    DataError,
    DtypeError,
    GradcheckError,
    IndexRangeError,
    MissingExtraError,
    MlpEngineError,
    NumericalError,
    RunError,
    ShapeError,
    TapeError,
    UsageError,
)

if TYPE_CHECKING:
    from mlpengine.config.fitting import FitResult, fit
    from mlpengine.diagnostics import Diagnostics
    from mlpengine.nn import Front, Gradients, Mlp, Scratch
    from mlpengine.ops import (
        Activation,
        BinaryCrossEntropyWithLogits,
        BinaryFocal,
        EntryLoss,
        Gamma,
        GaussianNll,
        GradOp,
        Huber,
        LogCosh,
        Loss,
        MeanAbsoluteError,
        MeanSquaredError,
        Poisson,
        Quantile,
        SoftmaxCrossEntropy,
    )
    from mlpengine.optim import (
        Adam,
        AdamW,
        ConstantSchedule,
        CosineSchedule,
        CosLogSchedule,
        ExponentialSchedule,
        FlatCosineSchedule,
        LinearSchedule,
        Lion,
        NAdam,
        OneCycleSchedule,
        Optimizer,
        PlateauSchedule,
        RmsProp,
        Sgd,
        StepSchedule,
    )
    from mlpengine.settings import EarlyStopping
    from mlpengine.tape import Program, Tape
    from mlpengine.tape.gradcheck import gradcheck
    from mlpengine.train.loop import Callback, Loop
    from mlpengine.train.metrics import metric
    from mlpengine.train.model import Model, load
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

__version__ = "0.2.0"

__all__ = [
    "Activation",
    "Adam",
    "AdamW",
    "BinaryClassification",
    "BinaryCrossEntropyWithLogits",
    "BinaryFocal",
    "Callback",
    "CheckpointError",
    "Classification",
    "CompileError",
    "ConfigError",
    "ConstantSchedule",
    "CosLogSchedule",
    "CosineSchedule",
    "DataError",
    "Diagnostics",
    "DtypeError",
    "EarlyStopping",
    "EntryLoss",
    "ExponentialSchedule",
    "FitResult",
    "FlatCosineSchedule",
    "Front",
    "Gamma",
    "GaussianNll",
    "GradOp",
    "GradcheckError",
    "Gradients",
    "Huber",
    "IndexRangeError",
    "LinearSchedule",
    "Lion",
    "LogCosh",
    "Loop",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "MissingExtraError",
    "Mlp",
    "MlpEngineError",
    "Model",
    "MultiLabel",
    "NAdam",
    "NumericalError",
    "OneCycleSchedule",
    "Optimizer",
    "PlateauSchedule",
    "Poisson",
    "Population",
    "PopulationStep",
    "Program",
    "Quantile",
    "Regression",
    "RmsProp",
    "RunError",
    "Scratch",
    "Sgd",
    "ShapeError",
    "SoftmaxCrossEntropy",
    "Split",
    "StepSchedule",
    "Tape",
    "TapeError",
    "Task",
    "TrainingStep",
    "UsageError",
    "fit",
    "gradcheck",
    "load",
    "metric",
]

_PACKAGES = ("nn", "optim", "tape", "ops", "train", "data", "backends", "spec")
"""What is imported when it, or one of the names above, is first used: 0.01 s without it."""

_MODULES = (
    "nn", "optim", "tape", "ops", "train.step", "train.loop", "train.model", "train.best",
    "train.metrics", "train.population", "train.task", "diagnostics", "config.fitting",
)  # fmt: skip
"""Where the names above are defined, in the order of the search."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        for module in _MODULES:
            public = vars(import_module(f"{__name__}.{module}"))
            if name in public:
                return globals().setdefault(name, public[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
