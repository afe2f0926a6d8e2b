"""Predict censored times; compare with accelerated failure time models of lifelines and XGBoost.

``python benchmarks/survival.py [FOLDER]`` (``--smoke``: one split of lung) needs lifelines, pandas
and xgboost.  A quarter of the rows is the test.  Figures are medians over splits: 1 - concordance,
and the integrated Brier score.  The distributions of lifelines and XGBoost, and XGBoost's scale and
number of rounds, have the highest likelihood on a fifth of the training rows.
"""

import sys
import time
from pathlib import Path

import numpy as np
from machine import describe, restart_clean, table

import mlpengine
from mlpengine.data.features import TimeTarget
from mlpengine.models import censored
from mlpengine.models.task import task_for
from mlpengine.ops import Survival

try:
    import lifelines
    import pandas as pd
    import xgboost as xgb
    from lifelines import datasets
except ImportError as error:
    print(f"skipped: {error}; pip install lifelines pandas xgboost")
    sys.exit()

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


def by_lifelines(train, test, t, e, at):
    kinds = [
        getattr(lifelines, f"{name}AFTFitter") for name in ("LogLogistic", "LogNormal", "Weibull")
    ]
    cut = len(train) * 4 // 5
    fits = [kind(penalizer=0.01).fit(train[:cut], t, e).score(train[cut:]) for kind in kinds]
    best = kinds[int(np.argmax(fits))](penalizer=0.01).fit(train, t, e)
    return best.predict_median(test).values, best.predict_survival_function(test, at).values.T


def by_xgboost(train, test, t, e, at):
    def matrix(rows):
        last = rows[t].where(rows[e] > 0, np.inf)
        bounds = {"label_lower_bound": rows[t], "label_upper_bound": last}
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
    return location, task_for(TimeTarget([t], e), Survival(names[name])).survival(output, at)


def split_errors(given, t, e, split):
    mixed, found = given[given[t] > 0].sample(frac=1, random_state=split)[:3000], {}
    coded, cut = pd.get_dummies(mixed, dtype=float), len(mixed) * 3 // 4
    coded = coded.fillna(coded[:cut].mean())
    times = mixed[cut:][t].values * np.where(mixed[cut:][e] > 0, 1, -1)
    at = censored.grid(times)
    for method in (ours, by_lifelines, by_xgboost):
        part, start = mixed if method is ours else coded, time.process_time()
        median, chances = method(part[:cut], part[cut:], t, e, at)
        seconds, brier = time.process_time() - start, censored.brier(times, chances, at)
        errors = 1 - censored.concordance(times, median), censored.integrated(brier, at)
        found[method.__name__] = (*errors, seconds)
    return found


if __name__ == "__main__":
    restart_clean()
    describe()
    smoke, folder, rows = "--smoke" in sys.argv, Path([*sys.argv[1:], "."][0]), []
    for name, (t, e, dropped) in [*TABLES.items()][-1 if smoke else 0 :]:
        path = folder / f"{name}.csv.gz"
        if not path.exists() and not hasattr(datasets, f"load_{name}"):
            continue
        given = pd.read_csv(path) if path.exists() else getattr(datasets, f"load_{name}")()
        given = given.assign(**{e: (given[e] > given[e].min()) * 1}).drop(columns=dropped)
        found = [split_errors(given, t, e, split) for split in range(1 if smoke else 3)]
        for method in found[0]:
            middle = np.median([one[method] for one in found], axis=0)
            rows.append([name, method, *(f"{value:.4g}" for value in middle)])
            print(rows[-1], flush=True)
    print(table(["table", "model", "1 - concordance", "Brier", "seconds"], rows))
