"""Censored times beside the accelerated failure times of lifelines and XGBoost.

``python benchmarks/survival.py [FOLDER]`` (``--smoke`` for one table; needs lifelines and xgboost).
A quarter of the rows tests; figures are medians over splits.  Errors are 1 - concordance and the
integrated Brier score.  Distributions of the peers, and XGBoost's scales, are chosen by likelihood
on a fifth of the training rows; XGBoost also stops early on them.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from machine import describe, restart_clean, table

import mlpengine
from mlpengine.data.features import TimeTarget
from mlpengine.models import censored
from mlpengine.models.task import task_for
from mlpengine.ops import Survival

TABLES = {
    "rotterdam": ("dtime", "death", ["pid", "rtime", "recur"]),
    "gbsg": ("rfstime", "status", ["pid"]),
    "flchain": ("futime", "death", ["chapter"]),
    "rossi": ("week", "arrest", []),
    "lung": ("time", "status", []),
}
"""Times, events and dropped columns by table: files in FOLDER, or data sets of lifelines."""
XGB = {"objective": "survival:aft", "eta": 0.03, "max_depth": 3, "subsample": 0.8, "nthread": 1}


def ours(train, test, t, e, at):
    data = {"event": e, "split": {"test": 0.0}}
    model, _ = mlpengine.fit(train, t, data=data, progress=False, report=False)
    return model.predict(test), model.predict_survival(test, at)


def lifelines(train, test, t, e, at):
    from lifelines import LogLogisticAFTFitter, LogNormalAFTFitter, WeibullAFTFitter

    kinds, cut = (LogLogisticAFTFitter, LogNormalAFTFitter, WeibullAFTFitter), len(train) * 4 // 5
    fits = [kind(penalizer=0.01).fit(train[:cut], t, e).score(train[cut:]) for kind in kinds]
    best = kinds[int(np.argmax(fits))](penalizer=0.01).fit(train, t, e)
    return best.predict_median(test).values, best.predict_survival_function(test, at).values.T


def xgboost(train, test, t, e, at):
    import xgboost as xgb

    def matrix(rows):
        bounds = {
            "label_lower_bound": rows[t],
            "label_upper_bound": rows[t].where(rows[e] > 0, np.inf),
        }
        return xgb.DMatrix(rows.drop(columns=[t, e]).values, **bounds)

    cut, tried = len(train) * 4 // 5, []
    names = {"normal": "lognormal", "logistic": "loglogistic", "extreme": "weibull"}
    for name, scale in [(name, scale) for name in names for scale in (0.5, 1.0, 1.5)]:
        own = {**XGB, "aft_loss_distribution": name, "aft_loss_distribution_scale": scale}
        seen = {"evals": [(matrix(train[cut:]), "v")], "early_stopping_rounds": 30}
        one = xgb.train(own, matrix(train[:cut]), 600, verbose_eval=False, **seen)
        tried.append((one.best_score, one.best_iteration + 1, name, scale, own))
    _, rounds, name, scale, own = min(tried, key=lambda one: one[0])
    location = np.log(xgb.train(own, matrix(train), rounds).predict(matrix(test)))
    output = np.stack([location, np.full_like(location, np.log(scale))], 1)
    return location, task_for(TimeTarget(t, e), Survival(names[name])).survival(output, at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    restart_clean()
    try:
        import pandas as pd
        import xgboost as _  # noqa: F401
        from lifelines import datasets
    except ImportError as error:
        print(f"skipped: {error}; pip install lifelines xgboost")
        return
    describe()
    rows, splits, most = [], 1 if options.smoke else 3, 400 if options.smoke else 3000
    for name in ["lung"] if options.smoke else TABLES:
        t, e, dropped = TABLES[name]
        path, found = options.folder / f"{name}.csv.gz", {}
        given = pd.read_csv(path) if path.exists() else getattr(datasets, f"load_{name}")()
        given[e] = (given[e] > given[e].min()) * 1
        for split in range(splits):
            mixed = (
                given[given[t] > 0].drop(columns=dropped).sample(frac=1, random_state=split)[:most]
            )
            coded, cut = pd.get_dummies(mixed, dtype=float), len(mixed) * 3 // 4
            coded = coded.fillna(coded[:cut].mean())
            times = mixed[cut:][t].values * np.where(mixed[cut:][e] > 0, 1, -1)
            at = censored.grid(times)
            for method in (ours, lifelines, xgboost):
                part, start = mixed if method is ours else coded, time.process_time()
                median, chances = method(part[:cut], part[cut:], t, e, at)
                seconds, brier = time.process_time() - start, censored.brier(times, chances, at)
                errors = 1 - censored.concordance(times, median), censored.integrated(brier, at)
                found.setdefault(method.__name__, []).append((*errors, seconds))
        for method, values in found.items():
            rows.append([name, method, *(f"{v:.4g}" for v in np.median(values, axis=0))])
            print(rows[-1], flush=True)
    print(table(["table", "model", "1 - concordance", "Brier", "seconds"], rows))


if __name__ == "__main__":
    main()
