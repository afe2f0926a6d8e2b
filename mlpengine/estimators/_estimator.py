"""What the estimators share: parameters, scaling, training."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial, wraps
from numbers import Real
from typing import Any, ClassVar, Literal, cast, get_args
from zlib import crc32

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from mlpengine.data import Table, fold_rows, split_rows
from mlpengine.data.batches import steps_of_epoch
from mlpengine.data.kinds import Task as TaskKind
from mlpengine.data.leaks import find_leaks
from mlpengine.data.numbers import Numbers
from mlpengine.data.sources import Source
from mlpengine.diagnostics.leaks import leak_verdict
from mlpengine.diagnostics.verdict import Verdict, Verdicts
from mlpengine.errors import DataError, UsageError
from mlpengine.estimators._callbacks import CallbackSupportMixin, EpochTasks
from mlpengine.estimators._learner import Learner, PrintEpochs
from mlpengine.estimators._sparse import (
    DENSE,
    SparseRows,
    dense,
    exact_scale,
    issparse,
    quantile_edges,
    updated_scale,
)
from mlpengine.misuse import KnownAttributes, called_as
from mlpengine.nn import Front, Mlp
from mlpengine.nn.layers import is_formula
from mlpengine.nn.mlp import ROWS_AT_START
from mlpengine.ops import REGISTRY, FormulaLoss, GradOp, Loss
from mlpengine.optim import _checks
from mlpengine.optim._optimizer import ScheduleLike
from mlpengine.spec import Array, ArrayLike, DTypeLike
from mlpengine.train.best import EarlyStopping
from mlpengine.train.calibration import Residuals, cool, error_of_mean
from mlpengine.train.diagnose import LoopDiagnostics
from mlpengine.train.ensemble import SEEDS_APART, EnsembleLoop
from mlpengine.train.evaluate import MEASURED_AS_TRAINED, Scorer
from mlpengine.train.executors import choose_backend
from mlpengine.train.explain import importances
from mlpengine.train.kinds import Mean, best_mean, equal_shares, inputs_of, readings
from mlpengine.train.loop import Callback, Loop
from mlpengine.train.ranks import Ranks
from mlpengine.train.recipes import (
    FOLDED_ROWS,
    LINEAR,
    LINEAR_CELLS,
    MIDDLE,
    PRESETS,
    Kind,
    dropout_schedule,
    encodes,
    folds_for,
    in_order,
    kinds_for,
    network_options,
    optimizer_options,
    recipe,
    trained,
)
from mlpengine.train.task import LOSSES, Regression, Split, Task
from mlpengine.train.threads import pinned
from mlpengine.wording import plural

FEATURES: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
"""How scikit-learn checks features."""

IMPORTANCE_ROWS = 2_000
"""Rows whose features are permuted, evenly spread over those that did not train."""

LEAK_ROWS, LEAK_FEATURES = 1_000, 500
"""Greatest number of evenly spread training rows whose features are compared with the target, and
of features."""

ENCODED = 1 << 17
"""Numbers that become features at once, so that they stay in cache."""

EXTREME = 500
"""Exponent of a weight beyond which all weights are scaled."""

LEAST = {"batch_size": 1, "epochs": 1, "folds": 2, "patience": 1, "threads": 1}
"""The least value of each parameter that is a whole number."""


def undone_on_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method after whose errors an estimator has the attributes from before the call."""

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


@dataclass(frozen=True)
class Chosen:
    """The settings of a network and its training, as given or of the recipe."""

    hidden: Sequence[int]
    network: dict[str, Any]
    optimizer: str
    options: dict[str, Any]
    clip_norm: float | None
    batch_size: int
    epochs: int
    early_stopping: EarlyStopping | None
    dropout_schedule: ScheduleLike | None = None
    drop_last: bool = False
    calibrates: bool = False


def _bounded(weights: Array) -> Array:
    """Return weights whose sums are finite and above 0: extreme ones times a power of two."""
    exponent = int(np.frexp(weights.max())[1])
    bounded: Array = weights if abs(exponent) < EXTREME else np.ldexp(weights, -exponent)
    return bounded


class MlpEstimator(KnownAttributes, CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Base of classifier and regressor, which differ in the treatment of targets."""

    _kind: ClassVar[Literal["classification", "regression"]]
    _further: Sequence[Learner] = ()
    _shares: tuple[float, ...] = ()
    _residuals: Residuals | None = None
    _edges: Sequence[Array] = ()
    _range: tuple[list[float], list[float]] | None = None
    _scales = False  # whether the network reads scaled features: as `standardize` was at a fit

    @called_as("{name}(hidden=[64, 64], epochs=50)")
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
        schedule: str | ScheduleLike | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        early_stopping: bool | None = None,
        validation_fraction: float = 0.1,
        folds: int | None = None,
        members: str | Sequence[str] | None = None,
        importances: bool = False,
        patience: int | None = None,
        min_delta: float = 0.0,
        standardize: bool = True,
        warm_start: bool = False,
        verbose: bool = False,
        backend: str = "auto",
        threads: int = 1,
        dtype: str | type | None = None,
        random_state: int | np.random.RandomState | None = None,
        preset: str = "plain",
        shards: int = 1,
        comm: Any = None,
    ) -> None:
        """Store the parameters, which `fit` checks.

        The defaults are what ``mlpengine init`` proposes for so many rows: the settings of a
        recipe, and folds.  None is that of the recipe `preset`; ``members="auto"`` has the kinds of
        networks that `init` proposes, too.

        Args:
            hidden: sizes of the hidden layers; a number is the size of a single one.
            activation: after every hidden layer, or a sequence with one for each.
            dropout: share of hidden units dropped while training, or a sequence with one for each
                hidden layer.
            loss: what training minimizes: the name of a loss of configs, a formula of output y and
                target t, or a `Loss` with options, such as ``Quantile((0.1, 0.5, 0.9))``; "auto"
                is that of the recipe, or "softmax_cross_entropy" in a classifier and "mse" in a
                regressor.
            class_weight: of a classifier, weights by label, which multiply those of the rows, or
                "balanced" for n_rows / (n_classes * rows of the class).
            optimizer: "adam", "adamw", "lion", "nadam", "rmsprop" or "sgd"; another than the
                recipe's has its own settings, but for those that are given.
            lr: learning rate.
            schedule: of the learning rate: the name of one of configs, with its default settings
                and over all `epochs`, or a function from the number of steps to a factor.
            weight_decay: decoupled decay of weights, times `lr`.
            clip_norm: maximum global gradient norm; infinity does not clip.
            batch_size: rows per step.
            epochs: passes over the rows, at most.
            early_stopping: whether training ends when the loss of rows that do not train stops
                falling; the weights of the best epoch are kept.  Without `folds` these rows are
                held out.  False trains one network on all rows, as a fit with `sample_weight` that
                is to equal one on repeated rows has to.
            validation_fraction: share of rows held out, of each class in a classifier.
            folds: number of networks of each kind, each trained without one fold of the rows, whose
                best epoch the other folds choose; they predict their mean (`training.folds` of
                configs).
                None is eight where `early_stopping` and `warm_start` are not set, of 80 to 100,000
                rows; fewer of fewer rows, one network of fewer than 20 and of more than 100,000.
            members: kinds of networks, one of each kind per fold (`training.members` of configs):
                "plain" reads features, "piecewise" also their quantile bins, "periodic" also the
                cosines of the preset "realmlp", and "linear" is a linear model.  The mean weights
                the kinds by what is best out of fold (`shares_`).  "auto" is what ``mlpengine
                init`` proposes: all but "periodic" for 100 to 4,000 rows, without "piecewise" for
                fewer, and without "plain" for more.  None is plain networks alone, in less time.
            importances: whether `fit` computes `feature_importances_`, by permutation of features
                in rows that did not train; it needs `folds` or `early_stopping`.
            patience: epochs without a lower loss after which training ends.
            min_delta: minimum decrease of the loss that counts.
            standardize: whether to scale features, and the targets of a regressor, to mean 0 and
                deviation 1; predictions are in the targets' own units either way.  Scaled features
                are clipped smoothly to between -3 and 3, as those of configs are.
            warm_start: whether `fit` continues from the weights, the optimizer, the scaling and the
                classes of the last fit.
            verbose: whether to print a line for each epoch.
            backend: what runs the steps, as in configs: "auto" compiles where that pays, "numpy",
                "numexpr" or "compiled".
            threads: maximum for a compiled step, or of networks that train at the same time.
            dtype: of the network, "float32" or "float64"; None is that of the features, float64
                unless they are float32.
            random_state: of initial weights, order of rows, dropout and held-out rows; a number is
                the `seed` of a config, which gives the same bits.
            preset: "plain" or "realmlp", a recipe of configs (`model.preset`); of "realmlp" all
                features are embedded as numbers, and the temperature needs rows that do not train.
            shards: parts of a batch, a power of two, as for `TrainingStep`.
            comm: a communicator of mpi4py, whose ranks all fit on the same rows with the same
                `random_state`; they share the networks of `folds`, or of one network each batch,
                which needs as many `shards`.
        """
        self.hidden, self.activation, self.dropout = hidden, activation, dropout
        self.loss, self.class_weight, self.optimizer = loss, class_weight, optimizer
        self.lr, self.schedule, self.weight_decay = lr, schedule, weight_decay
        self.clip_norm, self.batch_size, self.epochs = clip_norm, batch_size, epochs
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.folds, self.members, self.importances = folds, members, importances
        self.patience, self.min_delta = patience, min_delta
        self.standardize, self.warm_start, self.verbose = standardize, warm_start, verbose
        self.backend, self.threads = backend, threads
        self.dtype, self.random_state, self.preset = dtype, random_state, preset
        self.shards, self.comm = shards, comm

    @property
    def mlp_(self) -> Mlp:
        """The network, or the first of several.

        It reads features, standardized and clipped where `standardize` is set, and then, where
        there are piecewise networks, the components of their bins.
        """
        check_is_fitted(self)
        return self._learner.mlp

    @property
    def mlps_(self) -> list[Mlp]:
        """The networks: one for each fold, kind by kind, or one."""
        check_is_fitted(self)
        return [learner.mlp for learner in self._learners]

    @property
    def _learners(self) -> list[Learner]:
        return [self._learner, *self._further]

    @abstractmethod
    def _task(self) -> Task:
        """Return how the outputs are read."""

    def _loss(self) -> Loss:
        """Return the loss that `loss` describes.  Raises: UsageError if it suits another task."""
        *names, formula = LOSSES[self._kind]
        loss = names[0] if self.loss == "auto" else self.loss
        if self.loss == "auto" and self.preset in PRESETS:
            options = {**recipe(self.preset, self._kind).get("loss", {"name": loss})}
            return cast("Loss", REGISTRY[options.pop("name")](**options))
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
        """Train on checked features and encoded targets, anew unless `warm_start` is set."""
        self._check_parameters()
        weights = self._weights(sample_weight, y)
        if weights is not None:
            keep = weights > 0
            x, y, weights = x[keep], y[keep], weights[keep]
        seed = self._seed()
        count, ends_early = self._held_out(len(y))
        folds = None
        if count is not None:
            folds = fold_rows(len(y), count, seed=seed, labels=self._classes(y))
        train, validation = self._divide(y, seed, holds_out=ends_early and not count)
        chosen = self._chosen(len(train), ends_early=ends_early)
        weighted = weights is not None
        again = self.warm_start and self.__sklearn_is_fitted__()
        kinds: list[Kind] = []
        if again:
            self._check_outputs(y)
        else:
            self._residuals = None
            for name in ("best_epochs_", "feature_importances_", "shares_"):
                if hasattr(self, name):
                    delattr(self, name)
            self._begin_scale()
            kinds, self._edges = self._kinds(x[train], folded=folds is not None)
            self._fit_scale(x[train], y[train], None if weights is None else weights[train])
        if folds is not None:
            members = self._fresh_members(x, y, folds, seed, kinds, ends_early=ends_early)
            if LINEAR in kinds and not self._can_be_linear():
                kinds = trained(kinds)
        elif not again:
            steps = -(-len(train) // chosen.batch_size)
            self._learner = self._fresh_learner(x, y, seed, chosen, train, steps, self.comm)
            self._further = ()
        diagnostics = LoopDiagnostics()
        tasks: list[Callback] = [PrintEpochs()] if self.verbose else []
        watched = False
        if hasattr(self, "set_callbacks"):
            context = self._init_callback_context(max_subtasks=chosen.epochs)
            metadata = None if weights is None else {"sample_weight": weights}
            data = {"X": x, "y": lambda: self._labels(y), "metadata": metadata}
            if getattr(self, "_skl_callbacks", None):
                context.call_on_fit_task_begin(estimator=self, **data)
                tasks.append(EpochTasks(self, context, data, self._so_far))
                watched = True
        part = self._part(x, y, weights, train)
        loop: Loop | EnsembleLoop
        ranks = None
        if folds is None:
            held_out = self._part(x, y, weights, validation) if len(validation) else None
            tasks.append(diagnostics)
            loop = self._loop(self._learner, chosen, part, held_out, seed, weighted, tasks)
        else:
            held_out = part
            count = int(folds.max()) + 1
            parts = [part.rows(np.flatnonzero(folds == k)) for k in range(count)]
            loops = [
                self._loop(
                    learner,
                    own,
                    part,
                    parts[k % count],
                    SEEDS_APART * seed + k,
                    weighted,
                    [] if k else [diagnostics],
                    rows=np.flatnonzero(folds != k % count),
                )
                for k, (learner, own) in enumerate(members)
            ]
            ranks = self._ranks_of(part, folds)
            groups = len(members) // count
            loop = EnsembleLoop(
                loops, threads=self.threads, kinds=groups, callbacks=tasks, ranks=ranks
            )
        with pinned(1):  # a second thread makes training slower on a busy machine
            result = loop.run()
            verdicts = Verdicts([*self._leaks(x, y, train), *diagnostics.verdicts()])
            self.verdicts_ = verdicts if ranks is None else ranks.of_root(verdicts)
            if folds is not None and kinds:
                self._weigh(kinds, part, folds)
            self._look_back(held_out, folds, calibrates=chosen.calibrates)
        if watched:
            context.call_on_fit_task_end(estimator=self, **data)
        rows = result.history.rows
        self.n_iter_, self.best_epoch_ = result.epochs, result.best_epoch
        if isinstance(loop, EnsembleLoop):
            self.best_epochs_ = loop.best_epochs
        self.loss_curve_ = [row.train_loss for row in rows]
        self.validation_loss_curve_ = [row.validation["loss"] for row in rows if row.validation]

    def _leaks(self, x: Any, y: Array, rows: Array) -> list[Verdict]:
        """Return a verdict for each feature that explains nearly all of a single target."""
        values = y.reshape(len(y), -1)
        if values.shape[1] != 1 or x.shape[1] > LEAK_FEATURES:
            return []
        rows = rows[:: -(-len(rows) // min(LEAK_ROWS, self._chunk(x)))]
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else [str(name) for name in names]
        table = Table.from_arrays(dense(x[rows]).astype(np.float64), names=names)
        target = values[rows, 0].astype(np.float64)
        task: TaskKind = "regression" if isinstance(self._task(), Regression) else "classification"
        leaks = find_leaks(table, table.names, target, task)
        return [leak_verdict(leak, "leave it out of X", [leak.column]) for leak in leaks]

    def _so_far(self) -> dict[str, Any]:
        """Return the attributes of an estimator that predicts as of now."""
        return deepcopy({"_learner": self._learner, "_further": self._further})

    def _loop(
        self,
        learner: Learner,
        chosen: Chosen,
        train: Split,
        validation: Split | None,
        seed: int,
        weighted: bool,
        callbacks: Sequence[Callback] = (),
        rows: Array | None = None,
    ) -> Loop:
        task = self._task()
        if not self.verbose:
            task.headline = ()  # nobody reads more than the loss of an epoch
        return Loop(
            learner.step(weighted=weighted),
            task,
            train,
            validation,
            epochs=chosen.epochs,
            early_stopping=chosen.early_stopping,
            rows=rows,
            seed=np.random.Generator(np.random.PCG64([seed, 1])),  # as in configs
            callbacks=callbacks,
            drop_last=chosen.drop_last,
        )

    def _check_parameters(self) -> None:
        """Check the parameters that neither the network nor its step checks.

        Raises: UsageError naming the parameter.
        """
        where = type(self).__name__
        for name, lowest in LEAST.items():
            value = getattr(self, name)
            if value is not None:
                _checks.count(where, name, value, minimum=lowest)
        _checks.number(where, "min_delta", self.min_delta, minimum=0.0)
        share = _checks.positive(where, "validation_fraction", self.validation_fraction)
        _checks.number(where, "validation_fraction", share, below=1.0)
        if self.early_stopping not in (None, True, False):
            value = self.early_stopping
            raise UsageError(f"{where}: early_stopping must be True, False or None (got {value!r})")

    def _check_outputs(self, y: Array) -> None:
        """Check that targets have the outputs of the network.  Raises: DataError."""
        outputs, own = self._outputs(y, self._learner.loss), self._learner.mlp.sizes[-1]
        if outputs != own:
            raise DataError(
                f"y: must have the columns of the first fit (it needs {plural(outputs, 'output')}, "
                f"and the network has {own})"
            )

    def _held_out(self, rows: int) -> tuple[int | None, bool]:
        """Return the number of folds, or None, and whether training ends early.

        Raises: UsageError for settings that exclude each other.
        """
        folds, ends_early = self.folds, self.early_stopping
        if folds is None and ends_early is None and not self.warm_start:
            folds = folds_for(rows)
            ends_early = folds is not None or rows > FOLDED_ROWS
        if folds is not None and self.warm_start:
            raise UsageError("folds: a fit with folds begins anew (warm_start must be False)")
        if folds is None and not ends_early and self.importances:
            raise UsageError("importances: needs folds, or early_stopping, which hold out rows")
        return folds, folds is not None if ends_early is None else ends_early

    def _kinds(self, x: Any, *, folded: bool) -> tuple[list[Kind], list[Array]]:
        """Return the kinds of networks in each fold, none where all are alike, and edges of bins.

        Raises: UsageError for `members` that cannot be.
        """
        rows, columns = x.shape
        edges: list[Array] = []
        if self.members is None:
            return [], []
        if self.members != "auto":
            kinds = self._given_kinds(folded=folded)
            if "piecewise" in kinds:
                edges = quantile_edges(x)
        elif not folded or (issparse(x) and rows * columns > LINEAR_CELLS):
            kinds = []
        else:
            if encodes(rows, columns, self.preset):
                edges = quantile_edges(x)
            encoded = encodes(rows, sum(len(one) > 0 for one in edges), self.preset)
            kinds = [*kinds_for(rows, columns, self.preset, encoded=encoded)]
        return ([] if kinds in (["plain"], ["periodic"]) else kinds), edges

    def _given_kinds(self, *, folded: bool) -> list[Kind]:
        """Return `members`, in order.  Raises: UsageError."""
        given = self.members
        kinds = [given] if isinstance(given, str) else [*(given or ())]
        known = get_args(Kind)
        if not kinds or len(set(kinds)) < len(kinds) or not set(kinds) <= {*known}:
            raise UsageError(
                f"members: must be different ones of {', '.join(known)} (got {given!r})"
            )
        ordered = in_order(cast("list[Kind]", kinds))
        if not trained(ordered):
            raise UsageError(f"members: needs a kind besides {LINEAR} (got {given!r})")
        if "periodic" in kinds and self.preset != "realmlp":
            raise UsageError(f"members: periodic needs preset='realmlp' (got {self.preset!r})")
        if not folded:
            raise UsageError(f"members: needs folds, or enough rows for them (got {given!r})")
        return ordered

    def _fresh_members(
        self,
        x: Any,
        y: Array,
        folds: Array,
        seed: int,
        kinds: Sequence[Kind],
        *,
        ends_early: bool,
    ) -> list[tuple[Learner, Chosen]]:
        """Make a learner for each fold and kind, as configs do; return them with their settings."""
        groups: Sequence[Kind | None] = trained(kinds) or [None]
        rows = [np.flatnonzero(folds != k) for k in range(int(folds.max()) + 1)] * len(groups)
        chosen = [self._chosen(len(own), ends_early=ends_early) for own in rows]
        steps = sum(-(-len(own) // c.batch_size) for own, c in zip(rows, chosen, strict=True))
        learners = [
            self._fresh_learner(
                x,
                y,
                SEEDS_APART * seed + k,
                chosen[k],
                rows[k],
                steps,
                kind=groups[k * len(groups) // len(rows)],
            )
            for k in range(len(rows))
        ]
        self._learner, *self._further = learners
        self._shares = equal_shares(len(groups))
        return [*zip(learners, chosen, strict=True)]

    def _can_be_linear(self) -> bool:
        """Return whether networks hold linear models: their activations can be left out.

        Raises: UsageError if they cannot, and `members` names them.
        """
        try:
            self._learner.mlp.like(learned_activation=True)
        except UsageError:
            if self.members != "auto":
                raise
            return False
        return True

    def _weigh(self, kinds: Sequence[Kind], part: Split, folds: Array) -> None:
        """Give each kind the share in the mean that is best out of fold."""
        loss, numbers = self._learner.loss, self._numbers
        plain = loss if isinstance(loss, MEASURED_AS_TRAINED) else REGISTRY[loss.name]()
        mean, self.shares_ = best_mean(
            self._mean,
            kinds,
            (loss, cast("Loss", plain)),
            part,
            folds,
            readings(numbers, numbers.width),
            threads=self.threads,
        )
        known = {id(learner.mlp): learner for learner in self._learners}
        self._learner, *self._further = [
            known.get(id(mlp)) or self._learner.of_linear(mlp) for mlp in mean.networks
        ]
        self._shares = mean.shares

    def _ranks_of(self, part: Split, folds: Array) -> Ranks | None:
        """Return the ranks that share the networks of folds, or None.

        Raises: UsageError, on every rank, unless they begin with the same networks and rows.
        """
        if self.comm is None:
            return None
        ranks = Ranks(self.comm)
        features = crc32(part.x.data) if isinstance(part.x, np.ndarray) else part.x.shape
        weights = [crc32(learner.mlp.params.flat.data) for learner in self._learners]
        values = {"features": features, "targets": crc32(part.y.data), "folds": crc32(folds.data)}
        if difference := ranks.difference({**values, "weights": weights}):
            raise UsageError(f"fit: {difference}")
        return ranks

    def _look_back(self, part: Split | None, folds: Array | None, *, calibrates: bool) -> None:
        """Keep what rows that did not train tell.

        That are residuals, a temperature where labels are smoothed, and the importance of features.
        """
        self._residuals = None
        if part is None:
            return
        mean, task = self._mean, self._task()
        scorer = Scorer(self._learner.loss, task, task.outputs, self._learner.mlp.dtype)

        def forward(x: Array, of_rows: Array | None = folds) -> Array:
            return mean.forward(x) if of_rows is None else mean.out_of_fold(x, of_rows)

        if folds is not None and isinstance(task, Regression):
            share = error_of_mean(task, mean.by_fold, folds, part, scorer.mean_loss)
            self._residuals = Residuals.of(task.predict(forward(part.x)) - part.truth, share)
        if calibrates:
            cool(mean.networks, task, forward(part.x), part)
        if self.importances:
            chosen = np.arange(0, len(part), -(-len(part) // IMPORTANCE_ROWS))
            some = None if folds is None else folds[chosen]
            numbers = range(len(self._numbers.sources))
            columns = [str(k) for k in (*numbers, *self._numbers.bins.columns)]
            ranked = importances(partial(forward, of_rows=some), scorer, part.rows(chosen), columns)
            by_name = {row.column: row.loss for row in ranked}
            self.feature_importances_ = np.array([by_name[str(k)] for k in numbers])

    def _partial_fit(self, x: Array, y: Array, sample_weight: ArrayLike | None) -> None:
        """Learn once from each row, in their order, a batch at a time, with every network."""
        self._check_parameters()
        weights = self._weights(sample_weight, y)
        first = not self.__sklearn_is_fitted__()
        if first:
            if self.folds is not None or self.members is not None:
                text = "folds and members must be None"
                raise UsageError(f"partial_fit: begins with one network ({text})")
            self._begin_scale()
        else:
            self._check_outputs(y)
        self._fit_scale(x, y, weights)
        if first:
            chosen = self._chosen(x.shape[0])
            steps = -(-x.shape[0] // chosen.batch_size)
            seed = self._seed()
            self._learner = self._fresh_learner(x, y, seed, chosen, None, steps, self.comm)
            self.n_iter_ = self.best_epoch_ = 0
            self.loss_curve_, self.validation_loss_curve_ = [], []
            self.verdicts_ = Verdicts()
        part = self._part(x, y, weights, slice(None))
        total = 0.0
        for learner in self._learners:
            if self.schedule is None:  # that of the recipe ends with the epochs of `fit`
                learner.leave_schedules()
            step = learner.step(weighted=weights is not None)
            for start in range(0, len(y), step.batch_size):
                rows = slice(start, min(start + step.batch_size, len(y)))
                weight = None if part.weights is None else part.weights[rows]
                total += step(part.x[rows], part.y[rows], weight) * (rows.stop - start)
        self.n_iter_ += 1
        self.best_epoch_ = self.n_iter_
        self.loss_curve_.append(total / (len(y) * len(self._learners)))

    def _seed(self) -> int:
        """Return the seed of a fit: `random_state` itself if it is a number."""
        given = self.random_state
        if isinstance(given, int | np.integer) and given >= 0:
            return int(given)
        return int(check_random_state(given).randint(2**31 - 1))

    def _class_weighted(self, y: Array, weights: Array | None) -> Array | None:
        """Return the weights of the rows times those of their classes."""
        if self.class_weight is None:
            return weights
        raise UsageError("class_weight: only a classifier of single labels has it")

    def _weights(self, sample_weight: ArrayLike | None, y: Array) -> Array | None:
        """Return checked weights of rows times those of their classes.

        Raises: DataError.
        """
        weights: Array | None = None
        if sample_weight is not None:
            if isinstance(sample_weight, Real):
                sample_weight = np.full(len(y), sample_weight)
            weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64)
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

    def _divide(self, y: Array, seed: int, *, holds_out: bool) -> tuple[Array, Array]:
        """Return the rows that train and those that are held out."""
        if not holds_out:
            return np.arange(len(y)), np.arange(0)
        share = self.validation_fraction
        split = split_rows(len(y), (1 - share, share), seed=seed, labels=self._classes(y))
        return split.train, split.validation

    def _begin_scale(self) -> None:
        self._scaler, self._target_scaler = StandardScaler(), StandardScaler()
        self._scales, self._edges, self._shares = self.standardize, (), ()
        self._range = None

    def _fit_scale(self, x: Any, y: Array, weights: Array | None) -> None:
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
            self._scaler = updated_scale(self._scaler, dense(x[rows]), weight, "X", start)

    def _set_numbers(self) -> None:
        """Compute features from the scale as it is now, and from the edges of bins."""
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
        """Return how many rows become dense at once: all of an array."""
        rows = DENSE // max(1, x.shape[1]) if issparse(x) else x.shape[0]
        return max(1, int(rows))

    def _chosen(self, rows: int, *, ends_early: bool | None = None) -> Chosen:
        """Return the settings of network and training on so many rows, as given or of the recipe.

        Where `ends_early` is None batches may be larger than these rows.  Where training may go on
        later, the recipe's schedules are left out.  Raises: UsageError for an unknown preset.
        """
        if self.preset not in PRESETS:
            raise UsageError(f"preset: must be one of {', '.join(PRESETS)} (got {self.preset!r})")
        ends = ends_early is not None
        sections = {**recipe(self.preset, self._kind, rows if ends else MIDDLE)}
        model = {
            **sections["model"],
            **self._given("activation", "dropout"),
            "hidden": sections["model"]["hidden"] if self.hidden is None else self.hidden,
        }
        training = {**sections["training"], **self._given("batch_size", "epochs", "clip_norm")}
        if self.optimizer not in (None, sections["optimizer"]["name"]):
            sections["optimizer"] = {"name": self.optimizer}
        sections["optimizer"] = {**sections["optimizer"], **self._given("lr", "weight_decay")}
        by_name = isinstance(self.schedule, str)
        if by_name:
            sections["schedule"] = {"name": self.schedule}
        batch_size = min(training["batch_size"], rows) if ends else training["batch_size"]
        drop_last = training.get("drop_last", False)
        in_epoch = steps_of_epoch(rows, batch_size, drop_last=drop_last)
        goes_on = self.warm_start or not ends  # while a recipe's schedule ends with its epochs
        steps = training["epochs"] * in_epoch if by_name or not goes_on else None
        options = optimizer_options(sections, steps, in_epoch)
        if not by_name and self.schedule is not None:
            options["schedule"] = self.schedule
        given = self.patience
        patience = training["early_stopping"]["patience"] if given is None else given
        clip_norm = training.get("clip_norm")
        return Chosen(
            np.atleast_1d(model["hidden"]).tolist(),
            network_options(model),
            sections["optimizer"]["name"],
            options,
            None if clip_norm == np.inf else clip_norm,
            batch_size,
            training["epochs"],
            EarlyStopping(patience, "loss", self.min_delta) if ends_early else None,
            dropout_schedule(sections, steps),
            drop_last,
            training.get("calibration", "none") != "none",
        )

    def _given(self, *names: str) -> dict[str, Any]:
        """Return the parameters that are not None, by name."""
        values = ((name, getattr(self, name)) for name in names)
        return {name: value for name, value in values if value is not None}

    def _fresh_learner(
        self,
        x: Any,
        y: Array,
        seed: int,
        chosen: Chosen,
        rows: Array | None,
        steps: int,
        comm: Any = None,
        *,
        kind: Kind | None = None,
    ) -> Learner:
        """Return a learner, of a network of some `kind` beside others.

        `rows` are those that initial weights may be fitted on, `steps` those of an epoch of all
        networks, `comm` a communicator whose ranks share each batch.
        """
        loss, numbers = self._loss(), self._numbers
        front = chosen.network.get("front")
        if kind is not None:
            count = len(numbers.sources)
            front = replace(front or Front(), masked=True, embedded=count)
        mlp = Mlp(
            [numbers.width, *chosen.hidden, self._outputs(y, loss)],
            seed=seed,
            dtype=x.dtype if self.dtype is None else self.dtype,
            **{**chosen.network, "front": front},
        )
        if kind is not None:
            mlp.select_inputs(inputs_of(kind, numbers, numbers.width, mlp.layers[0].in_dim))
        if rows is not None and mlp.initializer == "unit_variance":
            some = rows[:: -(-len(rows) // ROWS_AT_START)]
            mlp.initialize_from(self._features(dense(x[some]), np.float64), seed=seed)
        backend = self.backend
        if backend == "auto":
            backend = choose_backend(chosen.epochs * steps, mlp, chosen.batch_size)
        step = {
            "clip_norm": chosen.clip_norm,
            "dropout_schedule": chosen.dropout_schedule,
            "backend": backend,
            "threads": self.threads,
            "shards": self.shards,
            "comm": comm,
        }
        return Learner(mlp, loss, chosen.optimizer, chosen.options, chosen.batch_size, step)

    def _part(self, x: Any, y: Array, weights: Array | None, rows: Array | slice) -> Split:
        """Return some rows as the network takes them, their weights 1 on average."""
        dtype = self._learner.mlp.dtype
        target = self._task().learning_target(self._scaled(y[rows]), dtype)
        relative = None if weights is None else weights[rows] / weights[rows].mean()
        part = x[rows]
        features: Any = SparseRows(part, self._features) if issparse(part) else None
        return Split(
            self._features(part) if features is None else features,
            target,
            y[rows],
            None if relative is None else relative.astype(dtype),
        )

    def _features(self, x: Array, dtype: DTypeLike | None = None) -> Array:
        """Return features as the network reads them, in its dtype or another.

        Raises: DataError for numbers that are too large for it.
        """
        numbers = self._numbers
        features = np.empty((len(x), numbers.width), dtype or self._learner.mlp.dtype)
        size = max(1, ENCODED // max(1, numbers.width))
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            if not numbers.write(x[rows].astype(np.float64), None, features[rows]):
                raise DataError(f"X: must be numbers that {features.dtype} holds after scaling")
        return features

    def _output(self, x: Any) -> Array:
        """Return the outputs of the network for features as a caller gives them."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # which asks for tags, a tenth of the time of a row
        checked = x if self._is_plain(x) else validate_data(self, x, reset=False, **FEATURES)
        predict, features = self._mean.forward, self._features
        if not issparse(checked):
            return predict(features(checked))
        size = self._chunk(checked)
        blocks = range(0, max(1, checked.shape[0]), size)
        return np.concatenate([predict(features(dense(checked[i : i + size]))) for i in blocks])

    def _is_plain(self, x: Any) -> bool:
        """Return whether `x` is an array that `validate_data` would return as it is.

        Those checks take twice as long as all else for one row.
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
    def _mean(self) -> Mean:
        """The mean of the networks."""
        return Mean([learner.mlp for learner in self._learners], self._task(), self._shares)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learner")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
