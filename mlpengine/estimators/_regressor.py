"""The regressor of the scikit-learn interface."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.data.features import NumberTarget
from mlpengine.data.features.targets import Target
from mlpengine.data.tables import Table
from mlpengine.estimators._estimator import MlpEstimator, require_fit, rollback_on_error
from mlpengine.estimators._rows import checked_rows
from mlpengine.models.task import Regression


class MlpRegressor(RegressorMixin, MlpEstimator):  # type: ignore[misc]
    """A dense network that predicts one or several numbers, by mean squared error or another loss.

    Attributes:
        n_iter_: number of epochs, or of calls of `partial_fit`.
        verdicts_: problems of the fit, as `mlpengine.diagnostics.Verdict`; may be empty.
        loss_curve_, validation_loss_curve_: loss by epoch, of standardized targets, on training and
            on validation rows; `validation_loss_curve_` is empty without validation rows.
        best_epoch_: the epoch of the final weights.
        mlp_, mlps_: the first `Mlp`, and a list of all networks.
        history_: loss and metrics of each epoch; a notebook shows their curves.
        best_epochs_: with `folds`, the best epoch of each trained network.
        ensemble_weights_: with `members`, the weight of each member type in the ensemble mean.
    """

    _task = "regression"
    _problem: Regression

    @rollback_on_error
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        times: ArrayLike | None = None,
    ) -> Self:
        """Train from scratch on features `X` (rows, features) and targets `y` (rows,) or (rows, k).

        Rows with the same group in `groups` (rows,) are held out together.  With `times` (rows,),
        numbers or dates, each fold is a period of time.  No group or time may be missing.
        """
        again = self.warm_start and self.__sklearn_is_fitted__()
        table, y = self._checked(X, y, reset=not again)
        self._fit(X, y, table, sample_weight, groups, times)
        return self

    @rollback_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train once on each row, in order.

        Features and targets are scaled by the statistics of `fit` or, without an earlier `fit`, of
        the rows of all calls so far.
        """
        table, y = self._checked(X, y, reset=not self.__sklearn_is_fitted__())
        self._partial_fit(X, y, table, sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """Return float64 predictions, in the shape and units of `y`: (rows,) or (rows, k)."""
        output = self._output(X)
        predictions = self._problem.predict(output)
        return predictions[:, 0] if self._flat else predictions

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of intervals that contain a fraction `level` of new targets.

        The ends are calibrated on out-of-fold errors (of rows that did not train the network).
        Both arrays have the shape of `predict`.
        Raises: UsageError for an estimator that was fitted without `folds`.
        """
        require_fit(self)
        residuals = self._residuals
        if residuals is None:
            raise UsageError("predict_interval: fit with folds first (got folds=None)")
        low, high = residuals.interval(self._problem.predict(self._output(X)), level)
        return (low[:, 0], high[:, 0]) if self._flat else (low, high)

    def predict_columns(self, X: Any) -> dict[str, Array]:
        """Return all predictions of the loss by name, in the units of the targets.

        The names are ``y_0.1`` and ``y_0.9`` for two quantiles, for example, or ``y`` and ``y_std``
        for the loss gaussian_nll.  The name of a series or frame column replaces ``y``; the columns
        of an array are ``y0``, ``y1`` and so on.
        """
        output = self._output(X)
        return self._problem.columns(output)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Table, Array]:
        options: dict[str, Any] = {"multi_output": True, "y_numeric": True}
        try:
            table, y = checked_rows(
                self, X, y, reset=reset, fitted=self._known(reset, y), **options
            )
        except ValueError as error:
            if "could not convert string" in str(error):
                error.add_note("MlpRegressor predicts numbers; write MlpClassifier for classes")
            raise
        if reset:
            self._flat = y.ndim == 1
        return table, y.reshape(len(y), -1).astype(np.float64)

    def _target_of(self, names: list[str]) -> Target:
        return NumberTarget(names, [0.0] * len(names), [1.0] * len(names))

    def _labels(self, y: Array) -> Array:
        return y[:, 0] if self._flat else y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
