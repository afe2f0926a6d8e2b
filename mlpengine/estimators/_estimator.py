"""The base class of the estimators: parameters, scaling, training."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from numbers import Real
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from mlpengine.core.buffers import with_missing
from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.spec import Array, ArrayLike, floating
from mlpengine.core.wording import plural, quoted, suggestion
from mlpengine.data.features import fold_rows, split_rows
from mlpengine.data.features.leaks import find_leaks
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.sources import Source
from mlpengine.data.features.splits import check_known
from mlpengine.data.tables import Table
from mlpengine.diagnostics.leak_verdict import leak_verdict
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.estimators._callbacks import CallbackSupportMixin, EpochTasks, PrintEpochs
from mlpengine.estimators._sparse import (
    DENSE,
    RawRows,
    dense_rows,
    exact_scale,
    issparse,
    matrix_duplicates,
    quantile_edges,
    updated_scale,
)
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.linear import can_be_linear
from mlpengine.models.members import NetworkMean
from mlpengine.models.task import Regression, Split, Task
from mlpengine.nn import TabularNetwork
from mlpengine.nn.layers import is_formula
from mlpengine.ops import LOSSES, FormulaLoss, GradOp, Loss, losses_of
from mlpengine.optim import ConstantSchedule
from mlpengine.settings import EarlyStopping, MemberType, RunSettings, SplitSettings
from mlpengine.settings.base import fitting, options_of
from mlpengine.settings.features import TargetTransform, TaskName
from mlpengine.settings.overrides import with_setting
from mlpengine.settings.recipes import (
    FOLDED_ROWS,
    LINEAR_CELLS,
    MIDDLE,
    PRESETS,
    encodes,
    folds_for,
    members_for,
    recipe,
    validation_share_for,
)
from mlpengine.settings.training import LINEAR, TrainingSettings, linear_last, trained
from mlpengine.training.loop import Callback
from mlpengine.training.trainer import Fitted, Member, Trainer

FEATURES: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
"""Options of scikit-learn's check of features."""

SEARCHED_ROWS, LEAK_FEATURES = 1_000, 500
"""Maximum numbers of evenly spaced training rows, and of features, in the search for features that
leak the target."""

ENCODED = 1 << 17
"""Count of numbers that are converted to features at once, so that they stay in cache."""

OPTIONS = {
    "hidden": "model.hidden",
    "activation": "model.activation",
    "dropout": "model.dropout",
    "optimizer": "optimizer",
    "lr": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
    "batch_size": "training.batch_size",
    "epochs": "training.epochs",
    "threads": "training.threads",
}
"""Config keys of the parameters that are passed on as settings unchanged."""

TAKEN_FROM_DATA = ("data.standardize", "data.transform_target")
"""The keys of `data` that apply to arrays."""

OTHERWISE = {
    "loss": "write loss=",
    "training.folds": "write folds=",
    "training.members": "write members=",
    "training.seeds": "write folds=",
    "training.refit": "with folds, all rows train",
    "training.metrics": "scikit-learn has scorers",
}
"""Keys that estimators do not take, with advice."""

MAX_EXPONENT = 500
"""Exponent of the largest weight from which all weights are scaled."""


def rollback_on_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method: after an error the estimator has the attributes from before the call."""

    @wraps(method)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        before = {**vars(self)}
        try:
            return method(self, *args, **options)
        except Exception:
            vars(self).clear()
            vars(self).update(before)
            raise

    return called


def require_fit(estimator: Any) -> None:
    """Raise scikit-learn's NotFittedError, with advice, unless an estimator is fitted."""
    check_is_fitted(estimator, msg="%(name)s: is not fitted yet; write estimator.fit(X, y) first")


def division(groups: Any, times: Any, rows: int) -> dict[str, Array]:
    """Return the groups or times of rows, if given, as arguments of `fold_rows`.

    Raises: DataError naming the problem of the groups or times.
    """
    given = {"groups": groups, "times": times}
    arrays = {name: np.asarray(with_missing(one)) for name, one in given.items() if one is not None}
    if len(arrays) > 1:
        raise DataError("fit: takes groups or times, not both")
    for name, values in arrays.items():
        if values.shape != (rows,):
            raise DataError(f"{name}: needs one entry per row ({rows}; shape {values.shape})")
        if name == "times" and values.dtype.kind not in "iufM":
            raise DataError(
                f"times: must be numbers or dates of type datetime64 (got {values.dtype}); "
                "write times=pandas.to_datetime(times, utc=True).to_numpy('M8[us]')"
            )
        check_known("fit", name, values)
        if values.dtype.kind == "M":
            values = values.astype("M8[us]").astype("i8")
        arrays[name] = values.astype(str) if values.dtype.kind == "O" else values
    return arrays


def checked_data(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Return the result of scikit-learn's `validate_data`.

    Raises: DataError naming row and column of a text or of a non-finite number.
    """
    name, X, y = type(estimator).__name__, with_missing(X), tuple(map(with_missing, y))
    lengths = [length for data in (X, *y) if (length := _length(data)) is not None]
    if len({*lengths}) > 1:
        raise DataError(
            f"{name}: y must have a target for each row of X (got {lengths[1]:,} for "
            f"{plural(lengths[0], 'row')}); write fit(X[rows], y[rows]) with the same rows of both"
        )
    try:
        checked = validate_data(estimator, X, *y, **FEATURES, **options)
        if options.get("y_numeric"):
            checked[1].astype(np.float64)
    except ValueError as error:
        text = str(error).partition("\n")[0]
        if "could not convert" in text or " contains " in text:
            for which, data in zip("Xy", (X, *y), strict=False):
                if place := _unusable_cell(which, data, text):
                    raise DataError(f"{name}: {place}") from None
        raise
    return checked


def _length(data: Any) -> int | None:
    """Return the number of rows of data, or None for objects without rows."""
    shape = getattr(data, "shape", None)
    if shape is None and isinstance(data, Sequence) and not isinstance(data, str):
        return len(data)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def _unusable_cell(name: str, data: Any, text: str) -> str:
    """Return the place of the first cell that is not a finite number, and advice, or ""."""
    if issparse(data):
        return ""
    cells = np.asarray(data)
    labels = [*getattr(data, "columns", range(cells.shape[-1] if cells.ndim else 0))]
    for place, value in np.ndenumerate(cells):
        cell = value.item() if isinstance(value, np.generic) else value
        try:
            if np.isfinite(float(cell)):
                continue
        except (TypeError, ValueError):
            text, advice = f"{name} must be numbers", "encode texts, with OneHotEncoder say"
        else:
            advice = "impute such cells, with SimpleImputer say"
        column = f", column {labels[place[1]]!r}" if len(place) == 2 else ""
        where = f"{text.rstrip('.')} (row {place[0]}{column} has {cell!r:.60})"
        if name == "X":
            return f"{where}; {advice}, or write mlpengine.fit(table, target='y')"
        return f"{where}; {'MlpClassifier takes classes' if 'must' in text else 'drop the row'}"
    return ""


def _bounded(weights: Array) -> Array:
    """Return weights with finite sums above 0; extreme weights are scaled by a power of two."""
    exponent = int(np.frexp(weights.max())[1])
    bounded: Array = weights if abs(exponent) < MAX_EXPONENT else np.ldexp(weights, -exponent)
    return bounded


def checked_settings(settings: Any, where: str) -> Mapping[str, Any]:
    """Return further settings by config keys.

    Raises: UsageError, led by `where`, for keys that estimators do not take.
    """
    if not isinstance(settings, Mapping | None):
        raise UsageError(f"{where}: settings must be a mapping of keys (got {settings!r})")
    for key in settings or {}:
        reason = OTHERWISE.get(key, "arrays have no such columns")
        if key in OTHERWISE or (str(key).startswith("data.") and key not in TAKEN_FROM_DATA):
            raise UsageError(f"{where}: settings: {key}: is not for estimators; {reason}")
    return {str(key): value for key, value in (settings or {}).items()}


class MlpEstimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Base of classifier and regressor; they differ in the treatment of targets."""

    _kind: ClassVar[Literal["classification", "regression"]]
    _members: Sequence[Member]
    _loss: Loss
    _ensemble_weights: tuple[float, ...]
    _residuals: Residuals | None
    _sets: ClassSets | None
    _edges: Sequence[Array]
    _range: tuple[list[float], list[float]] | None
    _log: bool

    def __init__(
        self,
        hidden: int | Sequence[int] | None = None,
        activation: str | GradOp | Sequence[str | GradOp] | None = None,
        *,
        dropout: float | Sequence[float] | None = None,
        loss: str | Loss = "auto",
        class_weight: str | Mapping[Any, float] | None = None,
        optimizer: str | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        early_stopping: bool | None = None,
        validation_fraction: float | None = None,
        folds: int | None = None,
        members: str | Sequence[str] | None = None,
        preset: str = "plain",
        settings: Mapping[str, Any] | None = None,
        threads: int = 1,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Store the parameters; `fit` checks them.  None is the default of the recipe `preset`.

        The defaults are the proposals of ``mlpengine init`` for the number of rows: the settings of
        a recipe, folds, and ensemble member types.

        Args:
            hidden: sizes of the hidden layers; 16 means [16].
            activation: the activation after every hidden layer, or one for each layer: a name, a
                formula of x, or an op.
            dropout: share of the hidden units that is dropped while training, or one for each
                layer.
            loss: the name of a loss, a formula of output y and target t, or a `Loss` with options,
                such as ``Quantile((0.1, 0.5, 0.9))``.
            class_weight: for a classifier, weights by label that multiply the weights of the rows,
                or "balanced" for n_rows / (n_classes * rows of the class).
            optimizer: the name of an optimizer; one that differs from the recipe's has its own
                default settings.
            lr: the learning rate.
            weight_decay: the share of the weights that is subtracted per unit of learning rate.
            batch_size: rows per step.
            epochs: maximum number of passes over the training rows.
            early_stopping: whether training ends when the loss on rows that do not train stops
                falling; the weights of the best epoch are kept.  Without `folds` these rows are
                held out.  False trains one network on all rows.
            validation_fraction: share of the rows, of each class in a classifier, that are held
                out for early stopping.
            folds: number of networks, each trained without one fold of the rows.  If
                `early_stopping` and `warm_start` are not set, None means eight for 80 to 100,000
                rows, fewer for fewer rows, and one network for fewer than 20 or more than 100,000
                rows.
            members: types of the ensemble members in each fold, one or several of plain, piecewise,
                periodic (with the preset "realmlp") and linear; `ensemble_weights_` are their
                weights in the mean.
                "plain" takes a third of the time of the default.
            preset: "plain" or "realmlp", a recipe of configs (`model.preset`).
            settings: further settings by config keys, such as
                ``{"training.clip_norm": 1.0, "schedule.name": "cosine"}``; they override others.
            threads: number of threads of a fit; scikit-learn runs fits side by side.
            warm_start: whether `fit` continues from the weights, the optimizer, the scaling and
                the classes of the last fit.
            verbose: whether to print a line for each epoch.
            random_state: a number has the effect of `seed` in a config and gives the same bits.
        """
        self.hidden, self.activation, self.dropout = hidden, activation, dropout
        self.loss, self.class_weight, self.optimizer = loss, class_weight, optimizer
        self.lr, self.weight_decay = lr, weight_decay
        self.batch_size, self.epochs = batch_size, epochs
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.folds, self.members, self.preset, self.settings = folds, members, preset, settings
        self.threads, self.warm_start, self.verbose = threads, warm_start, verbose
        self.random_state = random_state

    @property
    def mlp_(self) -> TabularNetwork:
        """The network, or the first of several.

        It reads features, standardized and clipped if `standardize` is set.  If there are piecewise
        networks, the components of their bins follow.
        """
        return self.mlps_[0]

    @property
    def mlps_(self) -> list[TabularNetwork]:
        """The networks: one for each fold, grouped by type, or a single one."""
        require_fit(self)
        return [member.mlp for member in self._members]

    @abstractmethod
    def _task(self) -> Task:
        """Return the task: the meaning of the outputs."""

    def _given_loss(self) -> Loss:
        """Return the loss given by `loss`.  Raises: UsageError if it suits another task."""
        *names, formula = losses_of(self._kind)
        loss = self.loss
        if isinstance(loss, str) and loss == "auto":
            preset = self.preset if self.preset in PRESETS else PRESETS[0]
            return recipe(preset, self._kind).training.loss or LOSSES[names[0]]()
        if isinstance(loss, str):
            if loss in names:
                return LOSSES[loss]()
            if is_formula(loss):
                return FormulaLoss(loss)
        if not isinstance(loss, Loss) or loss.name not in (*names, formula):
            known, near = ", ".join(names), ""
            if isinstance(loss, str):
                near = suggestion(loss, names)
            raise UsageError(
                f"loss: must be auto, {known}, a formula of y and t, or such a Loss "
                f"(got {quoted(loss)}){near}"
            )
        return loss

    @abstractmethod
    def _outputs(self, y: Array, loss: Loss) -> int:
        """Return the number of outputs that the network needs."""

    def _classes(self, y: Array) -> Array | None:
        """Return the class of each row if rows are held out class by class."""
        return None

    def _fit_target(self, y: Array, weights: Array | None) -> None:
        """Fit the scale of targets, or update it."""

    def _choose_transform(self, transform: TargetTransform, x: Any, y: Array) -> None:
        """Choose whether to learn the logarithm of targets.  Raises: UsageError, DataError."""
        if transform == "log":
            raise UsageError("transform_target: log is for numbers (got classes)")

    def _labels(self, y: Array) -> Array:
        """Return encoded targets in the caller's form."""
        return y

    def _scaled(self, y: Array) -> Array:
        """Return targets on the scale that the network learns."""
        return y

    def _fit(
        self,
        x: Array,
        y: Array,
        sample_weight: ArrayLike | None,
        divided_by: Mapping[str, Array],
    ) -> None:
        """Train on checked features and encoded targets, anew unless `warm_start` is set.

        `divided_by` holds the groups or times of rows, as returned by `division`.
        """
        self._check_parameters()
        weights = self._weights(sample_weight, y)
        if weights is not None:
            keep = weights > 0
            x, y, weights = x[keep], y[keep], weights[keep]
            divided_by = {name: values[keep] for name, values in divided_by.items()}
        duplicates = None
        if not divided_by:
            x, y, weights, duplicates = self._learned_once(x, y, weights)
            labels = self._classes(y)
            divided_by = {} if labels is None else {"labels": labels}
        again = self.warm_start and self.__sklearn_is_fitted__()
        if again:
            self._check_outputs(y)
            self._drop_schedules()
        else:
            self._begin(x, y)
        seed = self._seed()
        blocks = [len(np.unique(v)) for name, v in divided_by.items() if name != "labels"]
        count, ends_early = self._held_out(len(y), *blocks)
        settings = self._settings(len(y), seed, ends_early=ends_early, folds=count)
        folds = None
        if count is not None:
            folds = fold_rows(len(y), count, seed=seed, duplicates=duplicates, **divided_by)
        train, validation = np.arange(len(y)), np.arange(0)
        if ends_early and not count:
            train, validation = self._divide(len(y), seed, duplicates, divided_by)
        members: list[MemberType] = []
        if not again:
            members, self._edges = self._member_types(x[train], folded=folds is not None)
            self._fit_scale(x[train], y[train])
            self._choose_transform(settings.features.transform_target, x[train], y[train])
        network = settings.network
        if self.members is None and not can_be_linear(network):
            members = trained(members)
        training = replace(settings.training, members=tuple(members))
        task = self._task()
        if not self.verbose:
            task.headline = ()  # only the loss of an epoch is read
        part = self._part(x, y, weights, train)
        held_out = self._part(x, y, weights, validation) if len(validation) else None
        trainer = Trainer(
            replace(settings, training=training),
            task,
            part,
            held_out,
            folds=folds,
            in_time="times" in divided_by,
            numbers=self._numbers,
            members=self._members if again else (),
            ensemble_weights=self._ensemble_weights if again else (),
        )
        self._members, self._ensemble_weights = trainer.members, trainer.ensemble_weights
        data = {
            "X": x,
            "y": lambda: self._labels(y),
            "metadata": None if weights is None else {"sample_weight": weights},
        }
        context, callbacks = self._watched(data, training.epochs)
        fitted = trainer.fit(callbacks)
        self._keep(trainer, fitted)
        with trainer.pinned():
            self.verdicts_ = Verdicts([*self._leaks(x, y, train), *fitted.verdicts()])
        if context is not None:
            context.call_on_fit_task_end(estimator=self, **data)

    def _watched(self, data: dict[str, Any], epochs: int) -> tuple[Any, list[Callback]]:
        """Return scikit-learn's context of the fit, or None, and the callbacks for the loop."""
        callbacks: list[Callback] = [PrintEpochs()] if self.verbose else []
        if not hasattr(self, "set_callbacks"):
            return None, callbacks
        context = self._init_callback_context(max_subtasks=epochs)
        if not getattr(self, "_skl_callbacks", None):
            return None, callbacks
        context.call_on_fit_task_begin(estimator=self, **data)
        return context, [*callbacks, EpochTasks(self, context, data, self._so_far)]

    def _keep(self, trainer: Trainer, fitted: Fitted) -> None:
        """Store the results of a training."""
        result = fitted.result
        self._members = trainer.members_of(fitted)
        self._ensemble_weights = fitted.mean.ensemble_weights
        self._residuals, self._sets = fitted.residuals, fitted.sets
        if fitted.ensemble_weights:
            self.ensemble_weights_ = dict(fitted.ensemble_weights)
        self.n_iter_, self.best_epoch_ = result.epochs, result.best_epoch
        if trainer.folds is not None:
            self.best_epochs_ = fitted.best_epochs
        rows = result.history.rows
        self.loss_curve_ = [row.train_loss for row in rows]
        self.validation_loss_curve_ = [row.validation["loss"] for row in rows if row.validation]

    def _leaks(self, x: Any, y: Array, rows: Array) -> list[Verdict]:
        """Return a verdict for each feature that explains nearly all of a single target."""
        values = y.reshape(len(y), -1)
        if values.shape[1] != 1 or x.shape[1] > LEAK_FEATURES:
            return []
        rows = rows[:: -(-len(rows) // min(SEARCHED_ROWS, self._chunk(x)))]
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else [str(name) for name in names]
        table = Table.from_arrays(dense_rows(x[rows]).astype(np.float64), names=names)
        target = values[rows, 0].astype(np.float64)
        task: TaskName = "regression" if isinstance(self._task(), Regression) else "classification"
        leaks = find_leaks(table, table.names, target, task)
        return [leak_verdict(leak, "Leave it out of X", [leak.column]) for leak in leaks]

    def _so_far(self) -> dict[str, Any]:
        """Return the attributes of an estimator that predicts with the present weights."""
        return deepcopy({"_members": self._members})

    def _check_parameters(self) -> None:
        """Raise UsageError, naming the parameter, for wrong parameters that are not settings."""
        where = type(self).__name__
        if self.early_stopping not in (None, True, False):
            value = self.early_stopping
            raise UsageError(f"{where}: early_stopping must be True, False or None (got {value!r})")
        for name, of in (("folds", TrainingSettings), ("validation", SplitSettings)):
            given = "validation_fraction" if name == "validation" else name
            if (value := getattr(self, given)) is not None:
                fitting(f"{where}: {given}", options_of(of)[name].type, value)

    def _check_outputs(self, y: Array) -> None:
        """Check that targets fit the outputs of the network.  Raises: DataError."""
        outputs, own = self._outputs(y, self._loss), self._n_outputs
        if outputs != own:
            raise DataError(
                f"y: must have the columns of the first fit (it needs {plural(outputs, 'output')}, "
                f"and the network has {own})"
            )

    def _held_out(self, rows: int, blocks: int | None = None) -> tuple[int | None, bool]:
        """Return the number of folds, or None, and whether training ends early.

        Raises: UsageError for contradicting settings.
        """
        folds, ends_early = self.folds, self.early_stopping
        if folds is None and ends_early is None and not self.warm_start:
            folds = folds_for(rows, blocks)
            ends_early = folds is not None or rows > FOLDED_ROWS
        if folds is not None and self.warm_start:
            raise UsageError("folds: a fit with folds begins anew (warm_start must be False)")
        if folds is None and ends_early and self.validation_fraction == 0:
            raise UsageError("validation_fraction: must be above zero where training ends early")
        return folds, folds is not None if ends_early is None else ends_early

    def _member_types(self, x: Any, *, folded: bool) -> tuple[list[MemberType], list[Array]]:
        """Return the ensemble member types in each fold, none if all are alike, and edges of bins.

        Raises: UsageError for invalid `members`.
        """
        rows, columns = x.shape
        edges: list[Array] = []
        if self.members is not None:
            members = self._given_members(folded=folded)
            if "piecewise" in members:
                edges = quantile_edges(x)
        elif not folded or (issparse(x) and rows * columns > LINEAR_CELLS):
            members = []
        else:
            if encodes(rows, columns, self.preset):
                edges = quantile_edges(x)
            encoded = encodes(rows, sum(len(one) > 0 for one in edges), self.preset)
            members = [*members_for(rows, columns, self.preset, encoded=encoded)]
        return ([] if members in (["plain"], ["periodic"]) else members), edges

    def _given_members(self, *, folded: bool) -> list[MemberType]:
        """Return `members`, in order.  Raises: UsageError."""
        given = self.members
        members = [given] if isinstance(given, str) else [*(given or ())]
        known = get_args(MemberType)
        if not members or len(set(members)) < len(members) or not set(members) <= {*known}:
            raise UsageError(
                f"members: must be different ones of {', '.join(known)} (got {given!r})"
            )
        ordered = linear_last(cast("list[MemberType]", members))
        if not trained(ordered):
            raise UsageError(f"members: needs a type besides {LINEAR} (got {given!r})")
        if "periodic" in members and self.preset != "realmlp":
            raise UsageError(f"members: periodic needs preset='realmlp' (got {self.preset!r})")
        if not folded and ordered != ["plain"]:
            raise UsageError(f"members: needs folds, or enough rows for them (got {given!r})")
        return ordered

    def _partial_fit(self, x: Array, y: Array, sample_weight: ArrayLike | None) -> None:
        """Learn once from each row, in order, a batch at a time, with every network."""
        self._check_parameters()
        weights = self._weights(sample_weight, y)
        first = not self.__sklearn_is_fitted__()
        if first:
            self._begin(x, y)
            settings = self._settings(MIDDLE, self._seed(), folds=self.folds)
            if self.folds is not None or self.members is not None:
                text = "folds and members must be None"
                raise UsageError(f"partial_fit: begins with one network ({text})")
            if settings.features.transform_target == "log":
                raise UsageError("partial_fit: data.transform_target must be none (got 'log')")
        else:
            self._check_outputs(y)
        self._fit_scale(x, y, weights)
        part = self._part(x, y, weights, slice(None))
        if first:
            trainer = Trainer(settings, self._task(), part, more_rows=True, numbers=self._numbers)
            self._members = trainer.members
            self.n_iter_ = self.best_epoch_ = 0
            self.loss_curve_, self.validation_loss_curve_ = [], []
            self.verdicts_ = Verdicts()
        self._drop_schedules()
        total = 0.0
        for member in self._members:
            total += member.learn_once(part)
        self.n_iter_ += 1
        self.best_epoch_ = self.n_iter_
        self.loss_curve_.append(total / (len(y) * len(self._members)))

    def _drop_schedules(self) -> None:
        """Drop the recipe's schedules, because they end with the epochs of the first `fit`."""
        for member in () if self._has_schedule() else self._members:
            member.drop_schedules()

    def _has_schedule(self) -> bool:
        """Return whether `settings` have a schedule."""
        return any(str(key).partition(".")[0] == "schedule" for key in self.settings or {})

    def _seed(self) -> int:
        """Return the seed of a fit: `random_state` itself if it is a number."""
        given = self.random_state
        if isinstance(given, int | np.integer) and given >= 0:
            return int(given)
        return int(check_random_state(given).randint(2**31 - 1))

    def _class_weighted(self, y: Array, weights: Array | None) -> Array | None:
        """Return the weights of the rows times the weights of their classes."""
        if self.class_weight is None:
            return weights
        raise UsageError("class_weight: only a classifier of single labels has it")

    def _weights(self, sample_weight: ArrayLike | None, y: Array) -> Array | None:
        """Return checked weights of the rows times the weights of their classes.

        Raises: DataError.
        """
        weights: Array | None = None
        if sample_weight is not None:
            if isinstance(sample_weight, Real):
                sample_weight = np.full(len(y), sample_weight)
            weights = check_array(with_missing(sample_weight), ensure_2d=False, dtype=np.float64)
            if weights.shape != (len(y),) or weights.min() < 0 or not weights.any():
                raise DataError(
                    f"sample_weight: needs {plural(len(y), 'weight')}, none of them negative "
                    f"and not all zero (shape {weights.shape}, smallest {weights.min():g})"
                )
            weights = _bounded(weights)
        weights = self._class_weighted(y, weights)
        if weights is None:
            return None
        if not weights.any():
            raise DataError("class_weight: some row must have a weight above zero (all have 0)")
        return _bounded(weights)

    def _learned_once(
        self, x: Any, y: Array, weights: Array | None
    ) -> tuple[Any, Array, Array | None, Array | None]:
        """Return the distinct rows, and equal numbers for duplicates that differ in `y`."""
        duplicates = matrix_duplicates(x)
        once = duplicates.learned_once(y, weights)
        if once is None:
            return x, y, weights, duplicates.together
        rows, weights = once
        return x[rows], y[rows], weights, duplicates.of(rows).together

    def _divide(
        self, rows: int, seed: int, duplicates: Array | None, divided_by: Mapping[str, Array]
    ) -> tuple[Array, Array]:
        """Return the indices of the rows that train and of the rows that are held out."""
        share = self.validation_fraction
        share = validation_share_for(rows) if share is None else share
        split = split_rows(rows, (1 - share, share), seed=seed, duplicates=duplicates, **divided_by)
        return split.train, split.validation

    def _begin(self, x: Any, y: Array) -> None:
        """Remove the results of an earlier fit, and begin with the present parameters."""
        for name in ("best_epochs_", "ensemble_weights_"):
            self.__dict__.pop(name, None)
        self._loss = self._given_loss()
        self._n_outputs = self._outputs(y, self._loss)
        settings = self._settings(MIDDLE, 0)
        self._dtype = floating(settings.training.dtype, "mlp")
        self._scaler, self._target_scaler = StandardScaler(), StandardScaler()
        self._scales, self._edges, self._range = settings.features.standardize != "none", (), None
        self._log = False
        self._residuals = self._sets = None
        self._ensemble_weights = ()

    def _fit_scale(self, x: Any, y: Array, weights: Array | None = None) -> None:
        """Fit the scale of features and targets, or update it."""
        self._fit_target(y, weights)
        if self._scales:
            self._fit_scaler(x, weights)
        self._set_numbers()

    def _fit_scaler(self, x: Any, weights: Array | None) -> None:
        is_new = not hasattr(self._scaler, "n_samples_seen_")
        if is_new and weights is None and not issparse(x):
            self._scaler = exact_scale(x)
            return
        for start in range(0, x.shape[0], self._chunk(x)):
            rows = slice(start, start + self._chunk(x))
            weight = None if weights is None else weights[rows]
            self._scaler = updated_scale(self._scaler, dense_rows(x[rows]), weight, "X", start)

    def _set_numbers(self) -> None:
        """Update the computation of features from the present scale and the edges of bins."""
        count = self.n_features_in_
        center, factor = np.zeros(count), np.ones(count)
        if self._scales:
            center, factor = self._scaler.mean_, 1.0 / self._scaler.scale_
        sources = [Source(str(k)) for k in range(count)]
        self._numbers = Numbers(
            sources, center, factor, np.zeros(count), clip=self._scales, edges=self._edges
        )

    @staticmethod
    def _chunk(x: Any) -> int:
        """Return the number of rows that become dense at once: all rows of an array."""
        rows = DENSE // max(1, x.shape[1]) if issparse(x) else x.shape[0]
        return max(1, int(rows))

    def _settings(
        self, rows: int, seed: int, *, ends_early: bool | None = None, folds: int | None = None
    ) -> RunSettings:
        """Return the settings of network and training for `rows` rows, given or from the recipe.

        If `ends_early` is None, training may continue later, and the recipe's schedules are left
        out.  Raises: UsageError for invalid parameters.
        """
        if self.preset not in PRESETS:
            raise UsageError(f"preset: must be one of {', '.join(PRESETS)} (got {self.preset!r})")
        where = type(self).__name__
        run = recipe(self.preset, self._kind, rows)
        training, network = run.training, run.network
        if not self._has_schedule() and (self.warm_start or ends_early is None):
            optimizer: Any = replace(cast("Any", training.optimizer), decay_schedule="constant")
            training = replace(training, schedule=ConstantSchedule(), optimizer=optimizer)
            network = replace(network, dropout_schedule="constant")
        early = training.early_stopping or EarlyStopping()
        run = replace(
            run,
            seed=seed,
            network=network,
            training=replace(training, loss=self._loss, early_stopping=early, folds=folds),
        )
        for name, key in OPTIONS.items():
            value = getattr(self, name)
            if value is not None and (name, value) != ("optimizer", training.optimizer.name):
                run = with_setting(run, key, value, f"{where}: {name}")
        for key, value in checked_settings(self.settings, where).items():
            run = with_setting(run, key, value, f"{where}: settings: {key}")
        if not ends_early:
            run = replace(run, training=replace(run.training, early_stopping=None))
        return run

    def _part(self, x: Any, y: Array, weights: Array | None, rows: Array | slice) -> Split:
        """Return some rows in the form for the network, with weights that are 1 on average."""
        dtype = self._dtype
        target = self._task().learning_target(self._scaled(y[rows]), dtype)
        relative = None if weights is None else weights[rows] / weights[rows].mean()
        part = x[rows]
        return Split(
            self._raw(part) if issparse(part) else self._features(part),
            target,
            y[rows],
            None if relative is None else relative.astype(dtype),
        )

    def _features(self, x: Array) -> Array:
        """Return features in the form for the network.

        Raises: DataError for numbers that are too large for the network.
        """
        numbers = self._numbers
        features = np.empty((len(x), numbers.width), self._dtype)
        size = max(1, ENCODED // max(1, numbers.width))
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            if not numbers.write(x[rows].astype(np.float64), None, features[rows]):
                raise DataError(f"X: must be numbers that {features.dtype} holds after scaling")
        return features

    def _output(self, x: Any) -> Array:
        """Return the outputs of the network for features in the caller's form."""
        if not self.__sklearn_is_fitted__():
            require_fit(self)  # this asks for tags: a tenth of the time of a row
        checked = x if self._is_plain(x) else checked_data(self, x, reset=False)
        return self._mean.forward(self._raw(checked))

    def _raw(self, x: Any) -> RawRows:
        """Return the features of a matrix as rows that are computed when read."""
        return RawRows(x, self._features, self._numbers.width, self._dtype)

    def _is_plain(self, x: Any) -> bool:
        """Return whether `x` is an array that `validate_data` would return unchanged.

        The checks of `validate_data` take twice as long as all other work for one row.
        """
        return (
            type(x) is np.ndarray
            and x.ndim == 2
            and x.shape[0] > 0
            and x.shape[1] == self.n_features_in_
            and x.dtype in (np.float64, np.float32)
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(x).all())
        )

    @property
    def _mean(self) -> NetworkMean:
        """The mean of the networks."""
        return NetworkMean(
            [member.mlp for member in self._members], self._task(), self._ensemble_weights
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
