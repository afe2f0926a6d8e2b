"""Whether verdicts are right: 30 healthy and 30 broken set-ups on real data.

Run ``python benchmarks/diagnostics_corpus.py`` (``--smoke`` for a few of them, ``-v`` for what the
verdicts say).  A healthy set-up must draw no verdict; a broken one must draw one of those that name
its cause.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mlpengine import (
    Adam,
    AdamW,
    BinaryCrossEntropyWithLogits,
    CosineSchedule,
    Huber,
    MeanSquaredError,
    Mlp,
    NumericalError,
    RmsProp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.data import Preprocessor, Table, load_dataset, split_rows
from mlpengine.diagnostics import Verdict
from mlpengine.train.diagnose import LoopDiagnostics
from mlpengine.train.loop import Loop
from mlpengine.train.task import Split, part_of, task_for

TARGETS = {"digits": "digit", "diabetes": "progression", "penguins": "species", "waves": "y"}
LOSSES = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "bce_with_logits": BinaryCrossEntropyWithLogits,
    "mse": MeanSquaredError,
    "huber": Huber,
}
OPTIMIZERS: dict[str, Any] = {"adam": Adam, "adamw": AdamW, "rmsprop": RmsProp, "sgd": Sgd}


@dataclass(frozen=True)
class SetUp:
    """One training run, and the names of the verdicts of which one must speak; none if healthy."""

    name: str
    data: str
    hidden: tuple[int, ...]
    activation: str = "relu"
    optimizer: str = "adam"
    lr: float = 1e-3
    batch: int = 32
    epochs: int = 20
    loss: str = "softmax_cross_entropy"
    options: dict[str, Any] = field(default_factory=dict)
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    preprocessing: dict[str, Any] = field(default_factory=dict)
    clip_norm: float | None = None
    cosine: bool = False
    spoil: Callable[[Mlp, Split], Split | None] | None = None
    reasons: frozenset[str] = frozenset()


def waves() -> Table:
    """Return 1,200 points of the plane in two classes, as xor has them but with curved borders."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (1200, 2))
    y = np.sin(2 * x[:, 0]) * np.sin(2 * x[:, 1]) > 0
    return Table.from_arrays(x, np.where(y, "above", "below"))


@cache
def parts(data: str, loss: str, preprocessing: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """Return task, training part and validation part of a data set."""
    table = waves() if data == "waves" else load_dataset(data)
    target = TARGETS[data]
    pre = Preprocessor(target, missing="median", **dict(preprocessing))
    labels = None if data == "diabetes" else table[target].values
    split = split_rows(table.n_rows, (0.7, 0.3, 0.0), seed=0, labels=labels)
    pre.fit(table, split.train)
    task = task_for(pre.target, LOSSES[loss]())
    dtype = np.dtype("float32")
    train, validation = (
        part_of(table, rows, pre, task, dtype) for rows in (split.train, split.validation)
    )
    return task, train, validation


def run(setup: SetUp, seed: int = 1) -> tuple[LoopDiagnostics, list[Verdict]]:
    """Train as the set-up says and return what its diagnostics find."""
    task, train, validation = parts(
        setup.data, setup.loss, tuple(sorted(setup.preprocessing.items()))
    )
    mlp = Mlp(
        [train.x.shape[1], *setup.hidden, task.outputs],
        activation=setup.activation,
        seed=seed,
        **setup.options,
    )
    if setup.spoil is not None:
        train = setup.spoil(mlp, train) or train
    options = dict(setup.optimizer_options)
    if setup.cosine:
        options["schedule"] = CosineSchedule(setup.epochs * -(-len(train) // setup.batch))
    optimizer = OPTIMIZERS[setup.optimizer](mlp, lr=setup.lr, **options)
    step = TrainingStep(
        mlp, LOSSES[setup.loss](), optimizer, setup.batch, clip_norm=setup.clip_norm
    )
    watcher = LoopDiagnostics()
    loop = Loop(step, task, train, validation, epochs=setup.epochs, callbacks=[watcher], seed=seed)
    with suppress(NumericalError):  # the verdicts have it
        loop.run()
    return watcher, watcher.verdicts()


def scaled(factor: float) -> Callable[[Mlp, Split], None]:
    """Return what multiplies all initial weights."""

    def spoil(mlp: Mlp, _train: Split) -> None:
        for weight in mlp.weights:
            weight *= factor

    return spoil


def shifted_biases(mlp: Mlp, _train: Split) -> None:
    for bias in mlp.biases[:-1]:
        bias -= 20


def shuffled(_mlp: Mlp, train: Split) -> Split:
    """Return the part with targets that have nothing to do with the features."""
    order = np.random.default_rng(0).permutation(len(train))
    return Split(train.x, np.ascontiguousarray(train.y[order]), train.truth[order], train.weights)


def rare_class(_mlp: Mlp, train: Split) -> Split:
    """Return the part with few rows of one class."""
    kept = np.flatnonzero((train.y != 8) | (np.arange(len(train)) % 25 == 0))
    return Split(train.x[kept], train.y[kept], train.truth[kept])


def one_row(value: float) -> Callable[[Mlp, Split], Split]:
    """Return what puts a number into the features of one row."""

    def spoil(_mlp: Mlp, train: Split) -> Split:
        x = train.x.copy()
        x[100, :4] = value
        return Split(x, train.y, train.truth, train.weights)

    return spoil


def one_column(factor: float) -> Callable[[Mlp, Split], Split]:
    """Return what gives one feature another unit."""

    def spoil(_mlp: Mlp, train: Split) -> Split:
        x = train.x.copy()
        x[:, 0] *= factor
        return Split(x, train.y, train.truth, train.weights)

    return spoil


RAW = {"standardize": "none"}
BCE = {"loss": "bce_with_logits"}

HEALTHY = (
    SetUp("digits, one layer", "digits", (64,)),
    SetUp("digits, two layers, large batch", "digits", (128, 64), batch=128, epochs=40),
    SetUp(
        "digits, dropout, adamw, cosine",
        "digits",
        (256, 128),
        optimizer="adamw",
        lr=2e-3,
        options={"dropout": 0.3},
        clip_norm=1.0,
        cosine=True,
        epochs=40,
    ),
    SetUp(
        "digits, sgd with momentum",
        "digits",
        (64, 64),
        optimizer="sgd",
        lr=0.05,
        optimizer_options={"momentum": 0.9},
    ),
    SetUp("digits, plain sgd, tanh", "digits", (64,), "tanh", "sgd", 0.1),
    SetUp("digits, gelu, four layers", "digits", (64, 64, 64, 64), "gelu"),
    SetUp("digits, leaky relu, rmsprop", "digits", (96,), "leaky_relu", "rmsprop"),
    SetUp("digits, sigmoid, one layer", "digits", (64,), "sigmoid", lr=3e-3, epochs=30),
    SetUp(
        "digits, minmax features",
        "digits",
        (64, 32),
        preprocessing={"standardize": "minmax"},
        epochs=30,
    ),
    SetUp("digits, small batches", "digits", (32,), batch=8, epochs=10),
    SetUp(
        "diabetes, tanh, decay",
        "diabetes",
        (32,),
        "tanh",
        "adamw",
        loss="mse",
        epochs=60,
        optimizer_options={"weight_decay": 1.0},
    ),
    SetUp("diabetes, relu", "diabetes", (16,), loss="mse", epochs=40),
    SetUp("diabetes, sgd", "diabetes", (16, 16), "tanh", "sgd", 0.02, loss="mse", epochs=60),
    SetUp("diabetes, huber", "diabetes", (32,), "silu", loss="huber", epochs=40),
    SetUp("penguins, relu", "penguins", (16,), lr=5e-3, batch=16, epochs=60),
    SetUp("penguins, tanh", "penguins", (16, 16), "tanh", lr=2e-3, batch=16, epochs=60),
    SetUp("penguins, sgd", "penguins", (32,), "elu", "sgd", 0.05, batch=16, epochs=60),
    SetUp("waves, two relu layers", "waves", (64, 64), lr=3e-3, epochs=60, **BCE),
    SetUp("waves, tanh", "waves", (64, 64), "tanh", lr=3e-3, epochs=60, **BCE),
    SetUp("waves, gelu, cosine", "waves", (32, 32), "gelu", lr=1e-2, epochs=60, cosine=True, **BCE),
)

HEALTHY_SETTINGS = (
    SetUp("digits, batch 32 of 20 epochs", "digits", (64,), epochs=20),
    SetUp("diabetes, stopped in time", "diabetes", (64, 64), loss="mse", epochs=8),
    SetUp("waves, enough epochs", "waves", (32, 32), "gelu", lr=1e-2, epochs=80, **BCE),
    SetUp(
        "digits, momentum 0.95",
        "digits",
        (64,),
        optimizer="sgd",
        lr=0.02,
        optimizer_options={"momentum": 0.95},
    ),
    SetUp(
        "digits, decay 0.01",
        "digits",
        (64,),
        optimizer="adamw",
        optimizer_options={"weight_decay": 0.01},
    ),
    SetUp("digits, dropout 0.5", "digits", (128,), options={"dropout": 0.5}),
    SetUp("digits, eps 1e-6", "digits", (64,), optimizer_options={"eps": 1e-6}),
    SetUp("diabetes, identity output", "diabetes", (16,), loss="mse", epochs=40),
    SetUp("penguins, three classes", "penguins", (16,), lr=5e-3, batch=16, epochs=40),
    SetUp("digits, batch 256", "digits", (64,), batch=256, lr=5e-3, epochs=60),
)
"""For each verdict about curves and settings a set-up whose setting is sound."""

FAST, SLOW = frozenset({"lr_high"}), frozenset({"lr_low"})
BROKEN = (
    SetUp("digits, lr x 100", "digits", (64, 64), lr=0.1, reasons=FAST),
    SetUp("digits, lr / 1000", "digits", (64,), lr=1e-6, reasons=SLOW),
    SetUp(
        "digits, zero weights",
        "digits",
        (64, 64),
        options={"initializer": "zeros"},
        reasons=frozenset({"no_gradient"}),
    ),
    SetUp(
        "digits, weights x 30", "digits", (64, 64), spoil=scaled(30), reasons=frozenset({"start"})
    ),
    SetUp(
        "digits, eight sigmoid layers",
        "digits",
        (64,) * 8,
        "sigmoid",
        reasons=frozenset({"vanishing"}),
    ),
    SetUp(
        "digits, biases at -20",
        "digits",
        (64, 64),
        spoil=shifted_biases,
        reasons=frozenset({"dead"}),
    ),
    SetUp(
        "digits, shuffled labels",
        "digits",
        (128,),
        spoil=shuffled,
        epochs=30,
        reasons=frozenset({"labels"}),
    ),
    SetUp(
        "digits, tanh, weights x 30",
        "digits",
        (64, 64),
        "tanh",
        spoil=scaled(30),
        reasons=frozenset({"saturated"}),
    ),
    SetUp("digits, sgd, lr x 100", "digits", (64,), optimizer="sgd", lr=10.0, reasons=FAST),
    SetUp(
        "digits, clipped to nothing",
        "digits",
        (64,),
        optimizer="sgd",
        lr=0.1,
        clip_norm=1e-3,
        reasons=frozenset({"clip_low"}),
    ),
    SetUp(
        "digits, one row of 10,000s",
        "digits",
        (64, 64),
        spoil=one_row(1e4),
        reasons=frozenset({"outlier"}),
    ),
    SetUp(
        "diabetes, raw features",
        "diabetes",
        (32,),
        loss="mse",
        preprocessing=RAW,
        reasons=frozenset({"input_scale"}),
    ),
    SetUp(
        "diabetes, raw target",
        "diabetes",
        (32,),
        loss="mse",
        epochs=40,
        preprocessing={"standardize_target": False},
        reasons=frozenset({"target_scale"}),
    ),
    SetUp(
        "diabetes, shuffled target",
        "diabetes",
        (64,),
        loss="mse",
        spoil=shuffled,
        lr=3e-3,
        epochs=100,
        reasons=frozenset({"labels"}),
    ),
    SetUp(
        "diabetes, lr / 1000",
        "diabetes",
        (32,),
        "tanh",
        loss="mse",
        lr=1e-6,
        epochs=40,
        reasons=SLOW,
    ),
    SetUp(
        "diabetes, lr x 100",
        "diabetes",
        (32,),
        "tanh",
        "sgd",
        loss="mse",
        lr=2.0,
        epochs=40,
        reasons=FAST,
    ),
    SetUp(
        "penguins, raw features",
        "penguins",
        (16,),
        batch=16,
        epochs=60,
        preprocessing=RAW,
        reasons=frozenset({"input_scale"}),
    ),
    SetUp(
        "penguins, one NaN",
        "penguins",
        (16,),
        batch=16,
        spoil=one_row(np.nan),
        reasons=frozenset({"nonfinite"}),
    ),
    SetUp("waves, lr x 1000", "waves", (32, 32), lr=3.0, reasons=FAST, epochs=40, **BCE),
    SetUp(
        "waves, one feature in other units",
        "waves",
        (32, 32),
        "tanh",
        spoil=one_column(1e4),
        epochs=40,
        reasons=frozenset({"input_scale"}),
        **BCE,
    ),
)


BROKEN_SETTINGS = (
    SetUp(
        "digits, full batch",
        "digits",
        (64,),
        batch=1258,
        epochs=20,
        reasons=frozenset({"few_steps"}),
    ),
    SetUp(
        "diabetes, 200 epochs",
        "diabetes",
        (128, 128),
        loss="mse",
        epochs=200,
        reasons=frozenset({"overfitting"}),
    ),
    SetUp(
        "digits, 20 epochs at lr 1e-4",
        "digits",
        (32, 32, 32),
        lr=1e-4,
        reasons=frozenset({"unfinished"}),
    ),
    SetUp(
        "digits, momentum 0.999",
        "digits",
        (64,),
        optimizer="sgd",
        lr=0.05,
        optimizer_options={"momentum": 0.999},
        reasons=frozenset({"momentum_high"}),
    ),
    SetUp(
        "digits, decay 100",
        "digits",
        (64,),
        optimizer="adamw",
        optimizer_options={"weight_decay": 100.0},
        reasons=frozenset({"decay_high"}),
    ),
    SetUp(
        "digits, dropout 0.9",
        "digits",
        (64, 64),
        options={"dropout": 0.9},
        reasons=frozenset({"dropout_high"}),
    ),
    SetUp(
        "digits, eps 1",
        "digits",
        (64,),
        optimizer_options={"eps": 1.0},
        reasons=frozenset({"eps_large"}),
    ),
    SetUp(
        "diabetes, relu on the output",
        "diabetes",
        (16,),
        loss="mse",
        epochs=40,
        options={"output_activation": "relu"},
        reasons=frozenset({"output_clamped"}),
    ),
    SetUp(
        "digits, a rare class",
        "digits",
        (16,),
        optimizer="sgd",
        lr=0.01,
        spoil=rare_class,
        reasons=frozenset({"imbalance"}),
    ),
    SetUp(
        "digits, full batch, sgd",
        "digits",
        (64,),
        optimizer="sgd",
        lr=0.02,
        batch=1258,
        epochs=200,
        reasons=frozenset({"noise_scale"}),
    ),
)
"""Verdicts about curves and settings: thresholds were set looking at these and those above."""


def judge(setup: SetUp, seed: int = 1) -> tuple[bool, list[Verdict]]:
    """Return whether the verdicts are as they should be, and the verdicts."""
    _, verdicts = run(setup, seed)
    names = {verdict.name for verdict in verdicts}
    return bool(names & setup.reasons) if setup.reasons else not names, verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few set-ups only")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the verdicts")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of rows")
    args = parser.parse_args()
    step = 5 if args.smoke else 1
    with threadpool_limits(1):
        sys.exit(judge_all(step, args.seed, verbose=args.verbose))


def judge_all(step: int, seed: int, *, verbose: bool) -> bool:
    """Print a line for every `step`-th set-up; return whether too many are wrong."""
    failed = 0
    healthy, broken = HEALTHY + HEALTHY_SETTINGS, BROKEN + BROKEN_SETTINGS
    for title, setups in (("healthy", healthy[::step]), ("broken", broken[::step])):
        right = 0
        for setup in setups:
            good, verdicts = judge(setup, seed)
            right += good
            said = ", ".join(v.name for v in verdicts) or "silent"
            print(f"{'ok  ' if good else 'WRONG'} {title:<8}{setup.name:<38}{said}", flush=True)
            for verdict in verdicts if verbose else ():
                print(f"           {verdict}")
        print(f"{title}: {right} of {len(setups)} as they should be")
        failed += right < (len(setups) - (1 if title == "healthy" else 2))
    return failed > 0


if __name__ == "__main__":
    main()
