"""The classifier of the scikit-learn interface."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.fields import Limits
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.core.wording import label_index, label_text, quoted
from mlpengine.data.features import class_weights
from mlpengine.data.features.targets import ClassTarget, Target
from mlpengine.data.tables import Table
from mlpengine.data.tables.frames import is_missing, python_values
from mlpengine.estimators._estimator import (
    MlpEstimator,
    require_fit,
    rollback_on_error,
)
from mlpengine.estimators._rows import checked_rows, is_frame
from mlpengine.models.task import Classification
from mlpengine.settings.features import TaskName
from mlpengine.settings.fix import put
from mlpengine.training.trainer import Fitted, Trainer


class MlpClassifier(ClassifierMixin, MlpEstimator):  # type: ignore[misc]
    """A dense network that predicts one of several classes, by softmax cross-entropy.

    A `loss` with one output, such as "binary_focal", needs two classes.  If `y` has several columns
    of 0 and 1, each column is a label with its own probability (multilabel classification).

    Attributes:
        classes_: the sorted labels, in the order of the columns of `predict_proba`; for multilabel
            targets, the column indices.
        n_iter_: number of epochs, or of calls of `partial_fit`.
        verdicts_: problems of the fit, as `mlpengine.diagnostics.Verdict`; may be empty.
        loss_curve_, validation_loss_curve_: loss by epoch on training and on validation rows;
            `validation_loss_curve_` is empty without validation rows.
        best_epoch_: the epoch of the final weights.
        mlp_, mlps_: the first `Mlp`, and a list of all networks.
        history_: loss and metrics of each epoch; a notebook shows their curves.
        best_epochs_: with `folds`, the best epoch of each trained network.
        threshold_: with ``training.threshold`` in `settings`, the probability above which the
            positive class is predicted.
        ensemble_weights_: with `members`, the weight of each member type in the ensemble mean.
    """

    _several = False

    @property
    def _task(self) -> TaskName:
        return "multilabel" if self._several else "classification"

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
        """Train from scratch on features `X` (rows, features) and labels `y` (rows,).

        Rows with the same group in `groups` (rows,) are held out together.  With `times` (rows,),
        numbers or dates, each fold is a period of time.  No group or time may be missing.

        Raises: DataError if all labels are equal; UsageError for labels that are empty, or differ
            only in spaces.
        """
        before = getattr(self, "classes_", None) if self.warm_start else None
        table, y = self._checked(X, y, reset=before is None)
        several = y.ndim == 2
        if before is not None and several != self._several:
            raise DataError(
                "fit: with warm_start, y must stay 1-D or stay 2-D; write warm_start=False"
            )
        self._several = several
        if several:
            classes, codes = np.arange(y.shape[1]), y.astype(np.float64)
        else:
            classes, codes = np.unique(y, return_inverse=True)
        if before is not None and not np.array_equal(before, classes):
            raise DataError(
                f"fit: with warm_start, y must have the classes of the first fit ({before}, now "
                f"{classes})"
            )
        self.classes_ = classes
        if len(classes) < 2:
            raise DataError(
                f"fit: y must hold two classes or more (1 class: {classes.tolist()[0]!r})"
            )
        _check_labels("fit", classes.tolist())
        codes = codes.reshape(len(y), -1)
        self._fit(X, codes, table, sample_weight, groups, times)
        return self

    @rollback_on_error
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train once on each row, in order; the first call needs all `classes`.

        Features are scaled by the statistics of `fit` or, without an earlier `fit`, of the rows of
        all calls so far.
        Raises: DataError for an unknown label.
        """
        first = not self.__sklearn_is_fitted__()
        table, y = self._checked(X, y, reset=first)
        if y.ndim == 2 or self._several:
            raise DataError("partial_fit: y must have one label for each row; use fit for several")
        if first:
            if classes is None:
                raise DataError("partial_fit: the first call needs classes, a list of all classes")
            self.classes_ = np.unique(np.asarray(classes))
            if len(self.classes_) < 2 or (self.classes_ != self.classes_).any():
                raise DataError(
                    f"partial_fit: classes must be two or more labels (got {classes!r})"
                )
            _check_labels("partial_fit", self.classes_.tolist())
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise DataError(
                f"partial_fit: classes must be as in the first call ({self.classes_.tolist()})"
            )
        known = {label: code for code, label in enumerate(self.classes_.tolist())}
        labels = y.tolist()
        if unknown := [label for label in labels if label not in known]:
            raise DataError(
                f"partial_fit: {quoted(unknown[0])} is not one of the classes ({quoted([*known])})"
            )
        codes = np.array([known[label] for label in labels])
        self._partial_fit(X, codes[:, None], table, sample_weight)
        return self

    def predict(self, X: Any) -> Array:
        """Return the most probable label (rows,), or 0 or 1 for each label (rows, labels)."""
        output = self._output(X)  # may raise NotFittedError
        predicted = self._problem.predict(output)
        labels: Array = predicted if self._several else self.classes_[predicted]
        return labels

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy for labels `y`, in any form that `fit` accepts."""
        return float(super().score(X, _label_array(y), sample_weight))

    def predict_proba(self, X: Any) -> Array:
        """Return float64 probabilities (rows, classes) or (rows, labels)."""
        output = self._output(X)
        return self._problem.predicted_numbers(output)

    def predict_set(self, X: Any, level: float = 0.9, *, by_class: bool = False) -> Array:
        """Return the prediction set of each row, as bool (rows, classes).

        The set of a new row contains the true class with probability `level`: on average over all
        rows or, with `by_class`, over the rows of each class.  The sets are calibrated on
        out-of-fold probabilities (of rows that did not train the network).  A set may be empty.
        Raises: UsageError for several labels, or for an estimator that was fitted without `folds`.
        """
        require_fit(self)
        if self._several:
            raise UsageError("predict_set: must be for one label in each row (y has several)")
        if self._sets is None:
            raise UsageError("predict_set: fit with folds first (got folds=None)")
        return self._sets.contain(self.predict_proba(X), level, by_class=by_class)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Table, Array]:
        table, y = checked_rows(
            self, X, _label_array(y), reset=reset, fitted=self._known(reset, y), multi_output=True
        )
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            return table, np.asarray(y.toarray() if issparse(y) else y)
        return table, column_or_1d(y, warn=True)

    def _keep(self, trainer: Trainer, fitted: Fitted) -> None:
        super()._keep(trainer, fitted)
        self.__dict__.pop("threshold_", None)
        if isinstance(self._problem, Classification) and self._problem.threshold:
            self.threshold_ = self._problem.threshold.value

    def _put_settings(self, sections: dict[str, Any]) -> None:
        super()._put_settings(sections)
        loss = getattr(self.loss, "name", self.loss)
        if loss == "ordinal" and not self._several and self.classes_.dtype.kind not in "biuf":
            raise UsageError(
                "MlpClassifier: loss: ordinal needs labels that are numbers, in their order (got "
                f"{quoted(self.classes_.tolist())}); write 0, 1, 2 and so on"
            )
        choice = sections["training"].get("threshold")
        if self._several or not isinstance(choice, Mapping) or choice.get("positive") is None:
            return
        known, given = [*map(label_text, self.classes_.tolist())], choice["positive"]
        index = label_index(given, known)
        if index is None:
            raise UsageError(
                f"MlpClassifier: settings: training.threshold.positive must be one of the classes "
                f"({', '.join(map(repr, known))}; got {quoted(str(given))})"
            )
        put(sections, "training.threshold.positive", index)

    def _labeled_target(self) -> Target | None:
        target = self._preprocessor.target
        if not isinstance(target, ClassTarget):
            return target
        labels = [one.strip() if isinstance(one, str) else one for one in self.classes_.tolist()]
        return ClassTarget(target.columns[0], labels)

    def _target_of(self, names: list[str]) -> Target:
        return ClassTarget(names[0], range(len(self.classes_)))

    def _class_weighted(self, y: Array, weights: Array | None) -> Array | None:
        given = self.class_weight
        if given is None:
            return weights
        if self._several:
            return super()._class_weighted(y, weights)
        codes = y[:, 0]
        if not isinstance(given, Mapping):
            if not isinstance(given, str) or given != "balanced":
                raise UsageError(
                    "class_weight: must be balanced, or weights by label, such as "
                    f"{{0: 1.0, 1: 2.0}} (got {quoted(given)})"
                )
            each = class_weights(codes, len(self.classes_))
        else:
            known = self.classes_.tolist()
            wrong = [label for label in given if label not in known]
            if wrong:
                raise UsageError(f"class_weight: {wrong[0]!r} is not one of the classes ({known})")
            each = np.array(
                [
                    Limits(at_least=0).check(f"class_weight: {label!r}", given.get(label, 1.0))
                    for label in known
                ]
            )
        return each[codes] if weights is None else weights * each[codes]

    def _labels(self, y: Array) -> Array:
        labels: Array = y if self._several else self.classes_[y[:, 0]]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _label_array(labels: Any) -> Any:
    """Return labels as an array; texts become an object array, to keep trailing NUL characters.

    Labels with several columns, and NumPy arrays with a dtype other than object, are unchanged.
    Raises: DataError unless all labels are texts, or all are numbers of at most 64 bits.
    """
    dtype = getattr(labels, "dtype", None)
    is_array = isinstance(dtype, np.dtype) and dtype.kind not in "OMm"
    if is_array or issparse(labels) or is_frame(labels):
        return labels
    values = labels if isinstance(labels, list | tuple) else python_values(labels)
    kinds = {type(label): label for label in values or ()}
    if not kinds or any(issubclass(kind, list | tuple | np.ndarray) for kind in kinds):
        return labels
    if all(issubclass(kind, str) for kind in kinds):
        return np.asarray(values, object)
    numbers = np.array(values)
    if numbers.dtype.kind in "biuf":
        return numbers
    for row, label in enumerate(values or (), 1):
        if is_missing(label):
            raise DataError(f"y, row {row}: the label is missing; leave such rows out")
    found = " and ".join(quoted(label) for label in list(kinds.values())[:2])
    raise DataError(
        f"y: labels must be all texts or all numbers (got {found}); write np.array(y).astype(str)"
    )


def _check_labels(where: str, labels: list[Any]) -> None:
    known = {label.strip() if isinstance(label, str) else label for label in labels}
    if len(known) < len(labels) or "" in known:
        raise UsageError(
            f"{where}: labels must be texts that differ in more than spaces ({quoted(labels)}); "
            "remove the spaces, and name an empty label"
        )
