"""Learn one row at a time; compare errors and microseconds per row with river.

``python benchmarks/online.py`` (``--smoke`` for a few rows) needs river.  Each row is predicted,
then learned; the time is for both.  Errors are mean absolute errors of numbers, or shares of wrong
classes; figures are medians over seeds.  The defaults of our networks were chosen on ChickWeights,
Phishing, Friedman and Agrawal, and not on the other streams.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from machine import describe, restart_clean, table

from mlpengine import OnlineClassifier, OnlineRegressor


def streams(datasets: Any, synth: Any, rows: int) -> dict[str, tuple[Callable[[], Any], bool]]:
    """Return for each name a function that starts a stream, and whether the target is a number."""
    drift = {"drift_type": "gra", "position": (rows // 3, rows * 2 // 3), "seed": 1}
    made = {
        "ChickWeights": (datasets.ChickWeights, True),
        "Phishing": (datasets.Phishing, False),
        "Friedman": (lambda: synth.Friedman(seed=1), True),
        "Agrawal": (lambda: synth.Agrawal(seed=1), False),
        "TrumpApproval": (datasets.TrumpApproval, True),
        "ImageSegments": (datasets.ImageSegments, False),
        "Bananas": (datasets.Bananas, False),
        "FriedmanDrift": (lambda: synth.FriedmanDrift(**drift), True),
        "Hyperplane": (
            lambda: synth.Hyperplane(seed=1, n_drift_features=3, mag_change=0.01),
            False,
        ),
    }
    return {n: (lambda make=make: make().take(rows), number) for n, (make, number) in made.items()}


def measured(model: Any, stream: Iterable[Any], is_number: bool) -> tuple[float, float]:
    """Return the mean error and the microseconds of a row."""
    errors, start = [], time.process_time()
    for x, y in stream:
        guess = model.predict_one(x)
        errors.append(abs((guess or 0.0) - y) if is_number else float(guess != y))
        model.learn_one(x, y)
    return statistics.fmean(errors), (time.process_time() - start) / len(errors) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rows, seeds = (60, 1) if options.smoke else (3000, 3)
    try:
        from river import datasets, forest, linear_model, multiclass, preprocessing, tree
        from river.datasets import synth
    except ImportError:
        print("skipped: river is not installed; pip install river")
        return
    scaled, logistic = preprocessing.StandardScaler, linear_model.LogisticRegression
    models: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
        "linear": (
            lambda seed: scaled() | linear_model.LinearRegression(),
            lambda seed: scaled() | multiclass.OneVsRestClassifier(logistic()),
        ),
        "tree": (
            lambda seed: tree.HoeffdingAdaptiveTreeRegressor(seed=seed),
            lambda seed: tree.HoeffdingAdaptiveTreeClassifier(seed=seed),
        ),
        "forest": (
            lambda seed: forest.ARFRegressor(seed=seed),
            lambda seed: forest.ARFClassifier(seed=seed),
        ),
        "ours": (
            lambda seed: OnlineRegressor(random_state=seed),
            lambda seed: OnlineClassifier(random_state=seed),
        ),
    }
    describe()
    lines = []
    for name, (start, is_number) in streams(datasets, synth, rows).items():
        cells = []
        for makers in models.values():
            each = [measured(makers[not is_number](s), start(), is_number) for s in range(seeds)]
            error, cost = (statistics.median(one) for one in zip(*each, strict=True))
            cells.append(f"{error:.3g} ({cost:.0f} us)")
        lines.append([name, *cells])
    print(table(["stream", *models], lines))


if __name__ == "__main__":
    restart_clean()
    main()
