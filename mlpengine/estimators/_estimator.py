"""What the estimators share: parameters, scaling, training."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from mlpengine.data import split_rows
from mlpengine.data.numbers import smooth_clip
from mlpengine.errors import DataError, UsageError
from mlpengine.estimators._callbacks import CallbackSupportMixin, EpochTasks
from mlpengine.estimators._learner import Learner
from mlpengine.nn import Mlp
from mlpengine.nn.layers import is_formula
from mlpengine.ops import REGISTRY, FormulaLoss, GradOp, Loss
from mlpengine.spec import Array
from mlpengine.train.best import EarlyStopping
from mlpengine.train.loop import Callback, Loop
from mlpengine.train.task import LOSSES, Split, Task
from mlpengine.train.threads import pinned
from mlpengine.wording import plural


class MlpEstimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Base of classifier and regressor, which differ in the treatment of targets."""

    _kind: ClassVar[Literal["classification", "regression"]]

    def __init__(
        self,
        hidden: Sequence[int] = (100,),
        activation: str | GradOp | Sequence[str | GradOp] = "relu",
        *,
        dropout: float = 0.0,
        loss: str | Loss = "auto",
        optimizer: str = "adam",
        lr: float = 1e-3,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        batch_size: int = 64,
        epochs: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        min_delta: float = 0.0,
        standardize: bool = True,
        dtype: str | type | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Store the parameters, which `fit` checks.

        Args:
            hidden: sizes of the hidden layers.
            activation: after every hidden layer, or a sequence with one for each.
            dropout: share of hidden units dropped while training.
            loss: what training minimizes: the name of a loss of configs, a formula of output y and
                target t, or a `Loss` with options, such as ``Quantile((0.1, 0.5, 0.9))``; "auto"
                is "softmax_cross_entropy" in a classifier and "mse" in a regressor.
            optimizer: "adam", "adamw", "lion", "nadam", "rmsprop" or "sgd".
            lr: learning rate.
            weight_decay: decoupled decay of weights, times `lr`; None is the optimizer's default.
            clip_norm: maximum global gradient norm; None does not clip.
            batch_size: rows per step.
            epochs: passes over the rows, at most.
            early_stopping: whether to hold out rows and end when their loss stops falling; the
                weights of the best epoch are kept.
            validation_fraction: share of rows held out, of each class in a classifier.
            patience: epochs without a lower loss after which training ends.
            min_delta: least fall of the loss that counts.
            standardize: whether to scale features, and the targets of a regressor, to mean 0 and
                deviation 1; predictions are in the targets' own units either way.  Scaled features
                are clipped smoothly to between -3 and 3, as those of configs are.
            dtype: of the network; None is that of the features, float64 unless they are float32.
            random_state: of initial weights, order of rows, dropout and held-out rows.
        """
        self.hidden, self.activation, self.dropout = hidden, activation, dropout
        self.loss, self.optimizer = loss, optimizer
        self.lr, self.weight_decay = lr, weight_decay
        self.clip_norm, self.batch_size, self.epochs = clip_norm, batch_size, epochs
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.patience, self.min_delta = patience, min_delta
        self.standardize, self.dtype, self.random_state = standardize, dtype, random_state

    @property
    def mlp_(self) -> Mlp:
        """The network; where `standardize` is set it reads standardized, clipped features."""
        check_is_fitted(self)
        return self._learner.mlp

    @abstractmethod
    def _task(self) -> Task:
        """Return how the outputs are read."""

    def _loss(self) -> Loss:
        """Return the loss that `loss` describes.  Raises: UsageError if it suits another task."""
        *names, formula = LOSSES[self._kind]
        loss = getattr(self, "loss", "auto")  # estimators pickled by version 0.1.0 have none
        if loss == "auto":
            loss = names[0]
        if isinstance(loss, str):
            if loss in names:
                return cast("Loss", REGISTRY[loss]())
            if is_formula(loss):
                return FormulaLoss(loss)
        if not isinstance(loss, Loss) or loss.name not in (*names, formula):
            known = ", ".join(names)
            raise UsageError(
                f"loss: must be auto, {known}, a formula of y and t, or such a Loss (got {loss!r})"
            )
        return loss

    @abstractmethod
    def _outputs(self, y: Array, loss: Loss) -> int:
        """Return how many outputs the network needs."""

    def _classes(self, y: Array) -> Array | None:
        """Return the class of each row where rows are held out class by class."""
        return None

    def _fit_target(self, y: Array, weights: Array | None) -> None:
        """Fit the scale of targets, or update it."""

    def _labels(self, y: Array) -> Array:
        """Return encoded targets as a caller gives them."""
        return y

    def _scaled(self, y: Array) -> Array:
        """Return targets on the scale that the network learns."""
        return y

    def _fit(self, x: Array, y: Array, sample_weight: ArrayLike | None) -> None:
        """Train anew on checked features and encoded targets."""
        weights = self._weights(sample_weight, len(x))
        if weights is not None:
            keep = weights > 0
            x, y, weights = x[keep], y[keep], weights[keep]
        random = check_random_state(self.random_state)
        seed, order, division = (int(n) for n in random.randint(2**31 - 1, size=3))
        train, validation = self._divide(y, division)
        self._begin_scale()
        self._fit_scale(x[train], y[train], None if weights is None else weights[train])
        self._learner = self._fresh_learner(x, y, seed, min(self.batch_size, len(train)))
        early = EarlyStopping(self.patience, "loss", self.min_delta)
        tasks: list[Callback] = []
        if hasattr(self, "set_callbacks"):
            context = self._init_callback_context(max_subtasks=self.epochs)
            metadata = None if weights is None else {"sample_weight": weights}
            data = {"X": x, "y": lambda: self._labels(y), "metadata": metadata}
            if getattr(self, "_skl_callbacks", None):
                context.call_on_fit_task_begin(estimator=self, **data)
                fitted = lambda: {"_learner": deepcopy(self._learner)}  # noqa: E731
                tasks.append(EpochTasks(self, context, data, fitted))
        loop = Loop(
            self._learner.step(weighted=weights is not None),
            self._task(),
            self._part(x, y, weights, train),
            self._part(x, y, weights, validation) if len(validation) else None,
            epochs=self.epochs,
            early_stopping=early if self.early_stopping else None,
            seed=order,
            callbacks=tasks,
        )
        with pinned(1):  # a second thread makes training slower on a busy machine
            result = loop.run()
        if tasks:
            context.call_on_fit_task_end(estimator=self, **data)
        rows = result.history.rows
        self.n_iter_, self.best_epoch_ = result.epochs, result.best_epoch
        self.loss_curve_ = [row.train_loss for row in rows]
        self.validation_loss_curve_ = [row.validation["loss"] for row in rows if row.validation]

    def _partial_fit(self, x: Array, y: Array, sample_weight: ArrayLike | None) -> None:
        """Learn once from each row, in their order, a batch at a time."""
        weights = self._weights(sample_weight, len(x))
        if not self.__sklearn_is_fitted__():
            self._begin_scale()
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._learner = self._fresh_learner(x, y, seed, self.batch_size)
            self.n_iter_ = self.best_epoch_ = 0
            self.loss_curve_, self.validation_loss_curve_ = [], []
        self._fit_scale(x, y, weights)
        step = self._learner.step(weighted=weights is not None)
        part = self._part(x, y, weights, slice(None))
        total = 0.0
        for start in range(0, len(x), step.batch_size):
            rows = slice(start, min(start + step.batch_size, len(x)))
            weight = None if part.weights is None else part.weights[rows]
            total += step(part.x[rows], part.y[rows], weight) * (rows.stop - start)
        self.n_iter_ += 1
        self.best_epoch_ = self.n_iter_
        self.loss_curve_.append(total / len(x))

    def _weights(self, sample_weight: ArrayLike | None, n_rows: int) -> Array | None:
        """Return checked weights of rows.  Raises: DataError."""
        if sample_weight is None:
            return None
        weights: Array = check_array(sample_weight, ensure_2d=False, dtype=np.float64)
        if weights.shape == ():
            weights = np.full(n_rows, weights)
        if weights.shape != (n_rows,) or weights.min() < 0 or not weights.sum() > 0:
            raise DataError(
                f"sample_weight: needs {plural(n_rows, 'weight')}, none of them negative "
                f"and not all zero (shape {weights.shape}, smallest {weights.min():g})"
            )
        return weights

    def _divide(self, y: Array, seed: int) -> tuple[Array, Array]:
        """Return the rows that train and those that are held out."""
        if not self.early_stopping:
            return np.arange(len(y)), np.arange(0)
        share = self.validation_fraction
        split = split_rows(len(y), (1 - share, share), seed=seed, labels=self._classes(y))
        return split.train, split.validation

    def _begin_scale(self) -> None:
        self._scaler, self._target_scaler = StandardScaler(), StandardScaler()
        self._clips = self.standardize  # estimators pickled by version 0.1.0 do not clip

    def _fit_scale(self, x: Array, y: Array, weights: Array | None) -> None:
        if self.standardize:
            self._scaler.partial_fit(x, sample_weight=weights)
            self._fit_target(y, weights)

    def _fresh_learner(self, x: Array, y: Array, seed: int, batch_size: int) -> Learner:
        loss = self._loss()
        mlp = Mlp(
            [x.shape[1], *(int(n) for n in np.atleast_1d(self.hidden)), self._outputs(y, loss)],
            activation=self.activation,
            dropout=self.dropout,
            seed=seed,
            dtype=x.dtype if self.dtype is None else self.dtype,
        )
        options = {"lr": self.lr, "weight_decay": self.weight_decay}
        given = {name: value for name, value in options.items() if value is not None}
        return Learner(mlp, loss, self.optimizer, given, batch_size, self.clip_norm)

    def _part(self, x: Array, y: Array, weights: Array | None, rows: Array | slice) -> Split:
        """Return some rows as the network takes them, their weights 1 on average."""
        dtype = self._learner.mlp.dtype
        target = self._task().learning_target(self._scaled(y[rows]), dtype)
        relative = None if weights is None else weights[rows] / weights[rows].mean()
        return Split(
            self._features(x[rows]),
            target,
            y[rows],
            None if relative is None else relative.astype(dtype),
        )

    def _features(self, x: Array) -> Array:
        scaled = self._scaler.transform(x) if self.standardize else x
        if getattr(self, "_clips", False):
            smooth_clip(scaled, np.empty_like(scaled))
        return np.ascontiguousarray(scaled, self._learner.mlp.dtype)

    def _output(self, x: Any) -> Array:
        """Return the outputs of the network for features as a caller gives them."""
        check_is_fitted(self)
        checked = validate_data(self, x, reset=False, dtype=[np.float64, np.float32])
        return self._learner.mlp.predict(self._features(checked))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")
