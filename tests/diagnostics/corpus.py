"""Whether verdicts are right, and whether their fixes help, on broken and healthy set-ups.

Run ``python tests/diagnostics/corpus.py --half unseen --seeds 3`` (``-v`` for what the verdicts
say, ``--fixes`` to train each broken set-up once more with the settings that its verdicts ask for,
and its healthy counterpart).  A healthy set-up must draw no
verdict; a broken one must draw one of those that name its cause.

The 106 set-ups of this file are in the halves `first` and `second`, which have the same kinds of
breakages and the same data sets.  Thresholds are set by looking at them (``--half seen``).  The
figures to quote are those of corpus_held_out.py, which has other data sets, and the false
alarms of corpus_healthy.py (``--half healthy``), which has healthy set-ups only.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partialmethod
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import corpus_healthy as further
import corpus_held_out as held_out
import numpy as np
from corpus_setups import (
    COSINE,
    FIRST,
    SECOND,
    SOUND,
    TARGETS,
    UNSEEN,
    Alter,
    SetUp,
    Spoil,
    broken,
    epochs,
    first_rows,
    gaps,
    healthy_setups,
    leaking,
    moved,
    net,
    noisy,
    one_row,
    optimizer,
    rare,
    scaled,
    sgd,
    shifted_biases,
    shuffled,
)
from threadpoolctl import threadpool_limits

from mlpengine import Callback, Mlp
from mlpengine.config.baselines import baseline_score_of, score_of, scored_rows
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.columns import cell_verdicts, column_verdicts
from mlpengine.config.load import check_config
from mlpengine.config.reader import Document
from mlpengine.config.tables import read_source, read_tables
from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.data.tables import Table, load_dataset
from mlpengine.data.tables.frames import as_table
from mlpengine.diagnostics import Verdict, combined_fix
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Loop
from mlpengine.training.trainer import Trainer


def waves() -> Table:
    """Return 1,200 points of the plane in two classes, as xor has them but with curved borders."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (1200, 2))
    y = np.sin(2 * x[:, 0]) * np.sin(2 * x[:, 1]) > 0
    return Table.from_arrays(x, np.where(y, "above", "below"))


def friedman() -> Table:
    """Return 1,500 rows of Friedman's first regression: five features count, five do not."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 1, (1500, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    return Table.from_arrays(x, y + 10 * x[:, 3] + 5 * x[:, 4] + rng.normal(size=1500))


def fares() -> Table:
    """Return 3,000 made-up rides whose fare depends on distance, time, hour and zone."""
    rng = np.random.default_rng(3)
    distance = rng.gamma(2.0, 1.5, 3000)
    minutes = 3 + distance * rng.uniform(2, 5, 3000)
    hour, zone = rng.integers(0, 24, 3000), rng.integers(0, 8, 3000)
    fare = 3 + 1.8 * distance + 0.4 * minutes + 1.5 * (hour > 19) + 0.5 * zone
    columns = {
        "distance": distance,
        "minutes": minutes,
        "hour": hour,
        "passengers": rng.integers(1, 6, 3000),
        "zone": [f"zone {number}" for number in zone],
        "color": np.where(rng.random(3000) < 0.2, "green", "yellow").tolist(),
        "y": fare + rng.normal(0, 1.0, 3000),
    }
    return as_table(columns)


def clinic() -> Table:
    """Return 1,500 made-up patients in two overlapping classes: one row in six is unlike them."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1500, 8))
    chance = 1 / (1 + np.exp(-2.5 * (x[:, 0] + 0.7 * x[:, 1] - 0.5 * x[:, 2])))
    return Table.from_arrays(x, np.where(rng.random(1500) < chance, "ill", "well"))


def passengers() -> Table:
    """Return 800 made-up passengers of a sinking ship: two classes that overlap everywhere."""
    rng = np.random.default_rng(5)
    woman, deck = rng.random(800) < 0.36, rng.integers(1, 4, 800)
    age, fare = rng.gamma(4, 7.5, 800), rng.lognormal(4.2 - 0.7 * deck, 0.5)
    chance = 0.12 + 0.62 * woman + 0.07 * (deck == 1) + 0.08 * (age < 10)
    columns = {
        "sex": np.where(woman, "female", "male").tolist(),
        "deck": deck,
        "age": gaps(age.round(), 0.2, rng),
        "fare": fare,
        "y": np.where(rng.random(800) < chance, "saved", "lost").tolist(),
    }
    return as_table(columns)


def mixture() -> Table:
    """Return 500 mixtures of 40 parts: a strength that is linear in them, with noise."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(500, 40))
    return Table.from_arrays(x, x @ rng.normal(size=40) + rng.normal(0, 1.5, 500))


def sales() -> Table:
    """Return 3,000 made-up shops: their sales, of whose variance a third can be explained."""
    rng = np.random.default_rng(39)
    x = rng.normal(size=(3000, 6))
    y = 2 * x[:, 0] + 1.5 * np.tanh(2 * x[:, 1]) + x[:, 2] * (x[:, 3] > 0)
    return Table.from_arrays(x, 200 + 10 * y + rng.normal(0, 30, 3000))


def shipped_with_scikit_learn(name: str) -> Table:
    """Return a data set of scikit-learn, its classes as text."""
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    return Table.from_arrays(bunch.data, np.array([f"class {k}" for k in bunch.target]))


MADE_UP = (waves, friedman, fares, clinic, passengers, mixture, sales)

TABLES: dict[str, Callable[[], Table]] = {
    "digits": lambda: load_dataset("digits"),
    "diabetes": lambda: load_dataset("diabetes"),
    "penguins": lambda: load_dataset("penguins"),
    "cancer": lambda: shipped_with_scikit_learn("breast_cancer"),
    "wine": lambda: shipped_with_scikit_learn("wine"),
    **{table.__name__: table for table in MADE_UP},
    **held_out.TABLES,
    **further.TABLES,
}
NUMBERS = ("diabetes", "friedman", "fares", "mixture", "sales", *held_out.NUMBERS, *further.NUMBERS)
"""Data sets whose target is a number."""

BASES: dict[str, dict[str, Any]] = {
    "digits": {"model.hidden": [64], "training.epochs": 20},
    "diabetes": {"model.hidden": [16], "training.epochs": 40},
    "penguins": {"model.hidden": [16], "optimizer.lr": 5e-3, "training.epochs": 40},
    "cancer": {"model.hidden": [16], "optimizer.lr": 2e-3, "training.epochs": 30},
    "wine": {"model.hidden": [16], "optimizer.lr": 5e-3, "training.epochs": 40},
    "waves": {"model.hidden": [32, 32], "optimizer.lr": 5e-3, "training.epochs": 60},
    "friedman": {"model.hidden": [32], "optimizer.lr": 5e-3, "training.epochs": 40},
    "fares": {"model.hidden": [32], "optimizer.lr": 3e-3, "training.epochs": 15},
    "clinic": {"model.hidden": [8], "optimizer.lr": 2e-3, "training.epochs": 15},
    "passengers": {"model.hidden": [16], "optimizer.lr": 2e-3, "training.epochs": 20},
    "sales": {"model.hidden": [16], "optimizer.lr": 2e-3, **COSINE, "training.epochs": 15},
    "mixture": {"model.hidden": [], "optimizer.lr": 1e-2, "training.epochs": 60},
    **held_out.BASES,
    **further.BASES,
}
"""Sound settings of each data set, beside the defaults of configs."""
SMALL_BATCHES = ("penguins", "wine", "cancer")


def in_cents(table: Table) -> Table:
    """Return the table with its target in a smaller unit."""
    cents = Table.from_arrays(100 * table["y"].values[:, None], names=["y"])
    return table.drop(["y"]).join(cents)


TANH = {"activation": "tanh"}

HEALTHY = (
    *healthy_setups(
        FIRST,
        {
            "digits": {
                "one layer": {},
                "dropout, adamw, cosine": net(256, 128, dropout=0.3)
                | optimizer("adamw", 2e-3)
                | COSINE
                | epochs(40)
                | {"training.clip_norm": 1.0},
                "sgd with momentum": net(64, 64) | sgd(0.05, 0.9),
                "sigmoid, one layer": net(64, activation="sigmoid")
                | optimizer("adam", 3e-3)
                | epochs(30),
                "small batches": net(32) | epochs(10, 8),
            },
            "diabetes": {
                "tanh, decay": net(32, activation="tanh")
                | optimizer("adamw", 1e-3, weight_decay=1.0)
                | epochs(60),
                "huber": net(32, activation="silu") | {"loss": "huber"},
                "stopped in time": net(64, 64) | epochs(8),
            },
            "penguins": {
                "relu": {},
                "tanh": net(16, 16, activation="tanh") | optimizer("adam", 2e-3) | epochs(60),
            },
            "waves": {
                "leaky relu": net(48, 48, activation="leaky_relu"),
                "gelu, cosine": net(32, 32, activation="gelu") | optimizer("adam", 1e-2) | COSINE,
            },
            "cancer": {"relu": {}, "sgd": net(32) | sgd(0.05)},
            "wine": {"relu": {}, "tanh": net(16, activation="tanh")},
            "friedman": {
                "relu": {},
                "gelu, adamw": net(64, activation="gelu")
                | optimizer("adamw", 5e-3, weight_decay=0.1),
            },
            "fares": {"relu": {}},
            "clinic": {"relu": {}},
            "passengers": {"relu": {}},
            "sales": {"relu": {}},
        },
    ),
    *healthy_setups(
        SECOND,
        {
            "digits": {
                "gelu, four layers": net(64, 64, 64, 64, activation="gelu"),
                "leaky relu, rmsprop": net(96, activation="leaky_relu")
                | optimizer("rmsprop", 1e-3),
                "minmax": net(64, 32) | {"data.standardize": "minmax"} | epochs(30),
                "batch 256": optimizer("adam", 5e-3) | epochs(60, 256),
                "momentum 0.95": sgd(0.02, 0.95),
            },
            "diabetes": {
                "tanh, sgd": net(16, 16, activation="tanh") | sgd(0.02) | epochs(60),
                "dropout": net(32, dropout=0.2),
            },
            "penguins": {
                "elu, sgd": net(32, activation="elu") | sgd(0.05),
                "adamw, batch 32": optimizer("adamw", 5e-3) | epochs(60, 32),
            },
            "waves": {
                "relu": net(64, 64),
                "silu, sgd": net(64, 64, activation="silu") | sgd(0.1, 0.9),
            },
            "cancer": {
                "tanh, adamw": net(16, activation="tanh") | optimizer("adamw", 2e-3),
                "dropout": net(32, 32, dropout=0.3),
            },
            "wine": {
                "sgd": sgd(0.05, 0.9),
                "gelu, early stopping": net(32, activation="gelu")
                | {"training.early_stopping": True},
            },
            "friedman": {
                "tanh, cosine": net(32, activation="tanh") | COSINE,
                "huber, rmsprop": optimizer("rmsprop", 2e-3) | {"loss": "huber"},
            },
            "fares": {
                "two gelu layers": net(32, 32, activation="gelu"),
                "sgd with momentum": sgd(0.01, 0.9),
            },
            "clinic": {"tanh": net(4, activation="tanh")},
            "passengers": {"tanh, adamw": net(16, **TANH) | optimizer("adamw", 2e-3)},
            "sales": {
                "sgd, batch 64": net(16, activation="gelu") | sgd(0.02, 0.9) | epochs(15, 64)
            },
        },
    ),
)


RAW = {"data.standardize": "none"}
FULL_DIGITS = {"training.batch_size": 1258}

PAIRS = (
    broken("lr_high", "penguins", "lr x 100", {"optimizer.lr": 0.5}),
    broken("lr_high", "cancer", "sgd, lr x 100", sgd(5.0, 0.9), settings=sgd(0.05, 0.9)),
    broken("lr_high", "digits", "lr x 100", {"optimizer.lr": 0.1}, settings=net(64, 64)),
    broken("lr_high", "friedman", "lr x 60", {"optimizer.lr": 0.3}),
    broken("lr_low", "digits", "lr / 1000", {"optimizer.lr": 1e-6}),
    broken("lr_low", "fares", "lr / 1500", {"optimizer.lr": 2e-6}),
    broken("input_scale", "fares", "raw features", RAW),
    broken("input_scale", "cancer", "raw features", RAW),
    broken("target_scale", "diabetes", "raw target", {"data.standardize_target": False}),
    broken(
        "target_scale",
        "fares",
        "raw target in cents",
        {"data.standardize_target": False},
        table=in_cents,
    ),
    broken(
        "no_gradient",
        "digits",
        "zero weights",
        {"model.initializer": "zeros"},
        settings=net(64, 64),
    ),
    broken(
        "no_gradient",
        "cancer",
        "zero weights",
        {"model.initializer": "zeros"},
        settings=net(32, 32),
    ),
    broken("start", "digits", "weights x 30", spoil=scaled(30), settings=net(64, 64)),
    broken("start", "friedman", "weights x 20", spoil=scaled(20), settings=net(32, 32)),
    broken(
        "vanishing",
        "digits",
        "twelve tanh layers, weights / 4",
        net(*[32] * 12, **TANH),
        spoil=scaled(0.25),
        settings=net(32, **TANH),
    ),
    broken(
        "vanishing",
        "wine",
        "eight sigmoid layers",
        net(*[32] * 8, activation="sigmoid"),
        settings=net(32, 32),
    ),
    broken("dead", "digits", "biases at -20", spoil=shifted_biases(-20), settings=net(64, 64)),
    broken("dead", "waves", "biases at -10", spoil=shifted_biases(-10)),
    broken(
        "saturated", "digits", "tanh, weights x 30", spoil=scaled(30), settings=net(64, 64, **TANH)
    ),
    broken(
        "saturated", "fares", "tanh, weights x 20", spoil=scaled(20), settings=net(32, 32, **TANH)
    ),
    broken(
        "clip_low", "digits", "clipped to nothing", {"training.clip_norm": 1e-3}, settings=sgd(0.1)
    ),
    broken(
        "clip_low", "wine", "clipped to nothing", {"training.clip_norm": 1e-3}, settings=sgd(0.1)
    ),
    broken("outlier", "digits", "one row of 10,000s", spoil=one_row(1e4), settings=net(64, 64)),
    broken("outlier", "cancer", "one row of 3,000s", spoil=one_row(3e3)),
    broken("nonfinite", "penguins", "one NaN", spoil=one_row(np.nan)),
    broken("nonfinite", "friedman", "one NaN", spoil=one_row(np.nan)),
    broken("labels", "digits", "shuffled labels", epochs(30), spoil=shuffled, settings=net(128)),
    broken("labels", "cancer", "shuffled labels", spoil=shuffled),
    broken("labels", "fares", "shuffled targets", spoil=shuffled),
    broken("labels", "friedman", "shuffled targets", spoil=shuffled),
    broken("overfitting", "diabetes", "200 epochs", net(128, 128) | epochs(200)),
    broken(
        "overfitting", "diabetes", "150 epochs", net(256) | optimizer("adam", 5e-3) | epochs(150)
    ),
    broken("overfitting", "clinic", "100 epochs", net(64, 64) | epochs(100)),
    broken(
        "overfitting", "friedman", "300 rows", net(256, 256) | epochs(150), table=first_rows(300)
    ),
    broken("unfinished", "digits", "lr 1e-4", {"optimizer.lr": 1e-4}, settings=net(32, 32, 32)),
    broken("unfinished", "cancer", "lr 1e-4", {"optimizer.lr": 1e-4} | epochs(15)),
    broken("underfitting", "digits", "two units", net(2) | epochs(40)),
    broken("underfitting", "waves", "two units", net(2)),
    broken("behind_linear", "mixture", "two layers", net(64, 64)),
    broken("behind_linear", "mixture", "silu, three layers", net(64, 64, 64, activation="silu")),
    broken("leak", "diabetes", "the target as a feature", alter=leaking(0.02)),
    broken("leak", "cancer", "the class as a feature", alter=leaking(0.05)),
    broken("shifted", "friedman", "a shifted column", spoil=moved([3], 2.0)),
    broken("shifted", "wine", "two shifted columns", spoil=moved([0, 3], 1.5)),
    broken("noisy_labels", "digits", "a third of noise", spoil=noisy(0.3)),
    broken("noisy_labels", "waves", "a fifth of noise", spoil=noisy(0.2)),
    broken("decay_high", "digits", "decay 100", optimizer("adamw", 1e-3, weight_decay=100.0)),
    broken("decay_high", "fares", "decay 50", optimizer("adamw", 3e-3, weight_decay=50.0)),
    broken("dropout_high", "digits", "dropout 0.9", {"model.dropout": 0.9}, settings=net(64, 64)),
    broken("dropout_high", "wine", "dropout 0.95", {"model.dropout": 0.95}, settings=net(32, 32)),
    broken("momentum_high", "digits", "momentum 0.999", sgd(0.05, 0.999), settings=sgd(0.05)),
    broken("momentum_high", "friedman", "momentum 0.995", sgd(0.02, 0.995), settings=sgd(0.02)),
    broken("few_steps", "digits", "full batch", FULL_DIGITS),
    broken("few_steps", "clinic", "full batch", epochs(20, 1050)),
    broken("output_clamped", "diabetes", "relu on the output", output="relu"),
    broken("output_clamped", "digits", "sigmoid before the loss", output="sigmoid"),
    broken("eps_large", "digits", "eps 1", optimizer("adam", 1e-3, eps=1.0)),
    broken("eps_large", "diabetes", "eps 0.5", optimizer("adam", 1e-3, eps=0.5)),
    broken("imbalance", "digits", "a rare class", net(16) | sgd(0.01), table=rare("8", 25)),
    broken(
        "imbalance", "penguins", "a rare class", sgd(0.005) | epochs(10), table=rare("Chinstrap", 7)
    ),
    broken(
        "noise_scale", "digits", "full batch, sgd", epochs(200) | FULL_DIGITS, settings=sgd(0.02)
    ),
    broken(
        "noise_scale",
        "waves",
        "full batch, sgd",
        epochs(200, 840),
        settings={**sgd(0.1, 0.9), **net(32, 32)},
    ),
)
"""Broken set-ups in pairs of one kind."""

BROKEN = [replace(one, half=half) for one, half in zip(PAIRS, cycle((FIRST, SECOND)), strict=False)]
"""The first of each pair is in the half `first`, the other one in `second`."""

SETUPS = (*HEALTHY, *BROKEN, *held_out.SETUPS, *further.SETUPS)
HALVES = {"seen": (FIRST, SECOND)}


class Spoiler(Callback):
    """Changes network and rows of a loop before the diagnostics look at them."""

    order = -100

    def __init__(self, spoil: Spoil) -> None:
        self._spoil = spoil

    def on_train_start(self, loop: Loop) -> None:
        """Change them in place."""
        self._spoil(loop)


@dataclass(frozen=True)
class Outcome:
    """The verdicts of a run, and the error of its best epoch on the validation rows.

    The error is that of `error_of`; NaN of a failed run.
    """

    verdicts: list[Verdict]
    error: float
    watcher: LoopDiagnostics

    @property
    def names(self) -> list[str]:
        return [verdict.name for verdict in self.verdicts]


@cache
def table_of(data: str, *changes: Alter) -> Table:
    """Return the table of a data set after some changes."""
    table = TABLES[data]()
    for change in changes:
        table = change(table)
    return table


def sections(setup: SetUp, seed: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a set-up, with further settings by dotted key."""
    config: dict[str, Any] = {
        "seed": seed,
        "data": {
            "source": "the corpus",
            "target": TARGETS.get(setup.data, "y"),
            "missing": "median",
            "split": {"validation": 0.3, "test": 0},
        },
        "training": {"batch_size": 16 if setup.data in SMALL_BATCHES else 32},
        "report": False,
    }
    for key, value in {**BASES[setup.data], **settings}.items():
        *above, last = key.split(".")
        section = config
        for name in above:
            section = section.setdefault(name, {})
        section[last] = deepcopy(value)
    return config


def trainer_for(
    setup: SetUp, seed: int, fix: Mapping[str, Any] | None = None, *, is_broken: bool
) -> tuple[LoadedData, Trainer]:
    """Return data and trainer of a set-up, with a fix, or of its healthy counterpart."""
    settings = {**setup.settings, **(setup.broken if is_broken else {}), **(fix or {})}
    document = Document(setup.name, data=sections(setup, seed, settings))
    document.places[()] = (setup.name, 0)
    file = check_config(Path(setup.name), document)
    changes = [setup.table, setup.alter if is_broken else None]
    table = table_of(setup.data, *(change for change in changes if change))
    output = setup.output if is_broken else None
    data = load_data(file, tables=read_tables(file, read_source(file, table=table)))
    making = partialmethod(Mlp.__init__, output_activation=output)
    with patch("mlpengine.training.networks.Mlp", type("Mlp", (Mlp,), {"__init__": making})):
        return data, trainer_of(data)


def error_of(setup: SetUp, predicted: Array, truth: Array) -> float:
    """Return the share of wrong classes, or the root mean squared error."""
    if setup.data in NUMBERS:
        return float(np.sqrt(np.square(predicted - truth).mean()))
    wrong = predicted != truth
    if setup.by_class:
        return fmean(float(wrong[truth == k].mean()) for k in np.unique(truth))
    return float(wrong.mean())


def trained(setup: SetUp, trainer: Trainer, *watchers: Callback, is_broken: bool) -> float:
    """Train a set-up and return its error on the validation rows."""
    spoilers = [Spoiler(setup.spoil)] if setup.spoil and is_broken else []
    loop = trainer.loop([*spoilers, *watchers])
    with suppress(NumericalError):  # the verdicts have it
        loop.run()
        part = trainer.validation or trainer.train
        predicted = trainer.task.predict(trainer.networks[0].predict(part.x))
        return error_of(setup, predicted, part.truth)
    return float("nan")


def run(
    setup: SetUp, seed: int = 1, fix: Mapping[str, Any] | None = None, *, is_broken: bool = True
) -> Outcome:
    """Train a set-up, with the settings of a fix, or its healthy counterpart."""
    data, trainer = trainer_for(setup, seed, fix, is_broken=is_broken)
    watcher = LoopDiagnostics()
    error = trained(setup, trainer, watcher, is_broken=is_broken)
    columns = [*cell_verdicts(data.file, data.tables), *column_verdicts(data.file, data.tables)]
    scored = scored_rows(data, trainer.mean)
    if np.isfinite(scored.output).all():
        watcher.core.baseline_score = baseline_score_of(data, score_of(data, scored))
    return Outcome([*columns, *watcher.verdicts(measure=True)], error, watcher)


def judge(setup: SetUp, seed: int = 1) -> tuple[bool, list[Verdict]]:
    """Return whether the verdicts are as they should be, and the verdicts."""
    outcome = run(setup, seed)
    return is_right(setup, outcome), outcome.verdicts


def is_right(setup: SetUp, outcome: Outcome) -> bool:
    """Return whether the verdicts name the cause or, of a healthy set-up, say nothing."""
    names = set(outcome.names)
    return bool(names & setup.reasons) if setup.reasons else not names


def reaches(setup: SetUp, error: float, healthy_error: float) -> bool:
    """Return whether an error is within 5 % of the healthy one's score.

    The score is the accuracy (the mean recall), or the root mean squared error.
    """
    if setup.data in NUMBERS:
        return error <= 1.05 * healthy_error
    return 1 - error >= 0.95 * (1 - healthy_error)


def settings_of(outcome: Outcome) -> dict[str, Any]:
    """Return the settings that the verdicts of a run ask for."""
    return {key: value for key, (value, _) in combined_fix(outcome.verdicts).items()}


@dataclass(frozen=True)
class Judged:
    """What one run was judged to be: `cured` by its fix or not, None without one."""

    is_broken: bool
    right: bool
    first: bool
    cured: bool | None
    text: str


def judge_run(task: tuple[int, int, bool, bool]) -> Judged:
    """Judge the run of a set-up, by its number, with a seed; `verbose`, with its `fixes`."""
    number, seed, verbose, fixes = task
    setup = SETUPS[number]
    with threadpool_limits(1):
        outcome = run(setup, seed)
        good, names = is_right(setup, outcome), outcome.names
        said = ", ".join(names) or "silent"
        lines = [f"{'ok   ' if good else 'WRONG'} {setup!s:<44}{seed:>2} {said}"]
        lines += [f"           {verdict}" for verdict in outcome.verdicts if verbose]
        settings, cured = settings_of(outcome), None
        if fixes and settings:
            after = run(setup, seed, settings).error
            wanted = run(setup, seed, is_broken=False).error
            cured = reaches(setup, after, wanted)
            lines.append(
                f"  {'cured    ' if cured else 'NOT cured'} error {outcome.error:.3g} -> "
                f"{after:.3g}, healthy {wanted:.3g}: {settings}"
            )
    first = bool(names) and names[0] in setup.reasons
    return Judged(bool(setup.reasons), good, first, cured, "\n".join(lines))


def judge_all(tasks: list[tuple[int, int, bool, bool]], jobs: int) -> bool:
    """Print a line for every run and the figures; return whether they miss the goals."""
    judged = []
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        for one in (pool.map if pool else map)(judge_run, tasks):
            judged.append(one)
            print(one.text, flush=True)
    broken, quiet = ([one for one in judged if one.is_broken == kind] for kind in (True, False))
    named, alarms = [one.right for one in broken], [not one.right for one in quiet]
    fixed = [one.cured for one in broken if one.cured is not None]
    harmed = sum(one.cured is False for one in quiet)
    if broken:
        print(f"broken: {sum(named)} of {len(named)} named right ({share(named):.1%}), ", end="")
        print(f"{share([one.first for one in broken]):.1%} by the first verdict")
    print(f"healthy: {sum(alarms)} false alarms in {len(alarms)} runs ({share(alarms, 0):.1%})")
    if fixed:
        print(f"fixes: {sum(fixed)} of {len(fixed)} cured ({share(fixed):.1%})")
        print(f"       {harmed} healthy runs worse with a fix; without a verdict there is none")
    return share(named) < 0.9 or share(alarms, 0) > 0.02 or share(fixed) < 0.8


def share(values: list[bool], of_none: float = 1.0) -> float:
    return fmean(values) if values else of_none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("seen", FIRST, SECOND, UNSEEN, SOUND), default="seen")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--only", help="part of the names of the set-ups to run")
    parser.add_argument("--fixes", action="store_true", help="also carry out the fixes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the verdicts")
    args = parser.parse_args()
    halves = HALVES.get(args.half, (args.half,))
    chosen = [n for n, setup in enumerate(SETUPS) if setup.half in halves]
    if args.only:
        chosen = [n for n in chosen if args.only in f"{SETUPS[n]!s} {SETUPS[n].reasons}"]
    seeds = range(1, args.seeds + 1)
    tasks = [(n, seed, args.verbose, args.fixes) for n in chosen for seed in seeds]
    sys.exit(judge_all(tasks, args.jobs))


if __name__ == "__main__":
    main()
