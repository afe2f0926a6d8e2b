"""Train multilayer perceptrons of fixed architecture in preallocated buffers.

From a table to predictions:

    >>> import mlpengine
    >>> model, result = mlpengine.fit("penguins", training={"epochs": 5, "batch_size": 8})
    >>> model.predict({"island": "Dream", "bill_length_mm": 50.0, "bill_depth_mm": 18.0,
    ...                "flipper_length_mm": 195, "body_mass_g": 3700, "sex": "female"}).tolist()
    ['Chinstrap']

``mlpengine.load("runs/penguins")`` returns the model of a run.

The architecture is fixed, so memory and calls are planned before the first step.  A step then
allocates nothing, and takes little longer than its arithmetic.  Your own training loop:

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

`TrainingStep` does the body of this loop in one call.  `mlpengine.nn.Network` is the base class for
networks of your own.  `Tape` and `Program` record and run computations.
"""

from typing import TYPE_CHECKING

from mlpengine.core.errors import (
    CheckpointError,
    CompileError,
    ConfigError,
    DataError,
    DtypeError,
    FormulaError,
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
from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.diagnostics import Diagnostics
    from mlpengine.estimators import MlpClassifier as MlpClassifier
    from mlpengine.estimators import MlpRegressor as MlpRegressor
    from mlpengine.fitting import FitResult, check, distill, fit
    from mlpengine.models import Model, metric
    from mlpengine.nn import Mlp, Population
    from mlpengine.ops import BinaryCrossEntropyWithLogits, MeanSquaredError, SoftmaxCrossEntropy
    from mlpengine.optim import Adam, AdamW, CosineSchedule, Sgd
    from mlpengine.settings import EarlyStopping
    from mlpengine.step import TrainingStep
    from mlpengine.tape import Program, Tape
    from mlpengine.training import Callback, Loop, OnlineClassifier, OnlineRegressor, load

__version__ = "0.2.0"

__all__ = [
    "Adam",
    "AdamW",
    "BinaryCrossEntropyWithLogits",
    "Callback",
    "CheckpointError",
    "CompileError",
    "ConfigError",
    "CosineSchedule",
    "DataError",
    "Diagnostics",
    "DtypeError",
    "EarlyStopping",
    "FitResult",
    "FormulaError",
    "GradcheckError",
    "IndexRangeError",
    "Loop",
    "MeanSquaredError",
    "MissingExtraError",
    "Mlp",
    "MlpEngineError",
    "Model",
    "NumericalError",
    "OnlineClassifier",
    "OnlineRegressor",
    "Population",
    "Program",
    "RunError",
    "Sgd",
    "ShapeError",
    "SoftmaxCrossEntropy",
    "Tape",
    "TapeError",
    "TrainingStep",
    "UsageError",
    "check",
    "distill",
    "fit",
    "load",
    "metric",
]

__getattr__, __dir__ = lazy_names(  # 0.01 s: names are imported at first use
    __name__,
    {
        "fitting": ("FitResult", "check", "distill", "fit"),
        "diagnostics": ("Diagnostics",),
        "estimators": ("MlpClassifier", "MlpRegressor"),
        "models": ("Model", "metric"),
        "nn": ("Mlp", "Population"),
        "ops": ("BinaryCrossEntropyWithLogits", "MeanSquaredError", "SoftmaxCrossEntropy"),
        "optim": ("Adam", "AdamW", "CosineSchedule", "Sgd"),
        "settings": ("EarlyStopping",),
        "step": ("TrainingStep",),
        "tape": ("Program", "Tape"),
        "training": ("Callback", "Loop", "OnlineClassifier", "OnlineRegressor", "load"),
    },
    (
        *("backends", "data", "diagnostics", "export", "models", "nn", "ops", "optim", "step"),
        *("tape", "training"),
    ),
)
