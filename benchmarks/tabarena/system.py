"""The default of ``mlpengine.fit`` as a system of TabArena."""

from typing import Any

import numpy as np
import pandas as pd

from tabarena.benchmark.exec_models import ExternalSystemModel

GROUP = "mlpengine group"


class MlpengineSystemModel(ExternalSystemModel):
    """The default model of ``mlpengine.fit``.

    mlpengine does the preprocessing and makes the folds: by group or time if the task has them.
    """

    def _fit_system(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        *,
        target_name: str,
        problem_type: str,
        validation_metadata: Any,
        num_cpus: int | None,
        time_limit: float | None,
        random_state: int | None,
        **_: Any,
    ) -> "MlpengineSystemModel":
        import mlpengine

        # Class numbers stand for labels: their columns of probabilities have a known order.
        is_classification = problem_type != "regression"
        self._labels = np.unique(y) if is_classification else None
        X[target_name] = np.searchsorted(self._labels, y) if is_classification else y
        split = {"test": 0.0}
        if validation_metadata.group_on:
            columns = np.atleast_1d(validation_metadata.group_on)
            X[GROUP] = X.groupby(list(columns), dropna=False, observed=True).ngroup().astype(str)
            split["group"] = GROUP
        elif validation_metadata.time_on:
            split["time"] = validation_metadata.time_on
        self._model, _ = mlpengine.fit(
            X,
            target_name,
            data={"split": split, "task": "classification" if is_classification else "regression"},
            training={"threads": num_cpus} if num_cpus else {},
            seed=random_state or 0,
            time_limit=time_limit,
            progress=False,
        )
        return self

    def _predict(self, X: pd.DataFrame) -> pd.Series:
        return pd.Series(np.ravel(self._model.predict(X)), index=X.index)

    def _predict_proba(self, X: pd.DataFrame) -> pd.DataFrame:
        chances = self._model.predict_proba(X)
        return pd.DataFrame(chances, index=X.index, columns=self._labels[self._model.classes])
