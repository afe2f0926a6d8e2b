"""Training steps for the tests of the compiled backend."""

from dataclasses import dataclass, field

import numpy as np

from mlpengine import (
    Adam,
    AdamW,
    BinaryCrossEntropyWithLogits,
    MeanSquaredError,
    Mlp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.ops import GaussianNll, Huber, MeanAbsoluteError, Poisson
from mlpengine.optim import CosineSchedule, RmsProp


@dataclass(frozen=True)
class StepCase:
    """A training step; the defaults are the plainest."""

    name: str
    sizes: tuple[int, ...] = (5, 9, 3)
    batch: int = 12
    activation: str | tuple[str, ...] = "tanh"
    loss: object = field(default_factory=SoftmaxCrossEntropy)
    optimizer: object = Adam
    options: dict[str, object] = field(default_factory=dict)
    clip_norm: float | None = None
    weighted: bool = False
    dropout: float | list[float] = 0.0
    dtype: str = "float32"
    parts: dict[str, object] = field(default_factory=dict)
    """Further options of the network."""
    short: bool = False
    """Whether one of the batches is a row short."""
    fused: bool = True
    """Whether one program makes the whole step."""

    def step(self, backend: str, threads: int = 1) -> TrainingStep:
        mlp = Mlp(
            self.sizes,
            activation=self.activation,
            dropout=self.dropout,
            seed=3,
            dtype=self.dtype,
            **self.parts,
        )
        return TrainingStep(
            mlp,
            self.loss,
            self.optimizer(mlp, **self.options),
            self.batch,
            clip_norm=self.clip_norm,
            weighted=self.weighted,
            backend=backend,
            threads=threads,
        )

    def data(self, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        rng = np.random.default_rng(7)
        x = rng.standard_normal((rows, self.sizes[0])).astype(self.dtype)
        out = self.sizes[-1]
        if isinstance(self.loss, SoftmaxCrossEntropy):
            y = rng.integers(0, out, rows)
        elif isinstance(self.loss, BinaryCrossEntropyWithLogits):
            y = rng.random((rows, out)).astype(self.dtype)
        elif isinstance(self.loss, Poisson):
            y = rng.gamma(2, size=(rows, out)).astype(self.dtype)
        else:
            y = rng.standard_normal((rows, out // self.loss.columns)).astype(self.dtype)
        weights = rng.random(rows).astype(self.dtype) if self.weighted else None
        return x, y, weights


CASES = (
    StepCase("tiny", (4, 32, 32, 1), 32, loss=MeanSquaredError(), short=True),
    StepCase("relu", (64, 48, 10), 24, "relu"),
    StepCase("float64", (6, 17, 10), 13, "sigmoid", dtype="float64", clip_norm=0.1),
    StepCase("one row", (4, 8, 2), 1, "silu", MeanSquaredError(), Sgd, {"lr": 0.1}),
    StepCase("odd", (3, 5, 7, 2), 7, "gelu", MeanAbsoluteError(), weighted=True),
    StepCase("huber", (8, 16, 4, 2), 31, "elu", Huber(0.7), RmsProp, {"weight_decay": 0.1}),
    StepCase(
        "bce",
        (7, 40, 3),
        40,
        "softplus",
        BinaryCrossEntropyWithLogits(2.0),
        RmsProp,
        {"momentum": 0.9},
        weighted=True,
    ),
    StepCase(
        "smoothed",
        (5, 9, 11),
        loss=SoftmaxCrossEntropy(
            class_weights=tuple(np.linspace(0.5, 2, 11)), label_smoothing=0.1, ignore_index=4
        ),
        activation="leaky_relu",
        weighted=True,
    ),
    StepCase("dropout", (5, 33, 9, 3), dropout=0.3, activation="relu", short=True),
    StepCase(
        "layers alike",
        (*[19] * 8, 3),
        activation=("relu", "relu", "tanh", "relu", "tanh", "tanh", "relu"),
        dropout=[0.0, 0.3, 0.5, 0.3, 0.0, 0.3, 0.3],
        short=True,
    ),
    StepCase(
        "counts",
        (6, 12, 2),
        loss=Poisson(),
        optimizer=Sgd,
        options={"momentum": 0.9, "nesterov": True, "schedule": CosineSchedule(20)},
        weighted=True,
        short=True,
    ),
    StepCase(
        "one mean and variance",
        (6, 12, 2),
        20,
        "selu",
        GaussianNll(),
        AdamW,
        {"lr": 0.01, "weight_decay": 0.3},
        weighted=True,
    ),
    StepCase("means and variances", (6, 24, 36), 20, loss=GaussianNll(), weighted=True),
    StepCase(
        "clipped",
        (5, 33, 9, 8, 3),
        clip_norm=0.2,
        dropout=[0.0, 0.3, 0.5],
    ),
    StepCase("short", (5, 9, 33, 3), clip_norm=0.02, dtype="float64", short=True),
    StepCase("softmax inside", (5, 20, 9, 3), activation="softmax"),
    StepCase("log_softmax", (5, 16, 33, 3), activation="log_softmax", dtype="float64"),
    StepCase("no hidden layer", (9, 4), 20),
    StepCase(
        "some features",
        (6, 33, 20, 2),
        13,
        "mish",
        MeanSquaredError(),
        parts={"reads": ((0, 2), (3, 6))},
    ),
    StepCase("chunks", (9, 48, 3), 2500, "selu", parts={"reads": ((1, 8),)}),
    StepCase("blocked", (450, 120, 24), 64, "relu"),
    StepCase("high tiles", (21, 205, 30), 203, "relu"),
)

BY_NAME = {case.name: case for case in CASES}
