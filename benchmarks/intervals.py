"""How honest folds are: coverage of 90 % intervals, and the out-of-fold score against new rows.

``python benchmarks/intervals.py`` (``--smoke`` for seconds, ``--splits 50``) draws training and new
rows of four generated tables, trains eight folds of a small network, and prints for each table the
share of new targets within their intervals, and root mean squared errors: of out-of-fold rows, the
estimate for the mean of all networks, and on new rows one network (the mean over eight) and the
mean.  Differences are in standard errors of the out-of-fold score.  Results are kept in a file
(``--results``), a line each, so that a run that ends early goes on where it stopped.

An out-of-fold row has one network, so that its score is that of one network; the mean of
eight is better by what averaging gains.  With ``--members plain piecewise`` an out-of-fold row is
predicted by one network of each kind.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from machine import describe, restart_clean, table

from mlpengine import fit
from mlpengine.training.measure import DEVIATION, OF_MEAN, OUT_OF_FOLD

NEW_ROWS = 2_000
CONFIG = {
    "model": {"hidden": [32, 32]},
    "optimizer": {"name": "adamw", "lr": 5e-3, "weight_decay": 0.01},
    "schedule": "cosine",
    "data": {"split": {"test": 0.0}, "task": "regression", "encoding": "none", "drop": []},
}


def friedman(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.random((rows, 6))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3]
    return x, y + rng.standard_normal(rows)


def heavy_tails(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((rows, 4))
    return x, x[:, 0] + np.abs(x[:, 1]) + 0.5 * rng.standard_t(3, rows)


def uneven_noise(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.random((rows, 3))
    return x, np.sin(6 * x[:, 0]) + (0.1 + x[:, 1]) * rng.standard_normal(rows)


def thresholds(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.random((rows, 5))
    return x, (x[:, 0] > 0.5) + 2.0 * (x[:, 1] > x[:, 2]) + 0.3 * rng.standard_normal(rows)


TABLES = {
    "friedman": (friedman, 400),
    "heavy tails": (heavy_tails, 250),
    "uneven noise": (uneven_noise, 600),
    "thresholds": (thresholds, 300),
}
"""Name: the table and its training rows."""

SCORES = ("out-of-fold", "one network", "estimate", "mean")
COMPARED = (("out-of-fold", "one network"), ("out-of-fold", "mean"), ("estimate", "mean"))


def named(x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    return {**{f"x{i}": column for i, column in enumerate(x.T)}, "y": y}


def measured(
    name: str, split: int, folds: int, epochs: int, members: list[str] | None
) -> dict[str, float]:
    """Return the coverage, the errors and the standard error of one draw, by name."""
    make, rows = TABLES[name]
    rng = np.random.default_rng(1_000 * split + len(name))
    known, (x, y) = named(*make(rng, rows)), make(rng, NEW_ROWS)
    new = named(x, y)
    training = {
        "folds": folds,
        "members": members,
        "epochs": epochs,
        "batch_size": 32,
        "clip_norm": None,
        "early_stopping": {"patience": 15},
    }
    config = CONFIG
    if members:
        config = CONFIG | {"data": CONFIG["data"] | {"encoding": "piecewise"}}
    model, result = fit(known, "y", seed=split, training=training, **config)
    features = model.preprocessor.transform(model.table(new)).features
    each = [model.task.predict(network.predict(features))[:, 0] for network in model.networks]
    low, high = model.predict_interval(new, 0.9)
    coverage = float(((low <= y) & (y <= high)).mean())
    return {
        "coverage": coverage,
        "out-of-fold": result.metrics[OUT_OF_FOLD]["rmse"],
        "one network": float(np.sqrt(np.mean((np.array(each) - y) ** 2))),
        "mean": model.evaluate(new)["rmse"],
        "estimate": result.spreads[OUT_OF_FOLD][OF_MEAN]["rmse"],
        "standard error": result.spreads[OUT_OF_FOLD][DEVIATION]["rmse"],
    }


def rows_of(path: Path | None, name: str) -> list[dict[str, float]]:
    """Return the results of a table in a file, in the order of the splits."""
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.is_file() else []
    return [row for row in map(json.loads, lines) if row.pop("table") == name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one split, two folds, few epochs")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--members", nargs="*", help="ensemble member types (training.members)")
    parser.add_argument("--results", type=Path, help="file of results to write and go on with")
    args = parser.parse_args()
    folds, epochs, splits = (3, 3, 1) if args.smoke else (8, 60, args.splits)
    lines, covered = [], []
    for name in TABLES:
        rows = rows_of(args.results, name)
        for split in range(len(rows), splits):
            rows.append(measured(name, split, folds, epochs, args.members))
            if args.results:
                with args.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"table": name, **rows[-1]}) + "\n")
        column = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        coverage = column["coverage"]
        covered.append(coverage.mean())
        cells = [f"{coverage.mean():.3f} +- {coverage.std():.3f}"]
        cells += [f"{column[key].mean():.4f}" for key in SCORES]
        for known, truth in COMPARED:
            apart = (column[known] - column[truth]) / column["standard error"]
            cells.append(f"{apart.mean():+.2f}, {np.mean(np.abs(apart) < 1):.2f}")
        lines.append([f"{name} ({len(rows)})", *cells])
        print(*lines[-1], sep="  ", flush=True)
    describe()
    head = ["table (splits)", "coverage of 90 %", *SCORES]
    head += [f"{known} less {truth}, share within one" for known, truth in COMPARED]
    print(f"\n{table(head, lines)}\nmean coverage {np.mean(covered):.3f}")


if __name__ == "__main__":
    restart_clean()
    main()
