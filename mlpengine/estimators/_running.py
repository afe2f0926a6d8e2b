"""Running means and deviations of features and targets over the calls of `partial_fit`."""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from mlpengine.core.spec import Array
from mlpengine.data.features import NumberTarget, Preprocessor
from mlpengine.data.features.sources import read_slices
from mlpengine.data.tables import Table
from mlpengine.ops import EntryLoss, Loss


class RunningScale(NamedTuple):
    """Statistics of features and targets of all rows so far."""

    features: Any
    targets: Any

    @classmethod
    def empty(cls) -> "RunningScale":
        """Return the statistics of no rows."""
        return cls(StandardScaler(), StandardScaler())

    def after(
        self, preprocessor: Preprocessor, loss: Loss, table: Table, y: Array, weights: Array | None
    ) -> tuple["RunningScale", Preprocessor]:
        """Return statistics that include these rows, and a preprocessor that scales by them."""
        features = self.features
        preprocessor, numbers = copy(preprocessor), copy(preprocessor.fitted_numbers)
        preprocessor.numbers = numbers
        with np.errstate(invalid="ignore"):  # very different weights may round a variance below 0
            for start, values, _ in read_slices(table, numbers.sources, False, None):
                of_rows = None if weights is None else weights[start : start + len(values)]
                features = _extended(features, values, of_rows)
            targets = _extended(self.targets, y, weights)
        numbers.center, numbers.factor = features.mean_, 1.0 / features.scale_
        if preprocessor.options.missing in ("mean", "indicator"):
            numbers.fill = numbers.center
        if isinstance(preprocessor.target, NumberTarget):
            target = preprocessor.target = copy(preprocessor.target)
            target.center, target.scale = targets.mean_, targets.scale_
            if isinstance(loss, EntryLoss) and loss.log_link:
                target.center = np.zeros_like(targets.mean_)
                by_mean = (targets.mean_ > 0) & (loss.scaling is not None)
                target.scale = np.where(by_mean, targets.mean_, 1.0)
        return RunningScale(features, targets), preprocessor


def _extended(scaler: Any, rows: Array, weights: Array | None) -> Any:
    """Return statistics that include further rows; columns without known values are unchanged."""
    after = copy(scaler).partial_fit(rows, sample_weight=weights)
    for name, start in (("mean_", 0.0), ("var_", 0.0), ("scale_", 1.0)):
        values = getattr(after, name)
        setattr(after, name, np.where(np.isnan(values), getattr(scaler, name, start), values))
    return after
