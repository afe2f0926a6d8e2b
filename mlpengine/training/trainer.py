"""Training of networks from settings and rows, for every caller.

Configs, `mlpengine.fit`, trials of a sweep and estimators read rows and settings, call `Trainer`,
and keep or write the results.  `Trainer` decides, in this order:

- folds and seeds: `Trainer.row_count`, and `seeds_of`;
- networks, and the inputs of each ensemble member type: `Trainer._make_networks`;
- rows of a step, threads, backend: `step_rows`, `_allowed_threads`, `_chosen_backend`;
- optimizers, schedules and steps: `Trainer._member` returns a `Member`;
- the loop: `Trainer.loop`;
- ensemble weights, temperature, threshold, residuals, prediction sets: `Trainer.finish` returns a
  `Fitted`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError, at_setting
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.batches import steps_of_epoch
from mlpengine.data.features.numbers import Numbers
from mlpengine.diagnostics import Verdict
from mlpengine.models.calibration import ClassSets, Residuals, error_of_mean, fit_temperature
from mlpengine.models.evaluate import Evaluator, Scorer
from mlpengine.models.members import (
    NetworkMean,
    best_mean,
    inputs_of,
    linear_projections,
)
from mlpengine.models.model import Model
from mlpengine.models.smooth import check_smooth
from mlpengine.models.task import Classification, Regression, Split, Task
from mlpengine.models.threshold import choose_threshold
from mlpengine.nn import TabularNetwork
from mlpengine.ops import Loss
from mlpengine.optim import FullBatch, Optimizer, Schedule
from mlpengine.optim.schedules import ScheduleLike
from mlpengine.settings import MemberType, RunSettings
from mlpengine.settings.training import SMOOTH
from mlpengine.step.auto_backend import choose_backend
from mlpengine.step.blas_threads import cores, pinned
from mlpengine.step.ranks import Ranks
from mlpengine.step.shards import shards_problem
from mlpengine.step.step import TrainingStep
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.loop import Callback, Loop, Result
from mlpengine.training.networks import make_network, ranges_of
from mlpengine.training.transfer import CalibrationSet
from mlpengine.training.warm_start import copy_weights

NEWEST = 3 / 8
"""Share of the folds that give the errors for prediction intervals, if folds follow each other in
time; these are the newest folds."""

SEED_STRIDE = 1_000
"""Network k of several in a run with seed s has the seed `SEED_STRIDE` * s + k."""

_log = logging.getLogger("mlpengine")


class Member:
    """A network with an optimizer and training steps; a step is bound at the first use.

    A copy or pickle has its own network and optimizer, and binds its steps again.

    Args:
        step: further arguments of `TrainingStep`.
    """

    def __init__(
        self,
        mlp: TabularNetwork,
        loss: Loss,
        optimizer: Optimizer,
        batch_size: int,
        step: Mapping[str, Any],
    ) -> None:
        self.mlp, self.loss, self.optimizer, self.batch_size = mlp, loss, optimizer, batch_size
        self._options = step
        self._steps: dict[bool, TrainingStep] = {}

    def step(self, *, weighted: bool) -> TrainingStep:
        """Return the step with or without sample weights; both train the same network."""
        if weighted not in self._steps:
            self._steps[weighted] = TrainingStep(
                self.mlp,
                self.loss,
                self.optimizer,
                self.batch_size,
                weighted=weighted,
                **self._options,
            )
        return self._steps[weighted]

    def learn_once(self, part: Split) -> float:
        """Make one step on each batch of a part, in order; return the sum of the rows' losses."""
        step, total = self.step(weighted=part.weights is not None), 0.0
        for start in range(0, len(part), step.batch_size):
            rows = slice(start, min(start + step.batch_size, len(part)))
            weights = None if part.weights is None else part.weights[rows]
            total += step(part.x[rows], part.y[rows], weights) * (rows.stop - rows.start)
        return total

    def drop_schedules(self) -> None:
        """Continue with a constant learning rate; the schedule may have ended at 0."""
        if self.optimizer.schedule is not None:
            self.optimizer.schedule = None
            self._steps.clear()  # the steps are bound to the schedule

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_steps": {}}


@dataclass(frozen=True, eq=False)
class Fitted:
    """Trained networks, with measurements on rows that were not used to train them.

    Attributes:
        loss: the training loss.
        mean: the networks; the prediction is the mean of their outputs.
        result: the result of the loop.
        ensemble_weights: weight of each ensemble member type, possibly 0; empty for a single type.
        temperature: divisor of the logits.
        mean_error: error of the mean as a share of a single network's error (`error_of_mean`).
        residuals: out-of-fold errors of numbers (each by a network not trained on the row).
        sets: out-of-fold probabilities of the true classes.
        evaluator: measures a single network, on all ranks; None for several networks.
        diagnostics: diagnostics of the first network, unless they are off.
    """

    loss: Loss
    mean: NetworkMean
    result: Result
    ensemble_weights: Mapping[MemberType, float] = field(default_factory=dict)
    temperature: float = 1.0
    mean_error: Array | None = None
    residuals: Residuals | None = None
    sets: ClassSets | None = None
    evaluator: Evaluator | None = None
    diagnostics: LoopDiagnostics | None = None

    def verdicts(self) -> list[Verdict]:
        """Return the problems of the training, or an empty list."""
        return self.diagnostics.verdicts() if self.diagnostics else []

    @property
    def scored_loss(self) -> Loss:
        """Loss for scores: the training loss or, for calibrated outputs, the evaluation loss."""
        return self.loss if self.temperature == 1 else self.loss.plain()

    def model(self, preprocessor: Preprocessor) -> Model:
        """Return a model with these networks and this preprocessor."""
        model = model_of(self.loss, self.mean, preprocessor)
        return replace(model, residuals=self.residuals, sets=self.sets)


class Trainer:
    """Networks with their optimizers and steps, ready to learn from rows.

    With folds, each network trains on the rows outside one fold.  Without folds, several networks
    differ in their seeds.  With several ensemble member types, each fold has one network of each
    type.

    Args:
        settings: settings of the network, the training and the seed.
        task: the task, which turns outputs into predictions and metrics.
        train, validation: the rows; validation is None with folds or without a validation part.
        folds: the fold of each training row; `settings.training.folds` is the number of folds.
        in_time: whether folds follow each other in time.
        planned_split: how the parts differ on purpose (see `Diagnostics`).
        numbers: which features are numbers, and which are bins of numbers.  Some ensemble member
            types read the numbers, others the bins.
        ranks: processes that share the batches of one network, or several networks.
        warm_start: networks with the initial weights.
        members, ensemble_weights: members and weights of an earlier training to continue.
        more_rows: whether more rows follow later (`partial_fit`).  A batch may then have more rows
            than `train`, and initial weights do not depend on the rows.
        calibration_set: synthetic rows that calibrate a student network; `train` has the rows with
            a teacher's labels.

    Attributes:
        networks: the networks, grouped by type, in the order of folds or seeds.
        members: the networks with their optimizers, in the same order.
        seeds: seed of each network, for its weights and the order of its rows.
        ensemble_weights: weights of the member types for the networks in their current state.
        threads: maximum number of threads of a step, or of networks that train in parallel.

    Raises: UsageError, with the wrong setting, for settings that do not fit rows or each other.
    """

    def __init__(
        self,
        settings: RunSettings,
        task: Task,
        train: Split,
        validation: Split | None = None,
        *,
        folds: Array | None = None,
        in_time: bool = False,
        planned_split: str = "",
        numbers: Numbers | None = None,
        ranks: Ranks | None = None,
        warm_start: Sequence[TabularNetwork] = (),
        members: Sequence[Member] = (),
        ensemble_weights: tuple[float, ...] = (),
        more_rows: bool = False,
        calibration_set: CalibrationSet | None = None,
    ) -> None:
        training = settings.training
        if training.loss is None:
            raise UsageError("trainer: settings.training.loss must be given (got None)")
        labels = [] if validation is None else np.unique(validation.truth).tolist()
        if training.threshold is not None and folds is None and len(labels) < 2:
            with at_setting("training", "threshold"):
                needs = "threshold: needs folds, or validation rows of both classes"
                raise UsageError(f"{needs}; set training.folds")
        self.settings, self.task, self.loss = settings, task, training.loss
        self.train, self.validation, self.folds = train, validation, folds
        self.planned_split = planned_split
        self.in_time, self.numbers, self.ranks = in_time, numbers, ranks
        self.calibration_set = calibration_set
        self._last: Loop | None = None
        self._watch: LoopDiagnostics | None = None
        self.member_types = training.trained_members if numbers is not None else []
        each = training.folds or training.seeds or len(members) or 1
        self.seeds = seeds_of(settings.seed, each * (len(self.member_types) or 1))
        self.threads = self._allowed_threads()
        if members:
            self.networks: Sequence[TabularNetwork] = [member.mlp for member in members]
            self.members, self.ensemble_weights = tuple(members), ensemble_weights
            return
        self.networks = self._make_networks()
        types = len(self.member_types)  # equal weights until out-of-fold outputs choose them
        self.ensemble_weights = (1 / types,) * types if types > 1 else ()
        copy_weights(warm_start, self.networks)
        self.batch_size = training.batch_size
        if not more_rows:
            self.batch_size = step_rows(self.batch_size, len(train), folds)
        self.backend = self._chosen_backend()
        self.members = tuple(self._make_members())
        if training.threads == "auto" and len(self.members) == 1:
            self.threads = self.step.threads_used

    @property
    def steps(self) -> list[TrainingStep]:
        """The bound step of each network."""
        return [member.step(weighted=self.train.weights is not None) for member in self.members]

    @property
    def step(self) -> TrainingStep:
        """The step of the first network."""
        return self.steps[0]

    def row_count(self, k: int) -> int:
        """Return the number of rows that network `k` learns from."""
        if self.folds is None:
            return len(self.train)
        return int(np.count_nonzero(self.folds != k % (int(self.folds.max()) + 1)))

    # networks: member types, folds and seeds

    def _make_networks(self) -> Sequence[TabularNetwork]:
        """Return the networks, with initial weights."""
        settings, train, types, seeds = self.settings, self.train, self.member_types, self.seeds
        in_dim, training, numbers = train.x.shape[1], settings.training, self.numbers
        ends = (in_dim, self.task.outputs)
        first = make_network(settings.network, ends, seed=settings.seed, dtype=training.dtype)
        with at_setting("training", "freeze"):
            first.freeze(training.freeze)
        if SMOOTH in training.fold_members and numbers is not None:
            with at_setting("training", "members"):
                read = inputs_of("plain", numbers, in_dim)
                others = [one for one in training.members if one != SMOOTH]
                check_smooth(self.loss.title, int(read.sum()), self.task.outputs, others)
        reads = [first.reads]
        if types and numbers is not None:
            reads = [ranges_of(inputs_of(one, numbers, in_dim)) for one in types]
        kinds = [first.like(reads=one) for one in reads]
        networks = [
            kinds[k * len(kinds) // len(seeds)].like(seed=seed) for k, seed in enumerate(seeds)
        ]
        for mlp in networks:
            if self.loss.initial_divisor != 1:
                mlp.divide_outputs(self.loss.initial_divisor)
        return networks

    # threads, backends, optimizers, steps

    def _allowed_threads(self) -> int:
        given, ranks, networks = self.settings.training.threads, self.ranks, len(self.seeds)
        threads = cores() if given == "auto" else given
        if given == "auto" and networks > 1:
            threads = min(threads, networks)
        if ranks is None:
            return threads
        if threads > ranks.cores and given != "auto":
            _log.warning("warning: training.threads: each rank takes %d, its share", ranks.cores)
        return min(threads, ranks.cores)

    def _chosen_backend(self) -> str:
        training, size = self.settings.training, self.batch_size
        if training.backend != "auto":
            return training.backend
        steps = sum(-(-self.row_count(k) // size) for k in range(len(self.seeds)))
        return choose_backend(training.epochs * steps, self.networks[0], size)

    def _make_members(self) -> Iterator[Member]:
        for k, mlp in enumerate(self.networks):
            member = self._member(mlp, rows=self.row_count(k))
            step = member.step(weighted=self.train.weights is not None)
            whole, short = divmod(self.row_count(k), step.batch_size)
            if whole and short and not self.settings.training.drop_last:
                step.bound(short)  # now `step.backend` is final
            self.backend = step.backend  # so that a failed compilation is reported only once
            yield member

    def _member(self, mlp: TabularNetwork, rows: int) -> Member:
        training, alone = self.settings.training, len(self.seeds) == 1
        ranks = self.ranks if alone else None
        full = issubclass(training.optimizer.kind, FullBatch)
        batch = rows if full else self.batch_size
        with at_setting("training", "shards"):
            problem = shards_problem(training.shards, batch, ranks.size if ranks else 1)
            if problem:
                raise UsageError(f"shards: {problem}")
        in_epoch = steps_of_epoch(rows, batch, drop_last=training.drop_last) or 1
        step = {
            "clip_norm": training.clip_norm,
            "backend": self.backend,
            "threads": self.threads if alone else 1,
            "rematerialization": training.rematerialization,
            "shards": training.shards,
            "ranks": ranks,
        }
        optimizer = self._optimizer(mlp, in_epoch)
        return Member(mlp, self.loss, optimizer, batch, step)

    def _optimizer(self, mlp: TabularNetwork, in_epoch: int) -> Optimizer:
        training, total = self.settings.training, self.settings.training.epochs * in_epoch
        schedule: ScheduleLike | None = training.schedule
        settings: Any = training.optimizer
        with at_setting("training", "schedule"):
            if isinstance(schedule, Schedule) and not getattr(schedule, "total_steps", 0):
                schedule = schedule.over(total, in_epoch)
        average = training.average
        if average and issubclass(settings.kind, FullBatch):
            with at_setting("training", "average"):
                raise UsageError(f"average: {settings.name} has none; leave average out")
        decay = average.decay if average else None
        with at_setting("training", "optimizer"):
            optimizer: Optimizer = settings.make(mlp, schedule, decay)
            return optimizer

    # loops

    def loop(self, callbacks: Sequence[Callback] = ()) -> Loop:
        """Return the loop of the networks."""
        training = self.settings.training
        self._last = Loop(
            self.steps,
            self.task,
            self.train,
            self.validation,
            epochs=training.epochs,
            early_stopping=training.early_stopping,
            folds=self.folds,
            seed=[np.random.Generator(np.random.PCG64([seed, 1])) for seed in self.seeds],
            callbacks=callbacks,
            on_nonfinite=training.on_nonfinite,
            nonfinite_limit=training.nonfinite_limit,
            drop_last=training.drop_last,
            threads=self.threads,
            ranks=self.ranks,
        )
        return self._last

    def pinned(self) -> AbstractContextManager[None]:
        """Limit BLAS to one thread, and predictions to the threads of the settings.

        The bits of BLAS depend on its number of threads, and on a busy machine each thread waits
        for the slowest one.  Compiled steps and several networks use threads of their own.
        """
        return pinned(1, self.threads)

    def diagnostics(self, path: Path | None = None) -> LoopDiagnostics | None:
        """Return the callback that measures a run and writes to `path`, or None if it is off."""
        settings = self.settings.diagnostics
        if settings is None:
            return None
        every = None if settings.every == "auto" else settings.every
        self._watch = LoopDiagnostics(
            path, every=every, silence=settings.silence, planned_split=self.planned_split
        )
        return self._watch

    # results: the mean over member types, calibration, residuals, prediction sets

    def fit(self, callbacks: Sequence[Callback] = (), until: float = inf) -> Fitted:
        """Train to the end of the loop or until a time of `perf_counter`; return the networks.

        Raises: NumericalError if training fails.
        """
        diagnostics = self.diagnostics()
        loop = self.loop([*callbacks, *([diagnostics] if diagnostics else [])])
        loop.until = until
        with self.pinned():
            return replace(self.finish(loop.run()), diagnostics=diagnostics)

    @property
    def mean(self) -> NetworkMean:
        """Mean of the networks in their current state, with `ensemble_weights`."""
        return NetworkMean(self.networks, self.task, self.ensemble_weights)

    def model(self, preprocessor: Preprocessor) -> Model:
        """Return the model of the networks in their current state."""
        return model_of(self.loss, self.mean, preprocessor)

    def finish(self, result: Result) -> Fitted:
        """Return the trained networks, with measurements on rows that were not used to train them.

        With folds, the measurements are the best ensemble weights of the member types (linear
        networks may be added) and, for numbers, the residuals or, for classes, the probabilities of
        the true classes.

        If folds follow each other in time, residuals come from the newest folds only, because
        networks that also trained on later rows have smaller errors on earlier rows.  In this case,
        `Fitted.mean_error` is None and does not scale the residuals.

        With the setting `calibration`, the outputs of a classifier are divided by a temperature.
        Out-of-fold rows or the validation part choose the temperature.
        """
        loops = self._last.members if self._last else ()
        evaluator = loops[0].evaluator if len(loops) == 1 else None
        fitted = Fitted(self.loss, self.mean, result, evaluator=evaluator)
        folds, train = self.folds, self.train
        if folds is None:
            fitted = self._calibrated(fitted, self.validation, fitted.mean.forward)
            if self.validation is not None:
                fitted = self._decided(fitted, self.validation, fitted.mean.forward)
            if self.calibration_set is None:
                return fitted
            known = self.calibration_set.calibrate(self.task, fitted.mean.forward)
            return replace(fitted, **known)
        if self.settings.training.fold_members and self.numbers is not None:
            mean, weights = best_mean(
                fitted.mean,
                self.settings.training.fold_members,
                (self.loss, self.loss.plain()),
                train,
                folds,
                linear_projections(self.numbers, train.x.shape[1]),
                seed=self.seeds[0],
                threads=self.threads,
                trained=result.best_epoch / self.settings.training.epochs,
            )
            fitted = replace(fitted, mean=mean, ensemble_weights=weights)
            if self._watch:
                self._watch.is_used = any(one is self.networks[0] for one in mean.networks)
        mean, task = fitted.mean, self.task
        fitted = self._calibrated(fitted, train, lambda x: mean.out_of_fold(x, folds))
        scorer = Scorer(fitted.scored_loss, task, task.outputs, mean.networks[0].dtype)
        share = None
        if not self.in_time:
            share = error_of_mean(task, mean.by_fold, folds, train, scorer.mean_loss)
        fitted = replace(fitted, mean_error=share)
        output = mean.out_of_fold(train.x, folds)
        fitted = self._decided(fitted, train, lambda _: output)
        if isinstance(task, Regression) and task.has_errors:
            predictions = task.predict(output)
            errors, count = train.truth - predictions, int(folds.max()) + 1
            if self.in_time:
                newest = folds >= count - max(1, round(NEWEST * count))
                errors, predictions = errors[newest], predictions[newest]
            residuals = Residuals.of(errors, predictions, share)
            return replace(fitted, residuals=residuals)
        if isinstance(task, Classification):
            sets = ClassSets.of(task.probabilities(output), train.truth)
            return replace(fitted, sets=sets)
        return fitted

    def _calibrated(
        self, fitted: Fitted, rows: Split | None, forward: Callable[[Array], Array]
    ) -> Fitted:
        """With the setting `calibration`, divide outputs by the best temperature for `rows`."""
        wanted = self.settings.training.calibration != "none"
        if rows is None or not wanted or isinstance(self.task, Regression):
            return fitted
        output = forward(rows.x)
        temperature = fit_temperature(self.task, output, rows.truth, rows.weights)
        for network in fitted.mean.networks:
            network.divide_outputs(temperature)
        return replace(fitted, temperature=temperature)

    def _decided(self, fitted: Fitted, rows: Split, forward: Callable[[Array], Array]) -> Fitted:
        """With the setting `threshold`, choose the threshold of two classes on `rows`."""
        choice, task = self.settings.training.threshold, self.task
        if choice is None or not isinstance(task, Classification):
            return fitted
        threshold = choose_threshold(choice, task, forward(rows.x), rows)
        return replace(fitted, mean=replace(fitted.mean, task=task.with_threshold(threshold)))

    def members_of(self, fitted: Fitted) -> tuple[Member, ...]:
        """Return the networks of a mean, with optimizers to continue training."""
        known, rows = {id(member.mlp): member for member in self.members}, self.row_count(0)
        return tuple(known.get(id(mlp)) or self._member(mlp, rows) for mlp in fitted.mean.networks)


def model_of(loss: Loss, mean: NetworkMean, preprocessor: Preprocessor) -> Model:
    """Return a model of a network, or of copies of several networks."""
    loss, networks = loss.plain(), mean.networks
    threshold = mean.task.threshold if isinstance(mean.task, Classification) else None
    model = Model(networks[0], preprocessor, loss.name, loss.measured_options, threshold=threshold)
    return model if len(networks) == 1 else model.with_mean(mean)


def seeds_of(seed: int, networks: int) -> list[int]:
    """Return the seeds of a run's networks: its seed, or derived seeds for several networks."""
    return [SEED_STRIDE * seed + k for k in range(networks)] if networks > 1 else [seed]


def step_rows(batch_size: int, rows: int, folds: Array | None = None) -> int:
    """Return `batch_size`, limited to the number of rows outside the largest fold."""
    left_out = 0 if folds is None else int(np.bincount(folds).max())
    return min(batch_size, rows - left_out)
