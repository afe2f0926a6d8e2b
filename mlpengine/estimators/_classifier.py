"""The classifier."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from mlpengine.errors import DataError, UsageError
from mlpengine.estimators._callbacks import with_callbacks
from mlpengine.estimators._estimator import MlpEstimator
from mlpengine.ops import EntryLoss, Loss
from mlpengine.spec import Array
from mlpengine.train.task import BinaryClassification, Classification


class MlpClassifier(ClassifierMixin, MlpEstimator):  # type: ignore[misc]
    """A dense network that predicts one class of several, by softmax cross-entropy.

    A `loss` of one output, such as "binary_focal", takes two classes.

    Attributes:
        classes_: the labels, sorted, in the order of the columns of `predict_proba`.
        n_iter_: number of epochs, or of calls of `partial_fit`.
        loss_curve_, validation_loss_curve_: by epoch, the latter only with early stopping.
        best_epoch_: the epoch whose weights were kept.
        mlp_: the `Mlp`.
    """

    _kind = "classification"

    @with_callbacks  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train anew on features `X` (rows, features) and labels `y` (rows,).

        Raises: DataError where all labels are the same.
        """
        X, y = self._checked(X, y, reset=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"fit: y must hold two classes or more (1 class: {self.classes_[0]!r})")
        self._fit(X, codes, sample_weight)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn once from each row; the first call must name all `classes`.

        Scaling is fitted to all rows so far.  Raises: DataError for an unknown label.
        """
        first = not self.__sklearn_is_fitted__()
        X, y = self._checked(X, y, reset=first)
        if first:
            if classes is None:
                raise DataError("partial_fit: the first call needs classes, all that will come")
            self.classes_ = np.unique(np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise DataError("partial_fit: classes must be those of the first call")
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[codes] != y
        if unknown.any():
            raise DataError(f"partial_fit: {str(y[unknown][0])!r} is not one of the classes")
        self._partial_fit(X, codes, sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each row."""
        output = self._output(X)
        labels: Array = self.classes_[self._task().predict(output)]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Return float64 probabilities (rows, classes)."""
        output = self._output(X)
        return self._task().probabilities(output)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        return X, column_or_1d(y)

    def _task(self) -> Classification:
        one = isinstance(self._learner.loss, EntryLoss)
        return BinaryClassification(1) if one else Classification(len(self.classes_))

    def _outputs(self, y: Array, loss: Loss) -> int:
        if not isinstance(loss, EntryLoss):
            return len(self.classes_)
        if len(self.classes_) > 2:
            count = len(self.classes_)
            raise UsageError(f"loss: {loss.name} takes two classes (y has {count})")
        return 1

    def _labels(self, y: Array) -> Array:
        labels: Array = self.classes_[y]
        return labels

    def _classes(self, y: Array) -> Array:
        return y
