"""The regressor."""

from typing import Any, Self, cast

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.data.features import NumberTarget
from mlpengine.data.features.target_transform import suits_log
from mlpengine.data.features.targets import check_positive, deviation
from mlpengine.estimators._callbacks import with_callbacks
from mlpengine.estimators._estimator import (
    MlpEstimator,
    checked_data,
    division,
    require_fit,
    rollback_on_error,
)
from mlpengine.estimators._sparse import dense_rows, updated_scale
from mlpengine.models.task import Regression
from mlpengine.ops import EntryLoss, Loss
from mlpengine.settings.features import TargetTransform
from mlpengine.settings.recipes import recipe


class MlpRegressor(RegressorMixin, MlpEstimator):  # type: ignore[misc]
    """A dense network that predicts one or several numbers, by mean squared error or another loss.

    Attributes:
        n_iter_: number of epochs, or of calls of `partial_fit`.
        verdicts_: problems of the fit, as `mlpengine.diagnostics.Verdict`; may be empty.
        loss_curve_, validation_loss_curve_: loss by epoch, on standardized targets, of training
            rows and of validation rows; the latter only if some rows do not train.
        best_epoch_: the epoch that gave the final weights.
        mlp_, mlps_: the first `Mlp`, and a list of all.
        best_epochs_: with `folds`, the best epoch of each network that was trained.
        ensemble_weights_: with `members`, the weight of each ensemble member type in the mean.
    """

    _kind = "regression"

    @rollback_on_error
    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
    ) -> Self:
        """Train anew on features `X` (rows, features) and targets `y` (rows,) or (rows, k).

        Rows of the same group in `groups` (rows,) are held out together.  With `times` (rows,),
        numbers or dates, folds follow each other in time.  No group or time may be missing.
        """
        X, y = self._checked(X, y, reset=not (self.warm_start and self.__sklearn_is_fitted__()))
        self._fit(X, y, sample_weight, division(groups, times, len(y)))
        return self

    @rollback_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn once from each row.  The scaling is fitted to all rows so far."""
        X, y = self._checked(X, y, reset=not self.__sklearn_is_fitted__())
        self._partial_fit(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """Return float64 predictions in the units of the targets, with the dimensions of `y`."""
        output = self._output(X)
        predictions = self._task().predict(output)
        return predictions[:, 0] if self._flat else predictions

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of intervals that contain a share `level` of new targets.

        They come from out-of-fold errors (on rows that a network was not trained on), and have the
        dimensions of `y`.
        Raises: UsageError for an estimator that was fitted without `folds`.
        """
        require_fit(self)
        residuals = self._residuals
        if residuals is None:
            raise UsageError("predict_interval: fit with folds first (got folds=None)")
        x = self._features(dense_rows(checked_data(self, X, reset=False)))
        task = self._task()
        low, high = residuals.interval(task.predict(self._mean.forward(x)), level)
        return (low[:, 0], high[:, 0]) if self._flat else (low, high)

    def predict_columns(self, X: Any) -> dict[str, Array]:
        """Return all predictions of the loss by name, in the units of the targets.

        For example, ``y_0.1`` and ``y_0.9`` for two quantiles, or ``y`` and ``y_std`` for the loss
        gaussian_nll.  Targets with several columns are called ``y0``, ``y1`` and so on.
        """
        output = self._output(X)
        return self._task().columns(output)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, y = checked_data(self, X, y, reset=reset, multi_output=True, y_numeric=True)
        if reset:
            self._flat = y.ndim == 1
        y = y.reshape(len(y), -1).astype(np.float64)
        cast("EntryLoss", self._given_loss()).check_targets(y, lambda row, _: f"row {row} of y")
        return X, y

    def _task(self) -> Regression:
        loss = cast("EntryLoss", self._loss)
        count = self._n_outputs // loss.columns
        names = ["y"] if self._flat else [f"y{i}" for i in range(count)]
        center, scale = np.zeros(count), np.ones(count)
        if self._scales and loss.log_link:
            means = self._target_scaler.mean_
            scale = np.where(means > 0, means, 1.0)
        elif self._scales:
            center, scale = self._target_scaler.mean_, self._target_scaler.scale_
        scaling = center.tolist(), scale.tolist()
        target = NumberTarget(names, *scaling, self._range, log=self._log)
        return Regression(target, loss)

    def _labels(self, y: Array) -> Array:
        return y[:, 0] if self._flat else y

    def _outputs(self, y: Array, loss: Loss) -> int:
        return int(y.shape[1]) * cast("EntryLoss", loss).columns

    def _fit_target(self, y: Array, weights: Array | None) -> None:
        if self._log or recipe(self.preset, self._kind).features.bound_predictions:
            rows = y if self._range is None else np.concatenate([self._range, y])
            self._range = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
        if self._log:
            check_positive(y, lambda row, _: f"row {row} of y")
            y = np.log(y)
        if not self._scales:
            return
        first = not hasattr(self._target_scaler, "n_samples_seen_")
        self._target_scaler = scaler = updated_scale(self._target_scaler, y, weights, "y")
        if first and weights is None:  # computed as in configs, to the last bit
            scaler.mean_ = np.array([float(column.mean()) for column in y.T.copy()])
            scaler.scale_ = np.array([deviation(column, "y") for column in y.T.copy()])
            scaler.var_ = np.square(scaler.scale_)

    def _choose_transform(self, transform: TargetTransform, x: Any, y: Array) -> None:
        takes_logs = cast("EntryLoss", self._loss).takes_logs
        if transform == "log" and not takes_logs:
            raise UsageError(f"transform_target: {self._loss.name} is not for logarithms: use none")
        if transform == "auto" and self._scales and takes_logs and y.shape[1] == 1:
            own = y[:, 0]
            log = suits_log(own, lambda rows: self._features(dense_rows(x[rows])))
            transform = "log" if log else "none"
        if transform == "log":
            self._log, self._target_scaler = True, StandardScaler()
            self._fit_target(y, None)

    def _scaled(self, y: Array) -> Array:
        return self._task().target.scaled(y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
