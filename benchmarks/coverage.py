"""Measure coverage and width of 90 % prediction intervals and sets, on real tables.

``python benchmarks/coverage.py FOLDER`` (extra ``quality``; ``--smoke``: two tables of the package)
reads tables as ``benchmarks/arena.py`` does, with one split each; ``--half`` and ``--tables`` have
the same meaning.  A line of a regression table shows the share of true values inside the intervals
of `predict_interval` (default model), for all rows and for fifths by prediction, and the mean
width.  The width is relative to intervals of equal width, from absolute out-of-fold errors of the
same model.  A line of a classification table shows the share of true classes inside the sets of
`predict_set`, and the mean set size.

The same is measured for LightGBM with MAPIE, if ``mapie`` is installed: conformalized quantile
regression (CQR, Romano et al. 2019); for classes, eight folds with the scores "LAC" and, for three
classes or more, "APS".
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from arena import FOLDS, Contest, contests
from machine import describe
from quality_methods import fit_default
from quality_tables import Problem, shipped

from mlpengine.models.calibration import Residuals

LEVEL, FIFTHS = 0.9, 5

CALIBRATION = 0.25
"""Share of training rows that only calibrate the quantiles."""

Interval = tuple[np.ndarray, np.ndarray]


def fit_ours(problem: Problem, train: pd.DataFrame) -> tuple[Any, np.ndarray]:
    """Return the default model, and its out-of-fold errors, scaled to errors of the mean."""
    kept: list[np.ndarray] = [np.zeros((0, 1))]
    make = Residuals.of.__func__  # type: ignore[attr-defined]

    def of(cls: type, errors: np.ndarray, predictions: np.ndarray, share: Any = None) -> Residuals:
        kept[0] = errors * np.sqrt(1.0 if share is None else share)
        return make(cls, errors, predictions, share)

    with patch.object(Residuals, "of", classmethod(of)):
        return fit_default(problem, train), kept[0]


def half_width(errors: np.ndarray) -> float:
    """Return the half width of equal intervals that contain a share `LEVEL` of the errors."""
    sizes = np.sort(np.abs(errors[:, 0]))
    return float(sizes[min(len(sizes), int(np.ceil(LEVEL * (len(sizes) + 1)))) - 1])


def numbers_of(problem: Problem, *frames: pd.DataFrame) -> list[np.ndarray]:
    """Return the features of data frames as numbers, with codes for texts."""
    x = pd.concat(frames).drop(columns=problem.target)
    for name in x.select_dtypes(exclude="number"):
        x[name] = pd.Categorical(x[name]).codes
    return np.split(x.to_numpy(float), np.cumsum([len(frame) for frame in frames])[:-1])


def quantile_interval(problem: Problem, train: pd.DataFrame, test: pd.DataFrame) -> Interval:
    """Return intervals of LightGBM by conformalized quantile regression."""
    from lightgbm import LGBMRegressor
    from mapie.regression import ConformalizedQuantileRegressor
    from sklearn.model_selection import train_test_split

    x, new = numbers_of(problem, train, test)
    y = train[problem.target].to_numpy(float)
    x, x_conform, y, y_conform = train_test_split(x, y, test_size=CALIBRATION, random_state=0)
    model = ConformalizedQuantileRegressor(
        LGBMRegressor(objective="quantile", alpha=0.5, random_state=0, n_jobs=1, verbose=-1),
        LEVEL,
    )
    _, ends = model.fit(x, y).conformalize(x_conform, y_conform).predict_interval(new)
    return ends[:, 0, 0], ends[:, 1, 0]


def sets_of_mapie(
    problem: Problem, train: pd.DataFrame, test: pd.DataFrame, score: str
) -> np.ndarray:
    """Return prediction sets of LightGBM by MAPIE with a conformity score, bool (rows, classes)."""
    from lightgbm import LGBMClassifier
    from mapie.classification import CrossConformalClassifier

    x, new = numbers_of(problem, train, test)
    y = np.searchsorted(problem.classes, train[problem.target])
    model = CrossConformalClassifier(
        LGBMClassifier(random_state=0, n_jobs=1, verbose=-1),
        confidence_level=LEVEL,
        conformity_score=score,
        cv=FOLDS,
        random_state=0,
    )
    return model.fit_conformalize(x, y).predict_set(new)[1][:, :, 0]


def intervals(table: Contest) -> Iterator[tuple[str, list[float]]]:
    """Yield for each method: share inside, shares inside by fifths, relative width."""
    problem, train, test = table.parts(0)
    truth = test[problem.target].to_numpy(float)
    model, errors = fit_ours(problem, train)
    prediction, half = model.predict(test), half_width(errors)
    ends = {
        "mlpengine": model.predict_interval(test, LEVEL),
        "one width": (prediction - half, prediction + half),
    }
    if find_spec("mapie") and find_spec("lightgbm"):
        ends["LightGBM, CQR"] = quantile_interval(problem, train, test)
    fifths = np.array_split(np.argsort(prediction, kind="stable"), FIFTHS)
    for name, (low, high) in ends.items():
        inside = (truth >= low) & (truth <= high)
        width = float(np.mean(high - low)) / (2 * half)
        yield name, [inside.mean(), *(inside[rows].mean() for rows in fifths), width]


def sets(table: Contest) -> Iterator[tuple[str, list[float]]]:
    """Yield for each method: share of true classes inside, mean set size."""
    problem, train, test = table.parts(0)
    truth = np.searchsorted(problem.classes, test[problem.target])
    model, _ = fit_ours(problem, train)
    order = [[*map(str, model.classes)].index(str(label)) for label in problem.classes]
    held = {"mlpengine": model.predict_set(test, LEVEL)[:, order]}
    if find_spec("mapie") and find_spec("lightgbm"):
        for score in ("lac", "aps")[: 2 if len(problem.classes) > 2 else 1]:
            name = f"LightGBM, MAPIE {score}"
            held[name] = sets_of_mapie(problem, train, test, score)
    for name, of_rows in held.items():
        inside = of_rows[np.arange(len(truth)), truth].mean()
        yield name, [inside, of_rows.sum(axis=1).mean()]


def show(name: str, method: str, values: Sequence[float]) -> None:
    print(f"| {name} | {method} | {' | '.join(f'{value:.3f}' for value in values)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--half", choices=["choose", "report"])
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--smoke", action="store_true", help="two shipped tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    describe()
    if args.smoke:
        tables = (Contest(problem, "random") for problem in shipped())
    elif args.folder:
        tables = contests(args.folder, args.half, args.tables)
    else:
        parser.error("needs FOLDER, or --smoke")
    print("| table | numbers | inside | by fifths | | | | | relative width |\n|" + " --- |" * 9)
    print("\n| table | classes | inside | mean size |\n| --- | --- | --- | --- |")
    results: dict[str, list[list[float]]] = defaultdict(list)
    for table in tables:
        classes = table.problem.is_classification
        for method, values in (sets if classes else intervals)(table):
            show(table.problem.name, method, values)
            results[f"{'classes' if classes else 'numbers'}, {method}"].append(values)
    for method, rows in results.items():
        show(f"mean of {len(rows)}", method, np.mean(rows, axis=0).tolist())


if __name__ == "__main__":
    main()
