"""What the set-ups of the corpus of diagnostics are made of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.data.tables import Table
from mlpengine.nn.layers import ActivationLike
from mlpengine.training.loop import Loop

FIRST, SECOND, UNSEEN, SOUND = "first", "second", "unseen", "healthy"
"""Halves of the corpus on which thresholds were set, set-ups that nobody had measured then, and
healthy ones of which the same is true."""

Spoil = Callable[[Loop], None]
Alter = Callable[[Table], Table]


@dataclass(frozen=True)
class SetUp:
    """One training run: a healthy config, what breaks it, and the verdicts that name the cause.

    `settings` are those of the healthy counterpart, `broken` those that break it, both by dotted
    key.  `table` changes the data of both; `alter` changes the data of the broken run, `spoil` its
    network and rows in place before the first step, and `output` is its output activation.  A
    healthy set-up has no `reasons`.  `by_class` means that the score is the mean of the classes'
    recalls, not the accuracy.
    """

    half: str
    data: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)
    reasons: frozenset[str] = frozenset()
    table: Alter | None = None
    alter: Alter | None = None
    spoil: Spoil | None = None
    output: ActivationLike = None
    by_class: bool = False

    def __str__(self) -> str:
        return f"{self.data}, {self.name}"


TARGETS = {"digits": "digit", "diabetes": "progression", "penguins": "species"}
"""Target columns; of the other data sets "y"."""


def scaled(factor: float) -> Spoil:
    """Return what multiplies all initial weights."""

    def spoil(loop: Loop) -> None:
        for weight in loop.step.mlp.weights:
            weight *= factor

    return spoil


def shifted_biases(by: float) -> Spoil:
    """Return what adds a number to the biases of the hidden layers."""

    def spoil(loop: Loop) -> None:
        for bias in loop.step.mlp.biases[:-1]:
            bias += by

    return spoil


def shuffled(loop: Loop) -> None:
    """Give the training rows each other's targets."""
    order = np.random.default_rng(0).permutation(len(loop.train))
    loop.train.y[...] = loop.train.y[order]
    loop.train.truth[...] = loop.train.truth[order]


def noisy(share: float) -> Spoil:
    """Return what gives a share of the training rows the class of another row."""

    def spoil(loop: Loop) -> None:
        rng, truth = np.random.default_rng(0), loop.train.truth
        classes = int(truth.max()) + 1
        rows = rng.choice(len(truth), round(share * len(truth)), replace=False)
        other = (truth[rows] + rng.integers(1, classes, len(rows))) % classes
        truth[rows] = other
        y = loop.train.y
        y[rows] = other if y.ndim == 1 else other[:, None]

    return spoil


def one_row(value: float) -> Spoil:
    """Return what puts a number into four features of one row."""

    def spoil(loop: Loop) -> None:
        loop.train.x[100, :4] = value

    return spoil


def moved(columns: Iterable[int], by: float) -> Spoil:
    """Return what adds a number to features of the validation rows."""

    def spoil(loop: Loop) -> None:
        assert loop.validation is not None
        loop.validation.x[:, list(columns)] += by

    return spoil


def leaking(noise: float) -> Alter:
    """Return what adds a column that is the target with a little noise, in its own unit."""

    def alter(table: Table) -> Table:
        target = table[next(name for name in [*TARGETS.values(), "y"] if name in table)]
        values = target.values.astype(np.float64)
        values = (values - values.mean()) / values.std()
        values += noise * np.random.default_rng(0).normal(size=len(values))
        return table.join(Table.from_arrays(values[:, None], names=["settled"]))

    return alter


def rare(value: str, every: int) -> Alter:
    """Return what keeps one row in `every` of a class."""

    def alter(table: Table) -> Table:
        target = table[next(name for name in [*TARGETS.values(), "y"] if name in table)]
        of_class = np.array([target.text(row) == value for row in range(table.n_rows)])
        rank = np.cumsum(of_class)
        return table.rows(np.flatnonzero(~of_class | (rank % every == 0)))

    return alter


def first_rows(count: int) -> Alter:
    """Return what keeps the first rows."""
    return lambda table: table.rows(np.arange(count))


def gaps(values: Array, share: float, rng: np.random.Generator) -> list[Any]:
    """Return values as a list of cells, a share of which is missing."""
    missing = rng.random(len(values)) < share
    return [None if gap else v for v, gap in zip(values.tolist(), missing, strict=True)]


def sgd(lr: float, momentum: float = 0.0) -> dict[str, Any]:
    return {"optimizer": {"name": "sgd", "lr": lr, "momentum": momentum}}


def optimizer(name: str, lr: float, **options: Any) -> dict[str, Any]:
    return {"optimizer": {"name": name, "lr": lr, **options}}


def net(*hidden: int, activation: str = "relu", **options: Any) -> dict[str, Any]:
    settings = {"model.hidden": list(hidden), "model.activation": activation}
    return {**settings, **{f"model.{key}": value for key, value in options.items()}}


def epochs(number: int, batch: int | None = None) -> dict[str, Any]:
    size = {} if batch is None else {"training.batch_size": batch}
    return {"training.epochs": number, **size}


COSINE: dict[str, Any] = {"schedule": "cosine"}


def healthy(data: str, name: str, settings: Mapping[str, Any], **how: Any) -> SetUp:
    """Return a set-up that is sound."""
    return SetUp(FIRST, data, name, settings, **how)


def healthy_setups(half: str, runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[SetUp]:
    """Return sound set-ups, given by data set and name."""
    return [
        replace(healthy(data, name, settings), half=half)
        for data, named in runs.items()
        for name, settings in named.items()
    ]


def broken(
    reasons: str,
    data: str,
    name: str,
    changes: Mapping[str, Any] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    **how: Any,
) -> SetUp:
    """Return a set-up whose cause the verdicts `reasons` name, separated by spaces."""
    causes = frozenset(reasons.split())
    return SetUp(FIRST, data, name, settings or {}, changes or {}, causes, **how)
