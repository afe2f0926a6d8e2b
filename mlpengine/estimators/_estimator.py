"""The base class of the estimators: parameters, config, training and prediction."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, wraps
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from mlpengine.config.build import LoadedData, loss_and_task, trainer_of
from mlpengine.config.columns import column_verdicts
from mlpengine.config.load import ConfigFile
from mlpengine.config.proposal import complete_config
from mlpengine.config.tables import close_numbers, preprocessor_of
from mlpengine.core.buffers import with_missing
from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.fields import POSITIVE
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.core.wording import plural, quoted
from mlpengine.data.features import Preprocessor, profile
from mlpengine.data.features.drift import NewRows
from mlpengine.data.features.duplicate_rows import table_duplicates
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.features.targets import Target
from mlpengine.data.tables import Table
from mlpengine.data.tables.detect import Detected
from mlpengine.data.tables.dialect import DEFAULT
from mlpengine.data.tables.frames import as_table, categorical_columns
from mlpengine.data.tables.table import Column
from mlpengine.diagnostics.verdict import Verdicts
from mlpengine.estimators._rows import checked_rows, is_frame, matrix_features, plain_profile
from mlpengine.estimators._running import RunningScale
from mlpengine.fitting import as_config, checked_sections, loaded_data
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.members import NetworkMean
from mlpengine.models.model import Model
from mlpengine.models.task import Task, make_split, task_for
from mlpengine.nn import TabularNetwork
from mlpengine.nn.layers import is_formula
from mlpengine.ops import LOSSES, GradOp, Loss
from mlpengine.settings.features import TaskName
from mlpengine.settings.fix import put
from mlpengine.settings.recipes import FOLDED_ROWS, MIDDLE, folds_for, validation_share_for
from mlpengine.training.progress import Progress
from mlpengine.training.result import TOO_GOOD
from mlpengine.training.trainer import Fitted, Member, Trainer, model_of

_log = logging.getLogger("mlpengine")

SEARCHED_COLUMNS = 500
"""Maximum number of columns for verdicts on columns, such as leaks of the target."""

OPTIONS = {
    "hidden": "model.hidden",
    "activation": "model.activation",
    "dropout": "model.dropout",
    "optimizer": "optimizer.name",
    "lr": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay",
    "batch_size": "training.batch_size",
    "epochs": "training.epochs",
    "folds": "training.folds",
    "threads": "training.threads",
}
"""Config keys of the parameters that accept the same values as a config."""

PARAMETERS = {key: name for name, key in OPTIONS.items()} | {
    "loss": "loss",
    "data.class_weights": "class_weight",
    "training.early_stopping": "early_stopping",
    "training.members": "members",
}
"""Parameters by config key; keys without a parameter are given in ``settings``."""

REFUSED = {
    "data.source": "fit takes the rows",
    "data.validation_source": "write validation_fraction=",
    "data.test_source": "score takes the rows",
    "data.target": "fit takes the targets",
    "data.task": "the class of the estimator decides it",
    "data.classes": "fit takes the targets",
    "data.weight": "fit takes sample_weight",
    "data.exposure": "divide the targets by the exposure, and write fit(sample_weight=exposure)",
    "data.event": "write mlpengine.fit(table, target='days', data={'event': 'died'})",
    "data.class_weights": "write class_weight=",
    "data.lags": "mlpengine.fit has lags",
    "data.rolling": "mlpengine.fit has windows",
    "data.where": "fit takes the rows",
    "data.split": "write validation_fraction=, or fit(groups=) or fit(times=)",
    "data.stream": "fit takes arrays in memory",
    "loss": "write loss=",
    "seed": "write random_state=",
    "training.folds": "write folds=",
    "training.members": "write members=",
    "training.seeds": "write folds=",
}
"""Config keys that ``settings`` must not contain, each with advice."""


KEPT = (
    *("hidden", "activation", "dropout", "loss", "optimizer", "weight_decay", "batch_size"),
    *("members", "settings"),
)
"""Parameters of fitted networks and their steps; `fit` with `warm_start` and `partial_fit` need
the same values as the first fit."""


@lru_cache(maxsize=1_000)
def warn_once(line: str) -> None:
    """Log a warning once in a process, because cross-validation would repeat it for each fold."""
    _log.warning("warning: %s", line)


def rollback_on_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method so that the attributes are restored if it raises an error."""

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
    """Raise scikit-learn's NotFittedError if an estimator is not fitted."""
    check_is_fitted(estimator, msg="%(name)s: is not fitted yet; write estimator.fit(X, y) first")


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return a name that is not in `taken`: `name`, with leading underscores if needed."""
    return free_name(f"_{name}", taken) if name in taken else name


class MlpEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of classifier and regressor: `mlpengine.fit` with the interface of scikit-learn."""

    _members: Sequence[Member]
    _preprocessor: Preprocessor
    _problem: Task
    _loss: Loss
    _ensemble_weights: tuple[float, ...]
    _residuals: Residuals | None
    _sets: ClassSets | None
    _running: RunningScale | None
    _target_names: list[Any]
    _begun: Mapping[str, str]
    """The parameters of the first fit as text, for a fit that continues."""

    _checksum: int | None = None
    """Checksum of the rows of the first fit; None after a fit with `warm_start` on other rows."""

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
        settings: Mapping[str, Any] | None = None,
        threads: int = 1,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Store the parameters; `fit` checks them.

        None means the value that ``mlpengine init`` chooses by the number of rows.

        Args:
            hidden: sizes of the hidden layers; 16 means [16].
            activation: activation after every hidden layer, or one for each layer: a name, a
                formula of x, or an op.
            dropout: share of the hidden units that training drops, or a share for each layer.
            loss: name of a loss, a formula of output y and target t, or a `Loss` with options,
                such as ``Quantile((0.1, 0.5, 0.9))``.
            class_weight: for a classifier, weights by label, or "balanced" for weights n_rows /
                (n_classes * rows of the class).  They multiply the weights of the rows.
            optimizer: name of an optimizer.  If ``mlpengine init`` would choose another optimizer,
                ``lr=None`` and ``weight_decay=None`` mean the defaults of the named optimizer.
            lr: learning rate.
            weight_decay: each step multiplies the weights by 1 - lr * weight_decay (decoupled, as
                in AdamW).
            batch_size: rows per step.
            epochs: maximum number of passes over the training rows.
            early_stopping: whether training ends when the loss on validation rows stops falling;
                the weights of the best epoch are kept.  With folds, the validation rows of a
                network are the fold that it leaves out; for one network, they are
                `validation_fraction` of the rows.  With ``early_stopping=False`` and
                ``folds=None``, one network trains on all rows.
            validation_fraction: share of the rows (of each class in a classifier) that are held
                out for early stopping.
            folds: number of networks; each trains on all rows except one fold.  None means one
                network without folds.  But if neither `early_stopping` nor `warm_start` is set, it
                means eight folds for 80 to 100,000 rows, and fewer for 20 to 79 rows.
            members: types of the ensemble members in each fold: plain, piecewise, linear and
                smooth.  `ensemble_weights_` are the weights of these types in the mean.  "plain"
                alone takes a third of the default's time.
            settings: further settings by config key, such as
                ``{"training.clip_norm": 1.0, "schedule.name": "cosine"}``.  They replace the
                parameters of the same keys.
            threads: number of threads of a fit; scikit-learn runs several fits in parallel.
            warm_start: whether `fit` continues with the weights, optimizer, scaling and classes of
                the last fit; `lr` may change, and the other parameters of networks and steps
                cannot.
            verbose: whether to print a line for each epoch on stderr.
            random_state: a seed, equal to `seed` in a config, or a `RandomState` that draws a seed.
        """
        self.hidden, self.activation, self.dropout = hidden, activation, dropout
        self.loss, self.class_weight, self.optimizer = loss, class_weight, optimizer
        self.lr, self.weight_decay = lr, weight_decay
        self.batch_size, self.epochs = batch_size, epochs
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.folds, self.members, self.settings = folds, members, settings
        self.threads, self.warm_start, self.verbose = threads, warm_start, verbose
        self.random_state = random_state

    @property
    def mlp_(self) -> TabularNetwork:
        """The network, or the first of several.

        Its inputs are the features, scaled and clipped by the settings ``data.standardize`` and
        ``data.clip``.  With piecewise members, the features of quantile bins follow.
        """
        return self.mlps_[0]

    @property
    def mlps_(self) -> list[TabularNetwork]:
        """The networks: one for each fold, grouped by type, or a single network."""
        require_fit(self)
        return [member.mlp for member in self._members]

    @property
    def model_(self) -> Model:
        """The `Model` of the fit, with its methods such as `explain`, `compare` and `save`.

        Its columns have the names of the data frame (x0, x1, ... for a matrix).  The target has the
        name of the series `y`, or else "y".
        The model keeps no rows: write ``model_.explain_row(row, background=X)``.
        """
        mean = NetworkMean(self.mlps_, self._problem, self._ensemble_weights)
        preprocessor = copy(self._preprocessor)
        preprocessor.target = self._labeled_target()
        model = model_of(self._loss, mean, preprocessor)
        return replace(model, residuals=self._residuals, sets=self._sets)

    def _labeled_target(self) -> Target | None:
        """Return the encoding of the targets that the caller gave."""
        return self._preprocessor.target

    @property
    @abstractmethod
    def _task(self) -> TaskName:
        """The task in a config."""

    @abstractmethod
    def _target_of(self, names: list[str]) -> Target:
        """Return the encoding of targets for `partial_fit`, before any row is known."""

    def _class_weighted(self, y: Array, weights: Array | None) -> Array | None:
        """Return the weights of the rows times the weights of their classes."""
        if self.class_weight is None:
            return weights
        raise UsageError("class_weight: must be None for a regressor or for multilabel targets")

    # training

    def _fit(
        self,
        x: Any,
        y: Array,
        table: Table,
        sample_weight: ArrayLike | None,
        groups: Any = None,
        times: Any = None,
    ) -> None:
        """Train on a table of features and encoded targets `y` (rows, targets).

        `x` are the features as the caller gave them.  With `warm_start`, training continues.
        """
        again = self.warm_start and self.__sklearn_is_fitted__()
        if not again:
            for name in ("best_epochs_", "ensemble_weights_"):
                self.__dict__.pop(name, None)
            self._columns = table.names
        weights = self._weights(sample_weight, y)
        rows, divided_by = np.arange(len(y)), _division(groups, times, table)
        if weights is not None:
            rows = np.flatnonzero(weights)
            if self._task == "classification":
                self._require_rows(y, rows)
        if not divided_by:  # settings are chosen by the number of distinct rows
            given = table if weights is None else table.rows(rows)
            duplicates = table_duplicates(given, table.names, np.arange(given.n_rows))
            once = duplicates.learned_once(y[rows], None if weights is None else weights[rows])
            if once:
                kept, of_rows = once
                rows, weights = rows[kept], np.zeros(len(y))
                weights[rows] = of_rows
        if weights is not None:
            weights = weights / weights[rows].mean()
        if again:
            self._check_columns(y)
            self._take_lr()
        whole, targets, weight, names = self._joined(table, y, weights, divided_by)
        whole = whole if weights is None else whole.rows(rows)
        file = self._config(x, whole, targets, weight, names)
        before = self._preprocessor if again else None
        data = loaded_data(file, {"train": whole}, before, one_value=True)  # as scikit-learn
        for line in close_numbers(data.tables.preprocessor, type(self).__name__):
            warn_once(line)
        early = file.config.training.early_stopping
        shows = self.verbose or file.config.training.metrics
        if not (shows or (early and early.monitor != "loss")):
            data.task.headline = ()  # compute only the loss after each epoch
        kept_members = (self._members, self._ensemble_weights) if again else ((), ())
        if again and not self._has_schedule():
            for member in self._members:
                member.drop_schedules()
        if self.warm_start:
            self._compare_rows(data, again=again)
        trainer = trainer_of(data, members=kept_members[0], ensemble_weights=kept_members[1])
        self._members, self._ensemble_weights = trainer.members, trainer.ensemble_weights
        self._begun = self._begins()
        self._preprocessor, self._problem = data.tables.preprocessor, data.task
        self._running, self._loss = None, data.loss
        fitted = trainer.fit([Progress(True, live=False)] if self.verbose else [])
        self._keep(trainer, fitted)
        with trainer.pinned():
            known = fitted.verdicts()
        if len(self._columns) <= SEARCHED_COLUMNS:
            known = [*column_verdicts(file, data.tables), *known]
        own = {"settings": dict(self.settings)} if self.settings else {}
        self.verdicts_ = Verdicts(known, PARAMETERS, settings=own)

    def _partial_fit(self, x: Any, y: Array, table: Table, sample_weight: ArrayLike | None) -> None:
        """Train every network once on each row, in order, in batches."""
        weights, first = self._weights(sample_weight, y), not self.__sklearn_is_fitted__()
        weights = None if weights is None else weights / weights.mean()
        if not first:
            self._check_columns(y)
            self._take_lr()
        whole, targets, *_ = self._joined(table, y, None, {})
        if first:
            if self.folds is not None or self.members is not None:
                raise UsageError("partial_fit: folds and members must be None; or call fit first")
            self._columns = table.names
            file = self._config(x, whole, targets, None, {}, partial=True)
            self._preprocessor = preprocessor_of(file, []).fit(table)
            self._preprocessor.target = self._target_of(targets)
            self._loss, self._problem = loss_and_task(file, self._preprocessor)
            scales = file.config.data.standardize != "none"
            self._running = RunningScale.empty() if scales else None
        if self._running:
            self._running, self._preprocessor = self._running.after(
                self._preprocessor, self._loss, table, y, weights
            )
            self._problem = task_for(self._preprocessor.target, self._loss)
        task, dtype = self._problem, np.dtype(self._preprocessor.options.dtype)
        part = make_split(whole, None, self._preprocessor, task, dtype, weights=weights)
        if first:
            training = replace(file.config.settings.training, loss=self._loss)
            settings = replace(file.config.settings, training=training)
            numbers = self._preprocessor.numbers
            trainer = Trainer(settings, task, part, more_rows=True, numbers=numbers)
            self._members, self._ensemble_weights = trainer.members, ()
            self._begun = self._begins()
            self._residuals = self._sets = None
            self.n_iter_ = self.best_epoch_ = 0
            self.loss_curve_: list[float] = []
            self.validation_loss_curve_: list[float] = []
            self.verdicts_ = Verdicts()
        total, self._checksum = 0.0, None
        for member in self._members:
            if not self._has_schedule():
                member.drop_schedules()
            total += member.learn_once(part)
        self.n_iter_ += 1
        self.best_epoch_ = self.n_iter_
        self.loss_curve_.append(total / (len(y) * len(self._members)))

    def _config(
        self,
        x: Any,
        table: Table,
        targets: list[str],
        weight: str | None,
        divided_by: Mapping[str, str],
        *,
        partial: bool = False,
    ) -> ConfigFile:
        """Return the config of a fit; parameters of None get the values that ``init`` chooses.

        `divided_by` maps ``group`` or ``time`` to the name of a column.
        Raises: ConfigError for wrong parameters, UsageError for contradictory parameters.
        """
        where, rows = type(self).__name__, table.n_rows
        blocks = [len(table[name].distinct()) for name in divided_by.values()]
        folds, ends_early = (None, False) if partial else self._held_out(rows, *blocks)
        share = self.validation_fraction
        share = validation_share_for(rows) if share is None else share
        sections: dict[str, Any] = {
            "seed": self._seed(),
            "data": {"source": "the data in memory", "target": targets, "task": self._task},
        }
        data = sections["data"]
        data["split"] = {"test": 0.0, "validation": 0.0 if folds or not ends_early else share}
        data["split"] |= divided_by
        data["weight"] = weight
        columns = table.drop([weight] if weight else [])
        facts = plain_profile(columns, targets, self._task)
        categorical = categorical_columns(x) if is_frame(x) else []
        if categorical:
            data["categorical"] = categorical
        if facts:
            data["drop"] = []
        for name, key in OPTIONS.items():
            if getattr(self, name) is not None:
                put(sections, key, as_config(getattr(self, name)))
        training = sections.setdefault("training", {})
        training["folds"] = folds
        if self.members is not None:
            given = [self.members] if isinstance(self.members, str) else [*self.members]
            is_one = given in ([], ["plain"], ["piecewise"], ["linear"])
            training["members"] = [] if is_one else given
            if given == ["linear"]:
                if self.hidden is not None and np.size(self.hidden):
                    raise UsageError(f"hidden: must be None for linear members ({self.hidden})")
                sections.setdefault("model", {})["hidden"] = []
            data["encoding"] = "piecewise" if "piecewise" in given else "none"
        elif folds is None and (rows <= FOLDED_ROWS or self.early_stopping is not None):
            # for one network, encoding by bins would take most of the time
            data["encoding"] = "none"
        if isinstance(self.loss, str) and self.loss not in LOSSES and is_formula(self.loss):
            sections["loss"] = {"formula": self.loss}
        elif self.loss != "auto":
            sections["loss"] = self.loss
        if (partial or self.warm_start) and not self._has_schedule():
            put(sections, "schedule", "constant")
        if partial:
            data |= {"encoding": "none", "transform_target": "none"}
        self._put_settings(sections)
        if not ends_early:
            training["early_stopping"] = False
        if partial:  # the number of rows is not known
            facts = replace(facts or profile(columns, targets, task=self._task), n_rows=MIDDLE)
        complete_config(sections, Detected(table, DEFAULT, []), categorical, facts)
        return checked_sections(sections, where)

    def _put_settings(self, sections: dict[str, Any]) -> None:
        """Put `settings` into the config sections.  Raises: UsageError for keys in `REFUSED`."""
        where = f"{type(self).__name__}: settings"
        if not isinstance(self.settings, Mapping | None):
            raise UsageError(f"{where}: must be a mapping of keys (got {quoted(self.settings)})")
        for key, value in _by_key(self.settings or {}):
            for refused, advice in REFUSED.items():
                if f"{key}.".startswith(f"{refused}."):
                    raise UsageError(f"{where}: {key}: is not for estimators; {advice}")
            put(sections, key, as_config(value))

    def _held_out(self, rows: int, blocks: int | None = None) -> tuple[int | None, bool]:
        """Return the number of folds, or None, and whether training may end early."""
        folds, ends_early = self.folds, self.early_stopping
        if ends_early not in (None, True, False):
            raise UsageError(f"early_stopping: must be True, False or None (got {ends_early!r})")
        if folds is None and ends_early is None and not self.warm_start:
            folds = folds_for(rows, blocks)
            ends_early = folds is not None or rows > FOLDED_ROWS
        if folds is not None and self.warm_start:
            raise UsageError("folds: must be None with warm_start; write folds=None")
        return folds, folds is not None if ends_early is None else bool(ends_early)

    def _compare_rows(self, data: LoadedData, *, again: bool) -> None:
        """Warn if rows that trained the networks before may be validation rows now."""
        checksum = data.checksum
        if not again:
            self._checksum = checksum
        elif checksum != self._checksum:
            self._checksum = None
            if len(data.parts) > 1:
                warn_once(f"{type(self).__name__}: {TOO_GOOD}")

    def _require_rows(self, y: Array, rows: Array) -> None:
        """Raise DataError for a class without any of `rows`, the rows with a weight above 0."""
        if len(without := np.setdiff1d(y, y[rows])):
            label = self._labels(without[:1, np.newaxis]).tolist()[0]
            raise DataError(
                f"fit: each class needs a row with a weight above 0 ({quoted(label)} has none); "
                "leave its rows out, or change its class_weight or sample_weight"
            )

    def _begins(self) -> dict[str, str]:
        return {name: repr(getattr(self, name)) for name in (*KEPT, "lr")}

    def _take_lr(self) -> None:
        """Set a changed `lr`.  Raises: UsageError if a parameter of `KEPT` has changed."""
        now = self._begins()
        for name in KEPT:
            if now[name] != self._begun[name]:
                raise UsageError(
                    f"{name}: must be as in the first fit ({self._begun[name]:.60}, now "
                    f"{now[name]:.60}): fitted networks keep it, and only lr may change; to begin "
                    "again, call fit with warm_start=False"
                )
        if now["lr"] != self._begun["lr"]:
            for member in self._members:
                member.optimizer.lr = POSITIVE.check("lr", self.lr)
            self._begun = now

    def _check_columns(self, y: Array) -> None:
        """Raise DataError unless `y` has as many columns as in the first fit."""
        target = self._preprocessor.target
        if target and y.shape[1] != len(target.columns):
            raise DataError(
                f"y: must have the columns of the first fit (got {y.shape[1]}, "
                f"and it had {len(target.columns)})"
            )

    def _has_schedule(self) -> bool:
        """Return whether `settings` has a schedule; the default schedule is for one fit only."""
        return any(str(key).partition(".")[0] == "schedule" for key in self.settings or {})

    def _seed(self) -> int:
        """Return the seed of a fit: `random_state`, or a number drawn from it."""
        given = self.random_state
        if isinstance(given, int | np.integer) and given >= 0:
            return int(given)
        return int(check_random_state(given).randint(2**31 - 1))

    def _weights(self, sample_weight: ArrayLike | None, y: Array) -> Array | None:
        """Return the weights of rows times the weights of classes, or None.  Raises: DataError."""
        weights: Array | None = None
        if sample_weight is not None:
            if isinstance(sample_weight, Real):
                sample_weight = np.full(len(y), sample_weight)
            weights = check_array(
                with_missing(sample_weight),
                ensure_2d=False,
                dtype=np.float64,
                input_name="sample_weight",
            )
            if weights.shape != (len(y),):
                count = plural(len(y), "weight")
                raise DataError(f"sample_weight: needs {count} (got shape {weights.shape})")
            row = int(weights.argmin())
            if weights[row] < 0 or not weights.any():
                raise DataError(
                    f"sample_weight, row {row + 1}: must be 0 or more, and not all zero "
                    f"({weights[row]:g})"
                )
            weights = weights / weights.max()  # sums stay finite
        weights = self._class_weighted(y, weights)
        if weights is None:
            return None
        if not weights.any():
            raise DataError("class_weight: a row must have a weight above zero (all have 0)")
        return np.where(weights < np.finfo(np.float32).tiny * weights.max(), 0.0, weights)

    def _joined(
        self, table: Table, y: Array, weights: Array | None, divided_by: Mapping[str, Column]
    ) -> tuple[Table, list[str], str | None, dict[str, str]]:
        """Return a table with targets and weights, and the names of these columns."""
        count, taken, targets = y.shape[1], table.names, self._target_names
        named = all(isinstance(name, str) and name and name not in taken for name in targets)
        if not named or not len({*targets}) == len(targets) == count:
            targets = [free_name(f"y{k}" if count > 1 else "y", taken) for k in range(count)]
        taken = [*taken, *targets]
        columns = {name: Column(y[:, k]) for k, name in enumerate(targets)}
        weight = None if weights is None else free_name("weight", taken)
        if weight and weights is not None:
            columns[weight] = Column(weights)
        names = {key: free_name(key, taken) for key in divided_by}
        columns |= {names[key]: column for key, column in divided_by.items()}
        return table.join(Table(columns, table.source)), targets, weight, names

    def _keep(self, trainer: Trainer, fitted: Fitted) -> None:
        result = fitted.result
        self._members, self._ensemble_weights = (
            trainer.members_of(fitted),
            fitted.mean.ensemble_weights,
        )
        self._residuals, self._sets = fitted.residuals, fitted.sets
        self._problem = fitted.mean.task
        if fitted.ensemble_weights:
            self.ensemble_weights_ = dict(fitted.ensemble_weights)
        self.n_iter_, self.best_epoch_ = result.epochs, result.best_epoch
        if trainer.folds is not None:
            self.best_epochs_ = [*result.best_epochs]
        self.history_ = result.history
        rows = result.history.rows
        self.loss_curve_ = [row.train_loss for row in rows]
        self.validation_loss_curve_ = [row.validation["loss"] for row in rows if row.validation]

    # prediction

    def _output(self, x: Any) -> Array:
        """Return the mean output of the networks for features as the caller gave them."""
        if not self.__sklearn_is_fitted__():
            require_fit(self)  # scikit-learn's check takes longer than the prediction of one row
        networks = [member.mlp for member in self._members]
        mean = NetworkMean(networks, self._problem, self._ensemble_weights)
        if self._is_plain(x):
            return mean.forward(matrix_features(x, self._preprocessor))
        table, _ = checked_rows(self, x, reset=False, fitted=self._preprocessor)
        if table.names != self._columns:  # scikit-learn has already warned of other names
            pairs = zip(self._columns, table.columns.values(), strict=True)
            table = Table(dict(pairs), table.source)
        output = mean.forward(self._preprocessor.features_of(table))
        if is_frame(x):  # warn of drift, as `Model.predict` does; slow for arrays
            for line in NewRows(self._preprocessor).add(table).lines():
                warn_once(f"{table.source}: {line}")
        return output

    def _known(self, reset: bool, y: Any) -> Preprocessor | None:
        """Return the fitted preprocessor; for a new fit, keep the names of `y` and return None."""
        if not reset:
            return self._preprocessor
        names = getattr(y, "columns", [getattr(y, "name", None)])
        self._target_names = [*getattr(y, "column_names", names)]
        return None

    def _is_plain(self, x: Any) -> bool:
        """Return whether `x` is an array of usable numbers; then `_output` skips slow checks."""
        return (
            type(x) is np.ndarray
            and x.ndim == 2
            and x.shape[0] > 0
            and x.shape[1] == self.n_features_in_
            and x.dtype in (np.float64, np.float32)
            and not hasattr(self, "feature_names_in_")
            and not self._preprocessor.categories
            and len(self._preprocessor.fitted_numbers.sources) == self.n_features_in_
            and bool(x.max() <= LIMIT and x.min() >= -LIMIT)  # NaN fails a comparison
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_members")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


def _by_key(settings: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings by config key: {"optimizer": {"lr": 1}} yields "optimizer.lr", 1."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and "." not in str(name):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        else:
            yield str(name), value


def _division(groups: Any, times: Any, table: Table) -> dict[str, Column]:
    """Return the column of groups or times by its key in ``data.split``; {} without them."""
    given = {key: one for key, one in (("group", groups), ("time", times)) if one is not None}
    if len(given) > 1:
        raise DataError(f"{table.source}: fit takes groups or times, not both")
    columns = {}
    for key, values in given.items():
        column = as_table({f"{key}s": values}, source=table.source)[f"{key}s"]
        if len(column.values) != table.n_rows:
            raise DataError(
                f"{table.source}: {key}s: needs one entry per row ({table.n_rows}; "
                f"got {len(column.values)})"
            )
        is_date = key == "time" and column.kind == "date"  # a column of dates would become features
        columns[key] = Column(column.values) if is_date else column
    return columns
