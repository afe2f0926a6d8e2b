"""Run mlpengine in the harness of TabArena, on tables of scikit-learn.

``python benchmarks/tabarena/run.py`` (in an environment with tabarena and mlpengine) prints the
error of TabArena's metric and the seconds that the harness measured, for 20 % of the rows.
"""

from typing import Any

import numpy as np
from autogluon.core.metrics import get_metric
from sklearn import datasets
from sklearn.model_selection import train_test_split
from system import MlpengineSystemModel

TABLES = {
    "load_breast_cancer": ("binary", "roc_auc"),
    "load_wine": ("multiclass", "log_loss"),
    "load_diabetes": ("regression", "root_mean_squared_error"),
}
"""Functions of scikit-learn that return a table, with the problem type and TabArena's metric."""


def measure(name: str, **options: Any) -> tuple[float, float]:
    """Return the error of the metric, and seconds of training and prediction."""
    problem, metric = TABLES[name]
    x, y = getattr(datasets, name)(return_X_y=True, as_frame=True)
    y = y if problem == "regression" else "class " + y.astype(str)
    strata = None if problem == "regression" else y
    train, test, y, truth = train_test_split(x, y, test_size=0.2, random_state=0, stratify=strata)
    scorer, labels = get_metric(metric, problem), np.unique(truth)
    budget = {"num_cpus": 2, "time_limit": 300}
    model = MlpengineSystemModel(
        problem_type=problem, eval_metric=scorer, fit_kwargs=budget, **options
    )
    result = model.fit_custom(train.copy(), y, test, split_seed=0)
    model.cleanup()
    predicted = result["predictions"]
    if problem != "regression":
        predicted = result["probabilities"][labels].to_numpy()
        predicted = predicted[:, 1] if problem == "binary" else predicted
        truth = np.searchsorted(labels, truth)
    seconds = result["time_train_s"] + result["time_infer_s"]
    return float(scorer.error(np.asarray(truth), np.asarray(predicted))), seconds


if __name__ == "__main__":
    for name, (_, metric) in TABLES.items():
        error, seconds = measure(name)
        print(f"{name:<20}{metric:<26}{error:9.4f}{seconds:8.1f} s")
