"""How far the learning-rate finder's suggestion lies from the best rate of a grid.

Run ``python benchmarks/lr_finder.py``, with scikit-learn installed (``--smoke`` for two tables and
two seeds; ``--data DIR`` adds diamonds, mpg, taxis and titanic from a directory of CSV files).

For each of twenty tables a network is trained from three initializations at every rate of a grid;
the best rate is that with the lowest mean validation loss of the best epoch.  Then the finder runs
once for each of ten initializations.  A suggestion is right within a factor of 5 of the best rate.
On many tables the loss is flat over several rates: ``strict`` counts the best alone, ``equal`` also
rates whose loss is higher by less than 1 % of that of a constant prediction, or by less than two
standard errors of the difference, paired over the validation rows.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.data import Preprocessor, Table, load_dataset, read_table, split_rows
from mlpengine.diagnostics.baseline import baseline_loss
from mlpengine.diagnostics.lr_range import lr_range
from mlpengine.diagnostics.trial import Rows
from mlpengine.errors import NumericalError

FACTOR, TABLES, REQUIRED = 5.0, 20, 0.95
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
GRID_SEEDS, SEEDS = 3, 10
HIDDEN, BATCH, MAX_ROWS = (64, 64), 32, 4_000
STEPS, PARTS = 1_000, 20
FILES = {
    "titanic": ("survived", ("alive",)),
    "mpg": ("mpg", ("name",)),
    "diamonds": ("price", ()),
    "taxis": ("tip", ("pickup", "dropoff", "pickup_zone", "dropoff_zone")),
}
"""Target and columns to drop, by name of the CSV file."""

Problem = tuple[Rows, Rows, int]
"""Training rows, validation rows, and outputs."""


def problem(table: Table, target: str, drop: tuple[str, ...] = ()) -> Problem:
    """Return a table's rows, split and preprocessed."""
    chosen = np.random.default_rng(0).permutation(table.n_rows)[:MAX_ROWS]
    split = split_rows(len(chosen), (0.7, 0.3, 0.0), seed=0)
    pre = Preprocessor(target, drop=drop).fit(table, chosen[split.train])
    parts = [pre.transform(table, chosen[part]) for part in (split.train, split.validation)]
    train, validation = (Rows(part.features, part.target) for part in parts)
    return train, validation, pre.target.n_outputs


def arrays(x: Any, y: Any, *, classes: bool) -> Problem:
    """Return the rows of a feature matrix and a target."""
    y = np.asarray(y)
    return problem(Table.from_arrays(x, y.astype(int).astype(str) if classes else y), "y")


def titanic_like(rows: int = 891) -> Problem:
    """Return a table of mixed columns whose noisy yes or no depends on some of them."""
    rng = np.random.default_rng(3)
    sex, cabin = rng.integers(0, 2, rows), rng.integers(1, 4, rows)
    age, fare = rng.gamma(4, 8, rows), rng.lognormal(3 - 0.6 * (cabin - 1), 0.6)
    family = rng.poisson(0.9, rows)
    score = 2.4 * sex - 1.1 * (cabin - 2) - 0.03 * (age - 30) - 0.3 * family - 0.7
    survived = rng.random(rows) < 1 / (1 + np.exp(-score))
    return arrays(np.column_stack([sex, cabin, age, fare, family]), survived, classes=True)


def waves(rows: int, noise: float) -> Problem:
    """Return a target that waves in two features, with noise."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(2 * x[:, 0]) * np.sin(2 * x[:, 1]) + noise * rng.standard_normal(rows)
    return arrays(x, y, classes=False)


def wide(rows: int, columns: int) -> Problem:
    """Return a classification with more features than matter."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((rows, columns))
    y = x[:, :5].sum(axis=1) + rng.standard_normal(rows) > 0
    return arrays(x, y, classes=True)


def linear(rows: int) -> Problem:
    """Return a linear regression with noise."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((rows, 8))
    y = x @ rng.standard_normal(8) + 0.3 * rng.standard_normal(rows)
    return arrays(x, y, classes=False)


def sklearn_data(name: str, **options: Any) -> Any:
    """Return what a function of sklearn.datasets returns."""
    from sklearn import datasets

    return getattr(datasets, name)(**options)


def tables(directory: Path | None) -> dict[str, Callable[[], Problem]]:
    """Return twenty tables by name."""

    def bundled(name: str) -> Callable[[], Problem]:
        return lambda: arrays(*sklearn_data(f"load_{name}", return_X_y=True), classes=True)

    def made(name: str, *, classes: bool, **options: Any) -> Callable[[], Problem]:
        return lambda: arrays(
            *sklearn_data(f"make_{name}", random_state=0, **options), classes=classes
        )

    problems: dict[str, Callable[[], Problem]] = {
        "titanic-like": titanic_like,
        "digits": lambda: problem(load_dataset("digits"), "digit"),
        "diabetes": lambda: problem(load_dataset("diabetes"), "progression"),
        "penguins": lambda: problem(load_dataset("penguins"), "species"),
    }
    for name, (target, drop) in FILES.items():
        path = None if directory is None else directory / f"{name}.csv"
        if path is not None and path.is_file():
            problems[name] = lambda p=path, t=target, d=drop: problem(read_table(p), t, d)
    problems |= {
        "iris": bundled("iris"),
        "wine": bundled("wine"),
        "breast cancer": bundled("breast_cancer"),
        "friedman 1": made("friedman1", classes=False, n_samples=1500, noise=1.0),
        "friedman 2": made("friedman2", classes=False, n_samples=800, noise=50.0),
        "friedman 3": made("friedman3", classes=False, n_samples=1500, noise=0.1),
        "moons": made("moons", classes=True, n_samples=600, noise=0.2),
        "circles": made("circles", classes=True, n_samples=1500, noise=0.1, factor=0.6),
        "s curve": made("s_curve", classes=False, n_samples=1500, noise=0.1),
        "swiss roll": made("swiss_roll", classes=False, n_samples=2000, noise=0.3),
        "hastie": made("hastie_10_2", classes=True, n_samples=2500),
        "quantiles": made(
            "gaussian_quantiles", classes=True, n_samples=2000, n_features=6, n_classes=4
        ),
        "clusters": made(
            "classification", classes=True, n_samples=3000, n_informative=8, n_classes=3
        ),
        "waves": lambda: waves(2000, 0.05),
        "noisy waves": lambda: waves(1000, 1.0),
        "wide": lambda: wide(400, 100),
        "linear": lambda: linear(1000),
    }
    return dict(list(problems.items())[:TABLES])


def new_step(train: Rows, outputs: int, lr: float, seed: int) -> TrainingStep:
    """Return a training step of a network with fresh weights."""
    mlp = Mlp([train.x.shape[1], *HIDDEN, outputs], seed=seed)
    loss = MeanSquaredError() if train.y.ndim == 2 else SoftmaxCrossEntropy()
    batch = min(BATCH, len(train))
    return TrainingStep(mlp, loss, Adam(mlp, lr=lr), batch, backend="numpy")


def best_losses(given: Problem, lr: float, seed: int) -> np.ndarray:
    """Return the loss of each validation row, from that part of a training with the lowest mean."""
    train, validation, outputs = given
    step = new_step(train, outputs, lr, seed)
    lowest = np.full(len(validation), np.inf)
    batches = train.batches(step.batch_size, seed)
    try:
        for number in range(1, STEPS + 1):
            step(*train.take(next(batches)))
            if number % (STEPS // PARTS) == 0:
                losses = losses_by_row(step.mlp.predict(validation.x), validation.y)
                lowest = losses if losses.mean() < lowest.mean() else lowest
    except NumericalError:
        pass
    return lowest


def losses_by_row(output: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return squared errors (targets in columns), or cross entropies (class numbers)."""
    wide = output.astype(np.float64)
    if y.ndim == 2:
        return np.square(wide - y).mean(axis=1)
    wide -= wide.max(axis=1, keepdims=True)
    return np.log(np.exp(wide).sum(axis=1)) - wide[np.arange(len(y)), y]


def equal_rates(losses: np.ndarray, constant: float) -> tuple[int, np.ndarray]:
    """Return the best of the grid's rates, and which are as good.  Shapes: (rates, rows)."""
    best = int(losses.mean(axis=1).argmin())
    with np.errstate(invalid="ignore"):
        above = losses - losses[best]
        error = above.std(axis=1, ddof=1) / np.sqrt(losses.shape[1])
    finite = np.isfinite(losses).all(axis=1)
    return best, finite & (above.mean(axis=1) <= np.fmax(0.01 * constant, 2 * error))


def measure(name: str, given: Problem, seeds: int) -> tuple[int, int]:
    """Print a line for a table; return how many suggestions are right, strictly and with equals."""
    train, validation, outputs = given
    losses = np.array(
        [np.mean([best_losses(given, lr, seed) for seed in range(GRID_SEEDS)], 0) for lr in GRID]
    )
    step = new_step(train, outputs, GRID[0], 0)
    best, good = equal_rates(losses, baseline_loss(step.loss, validation.y, outputs))
    suggested = []
    for seed in range(seeds):
        step = new_step(train, outputs, GRID[0], seed)
        suggested.append(lr_range(step, train, step.batch_size).suggestion)
    logs = np.log(np.array(suggested)[:, None] / np.array(GRID))
    right = np.abs(logs) <= np.log(FACTOR) * (1 + 1e-9)
    strict, equal = int(right[:, best].sum()), int((right & good).any(axis=1).sum())
    shown = f"{np.nanmin(suggested):g} to {np.nanmax(suggested):g}"
    bests = ", ".join(f"{rate:g}" for rate, is_good in zip(GRID, good, strict=True) if is_good)
    print(f"{name:<14}{GRID[best]:>6g}{strict:>7}{equal:>6}   {shown:<16}{bests}", flush=True)
    return strict, equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two tables and two seeds")
    parser.add_argument("--data", type=Path, help="directory of CSV files")
    parser.add_argument("--tables", nargs="+", help="names; by default all")
    args = parser.parse_args()
    chosen = tables(args.data)
    names = args.tables or (list(chosen)[:2] if args.smoke else list(chosen))
    seeds, sums = 2 if args.smoke else SEEDS, np.zeros(2)
    print(f"{'':<14}{'best':>6}{'strict':>7}{'equal':>6}   {'suggested':<16}as good as the best")
    with threadpool_limits(1):
        for name in names:
            sums += measure(name, chosen[name](), seeds)
    strict, equal = sums / (seeds * len(names))
    print(f"within a factor of {FACTOR:g}: of the best {strict:.1%}, of one as good {equal:.1%}")
    sys.exit(int(equal < REQUIRED))


if __name__ == "__main__":
    main()
