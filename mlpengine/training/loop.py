"""The training loop: epochs, validation, early stopping, and the callbacks that it calls."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from math import inf, isfinite, nan
from operator import add, mul
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple
from zlib import crc32

import numpy as np

from mlpengine.core.buffers import Uncopyable
from mlpengine.core.errors import NumericalError, RunError, UsageError
from mlpengine.core.fields import COUNT
from mlpengine.core.named import need_names
from mlpengine.core.spec import Array
from mlpengine.core.wording import html_table, quoted, suggestion
from mlpengine.data.features import Batches
from mlpengine.models.evaluate import Evaluator, loss_names, odd_value
from mlpengine.models.task import LossOnly, OutputTasks, Split, Task
from mlpengine.optim import PlateauSchedule
from mlpengine.settings import EarlyStopping
from mlpengine.step.bound_step import BoundStep
from mlpengine.step.fault import bad_rows
from mlpengine.step.fused_loop import MIN_STEPS, CompiledSteps, compiled_steps
from mlpengine.step.state import restoring
from mlpengine.step.step import TrainingStep
from mlpengine.tape.flat import Flat
from mlpengine.training.best import Best
from mlpengine.training.history import EpochRow, History
from mlpengine.training.nonfinite_rule import NonfiniteRule

CHECKED_ROWS = 512
"""Training rows for which the outputs of the final weights must be finite."""

LOOP_EXAMPLE = "Loop(step, Classification(3), Split(x, y, truth=y), epochs=20)"

_log = logging.getLogger("mlpengine")

Ending = Literal["epochs", "early", "interrupted"]


@dataclass(frozen=True)
class Result:
    """The outcome of a run; the network holds the weights of `best_epoch`."""

    ending: Ending
    epochs: int
    best_epoch: int
    seconds: float
    samples_per_second: float
    history: History

    def _repr_html_(self) -> str:
        """Return how the run ended, and its last epochs, as tables, for notebooks."""
        ended = [("ended", self.ending), ("epochs", f"{self.epochs:,}")]
        ended += [("best epoch", f"{self.best_epoch:,}"), ("seconds", f"{self.seconds:.3g}")]
        return html_table([], ended) + self.history._repr_html_()


class SkipBudget(NamedTuple):
    """Number of `steps` without a callback; a gradient norm above `norm` ends them early."""

    steps: float = inf
    norm: float = inf


class Callback:
    """Base class of the callbacks of a `Loop`.  A hook that is not overridden takes no time.

    The hooks are named as in PyTorch Lightning.  `on_train_start` is called first; in each epoch
    `on_train_batch_end` after each step and `on_train_epoch_end` after validation; then
    `on_train_end`, and last `on_fit_end`, or `on_exception` if the run failed.

    If a callback overrides `state_dict` and `load_state_dict`, checkpoints store its state under
    its `name`; the state is loaded before `on_train_start`.

    Attributes:
        name: key of the state in checkpoints; by default the name of the class.
        order: callbacks with a lower number are called first, equal numbers in the order given.

    Raises: UsageError if a subclass defines a method ``on_...`` that is not a hook.
    """

    name: ClassVar[str] = ""
    order: ClassVar[int] = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for attribute in dir(cls):
            if attribute.startswith("on_") and attribute not in HOOKS:
                near = suggestion(attribute, HOOKS)
                raise UsageError(f"{cls.__name__}: Callback has no hook {attribute!r}{near}")

    def on_train_start(self, loop: "Loop") -> None:
        """Called once, after a state was loaded and before the first step."""

    def on_train_batch_end(self, loop: "Loop") -> None:
        """Called after each step that is not skipped by `skip_budget`."""

    def on_steps_skipped(self, loop: "Loop", norms: list[float]) -> None:
        """Called after steps without `on_train_batch_end`, with their gradient norms."""

    def on_train_epoch_end(self, loop: "Loop", row: EpochRow) -> None:
        """Called after each whole epoch and its validation; `row` holds the measurements."""

    def on_train_end(self, loop: "Loop") -> None:
        """Called after the last step, also after an error; the network holds the last weights."""

    def on_exception(self, loop: "Loop", error: Exception) -> None:
        """Called after `on_train_end` if the run failed with this NumericalError."""

    def on_fit_end(self, loop: "Loop", result: Result) -> None:
        """Called last; the network holds the best weights."""

    def skip_budget(self, loop: "Loop") -> SkipBudget:
        """Return how many of the next steps need no `on_train_batch_end`.

        If the step is compiled, these steps run in a single call, which is faster.  Without an
        override, a callback that overrides `on_train_batch_end` is called after each step.
        """
        return SkipBudget(0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as `pack` takes it."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


@dataclass(slots=True)
class _Counters:
    """What each epoch, or each batch, writes."""

    batch_rows: Array
    epoch: int = 0
    seconds: float = 0.0
    samples: int = 0


class Loop(Uncopyable):
    """Trains for a number of epochs and leaves the network with its best weights.

    The best epoch is the one with the best monitored metric on the validation part, whether or
    not `early_stopping` ends training before `epochs`; without a validation part, the last.

    The task of a network with several outputs is `LossOnly()`, or tasks by output, such as
    ``{"price": Regression(target), "class": Classification(3)}``: validation measures the metrics
    of each, named as in ``accuracy of class``.

    `callbacks` are called in ascending `order`; they may read the attributes below.  With `rows`,
    their numbers, only these rows of the training part are trained on; with `drop_last` an epoch
    leaves out those that do not fill a batch.

    Attributes:
        step: the bound training step, with the buffers, the loss and the norms of the last step.
        history: one row for each whole epoch.
        best: the best epoch so far.
        chooses: whether its own validation part chooses the best epoch; else `EnsembleLoop` does.
        fused_steps: runs many steps in one call; None if steps run one by one.

    `state_dict` holds everything that later steps depend on: a loop with the same settings that
    loads it continues with the same bits.

    Where the step has several ranks, all of them make the same loop, each with callbacks of its
    own; a callback that stops the loop within an epoch ends it one step later.

    `on_nonfinite` is the rule for a step whose loss or gradient is not finite; such a step updates
    nothing.

    Raises: NumericalError, from `run`, for such a step unless it may be skipped.
    """

    _instead = "is bound to its buffers; copy the step, and make a loop that loads `state_dict`"

    def __init__(
        self,
        step: TrainingStep,
        task: Task | Mapping[str, Task],
        train: Split,
        validation: Split | None = None,
        *,
        epochs: int,
        early_stopping: EarlyStopping | None = None,
        rows: Array | None = None,
        seed: int | np.random.Generator = 0,
        callbacks: Sequence[Callback] = (),
        on_nonfinite: NonfiniteRule | None = None,
        drop_last: bool = False,
    ) -> None:
        if isinstance(task, Mapping):
            task = _by_output(step, task)
        for name, value, kind in (("task", task, Task), ("train", train, Split)):
            if not isinstance(value, kind):
                text = f"loop: {name} must be a {kind.__name__} (got {quoted(value)})"
                raise UsageError(f"{text}; write {LOOP_EXAMPLE}")
        if not isinstance(validation, Split | None):
            text = f"loop: validation must be a Split (got {quoted(validation)})"
            raise UsageError(f"{text}; write validation=Split(x, y, truth=y)")
        if not isinstance(seed, int | np.integer | np.random.Generator):
            raise UsageError(
                f"loop: seed must be a whole number (got {quoted(seed)}); write seed=0"
            )
        if not isinstance(early_stopping, EarlyStopping | None):
            text = f"loop: early_stopping must be an EarlyStopping (got {quoted(early_stopping)})"
            raise UsageError(f"{text}; write early_stopping=EarlyStopping(patience=20)")
        _check_fit(step, task, [train, *([validation] if validation else [])])
        self.step, self.task, self.train, self.validation = step, task, train, validation
        self.epochs, self.early_stopping = COUNT.check("loop: epochs", epochs), early_stopping
        if early_stopping and validation and early_stopping.monitor not in loss_names(step.loss):
            try:
                task.watch(early_stopping.monitor)
            except UsageError as error:
                raise UsageError(f"loop: early_stopping: monitor: {error}") from None
        self.nonfinite = on_nonfinite or NonfiniteRule()
        step.take_targets_as(train.y)
        program = step.bound(step.batch_size).forward
        self.evaluator = Evaluator(step.mlp, step.loss, task, step.ranks, program)
        used = len(train) if rows is None else rows
        windows = train.windows if rows is None else None
        if train.windows is None:
            step.loss.check_target(train.y)
        self.batches = Batches(
            used, step.batch_size, seed=seed, windows=windows, drop_last=drop_last
        )
        self._counters = _Counters(self.batches.order[:0])
        weights = train.weights if step.weighted else None
        count = self.batches.n_rows
        if short := count % step.batch_size:
            step.bound(short)  # bound here, so that no epoch includes the time of binding
        self.fused_steps = compiled_steps(
            step, (train.x, train.y, weights), self.batches.order, count
        )
        self.history = History((*loss_names(step.loss), *task.headline) if validation else ())
        self.best = Best(step.mlp.params.flat, early_stopping or EarlyStopping())
        self.chooses = True
        self._sums = [0.0] * 4  # loss times rows, gradient norm, rows, steps of this epoch
        self._stop = False
        self._odd_validation = ""
        self._last: Flat | None = (
            None  # the weights of the last step, once the best took their place
        )
        self.callbacks = in_order(callbacks)
        self._hooks: dict[str, list[Callable[..., Any]]] = {
            hook: [getattr(one, hook) for one in self.callbacks if _overrides(one, hook)]
            for hook in (*HOOKS, "skip_budget")
        }
        self._may_skip = all(
            _overrides(callback, "skip_budget")
            for callback in self.callbacks
            if _overrides(callback, "on_train_batch_end")
        )
        self._states: dict[str, Any] = {self.nonfinite.name: self.nonfinite}
        for callback in self.callbacks:
            if _overrides(callback, "state_dict"):
                name = callback.name or type(callback).__name__
                if name in self._states:
                    raise UsageError(f"callbacks: two keep a state under one name ({name!r})")
                self._states[name] = callback

    @property
    def members(self) -> "tuple[Loop, ...]":
        """This loop alone; an `EnsembleLoop` has several."""
        return (self,)

    @property
    def epoch(self) -> int:
        """Number of the current epoch, from 1."""
        return self._counters.epoch

    @property
    def batch_rows(self) -> Array:
        """Row numbers, in the training part, of the last batch."""
        return self._counters.batch_rows

    @property
    def seconds(self) -> float:
        """Seconds that epochs have taken."""
        return self._counters.seconds

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self.step.optimizer.steps

    @property
    def position(self) -> tuple[int, ...]:
        """Steps, epochs and place in the epoch, different for different states."""
        return self.steps, len(self.history.rows), self.batches.cursor

    @property
    def within_epoch(self) -> bool:
        """Whether batches of the current epoch are left."""
        return not self.batches.is_done

    @property
    def best_epoch(self) -> int:
        """The best epoch so far, 0 if there is none."""
        return self.best.epoch

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped because they were not finite."""
        return self.nonfinite.skipped

    def callback(self, name: str) -> Any:
        """Return the callback of that name that has a state, or None."""
        return self._states.get(name)

    def stop(self) -> None:
        """End training after the current step, or the current call of many steps.

        Either takes milliseconds.  A signal handler or another thread may call it, and any rank.
        It ends one `run`, the next one if none is under way; a later one goes on with the next row.
        """
        self._want_stop(True)

    def _want_stop(self, wanted: bool) -> None:
        self._stop = wanted
        if self.step.ranks is not None:
            self.step.ranks.wants_stop = wanted

    def run(self) -> Result:
        """Train until the epochs are over, early stopping ends it, or `stop` is called."""
        self.begin()
        try:
            while self.ending is None and not self._stopped() and self.run_epoch():
                pass
        except NumericalError as error:
            self.abandon(error)
            raise
        return self.finish(self.ending or "interrupted")

    def _stopped(self) -> bool:
        """Return whether no further epoch is to begin, on any rank."""
        ranks = self.step.ranks
        return self._stop if ranks is None else ranks.agree_to_stop()

    def begin(self) -> None:
        """Call the callbacks before the first `run_epoch`."""
        self.step.mlp.params.flat[...] = self._last_weights().flat
        self._last = None
        self._call("on_train_start")

    def abandon(self, error: NumericalError) -> None:
        """Call the callbacks after an error of `run_epoch`."""
        self._call("on_train_end")
        self._call("on_exception", error)

    def finish(self, ending: Ending) -> Result:
        """Give the network its best weights, check its outputs, and return the result.

        Raises: NumericalError for outputs that are not finite, or where no epoch can be the best.
        """
        self._want_stop(False)
        self._call("on_train_end")
        if self.best.epoch:
            params = self.step.mlp.params
            self._last = Flat(params.specs)
            self._last.flat[...] = params.flat
            params.flat[...] = self.best.weights
        try:
            self._check_result(ending)
        except NumericalError as error:
            self._call("on_exception", error)
            raise
        rate = self._counters.samples / self.seconds if self.seconds else 0.0
        done = len(self.history.rows)
        result = Result(ending, done, self.best.epoch, self.seconds, rate, self.history)
        self._call("on_fit_end", result)
        return result

    def _last_weights(self) -> Flat:
        """Return the weights of the last step, unless others were given to the network since."""
        params = self.step.mlp.params
        if self._last is not None and np.array_equal(params.flat, self.best.weights):
            return self._last
        return params

    @property
    def ending(self) -> Ending | None:
        """Why no epoch is left to make; None while one is."""
        if self.early_stopping and self.best.waited >= self.early_stopping.patience:
            return "early"
        return "epochs" if len(self.history.rows) >= self.epochs else None

    def run_epoch(self) -> bool:
        """Make the next epoch, or the remaining steps of one; return whether it is complete.

        Raises: NumericalError for a step, or weights, that are not finite.
        """
        began = perf_counter()
        if not self._train_epoch():
            return False
        if ranks := self.step.ranks:
            drift = ranks.difference({"weights": crc32(self.step.mlp.params.flat.data)})
            if drift:
                raise RunError(f"epoch {self.epoch}: {drift}")
        if not self.is_finite:
            raise NumericalError(
                f"step {self.steps}: weights must be finite after the update (lower the "
                f"learning rate, {self.step.optimizer.current_lr:g})"
            )
        spent = perf_counter() - began
        self._counters.seconds += spent
        self._counters.samples += self.batches.n_rows
        self._end_epoch(spent)
        return True

    @property
    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        flat = self.step.mlp.params.flat
        if np.vdot(flat, flat) < inf:  # half the time, and enough unless the sum overflows
            return True
        return bool(np.isfinite(flat).all())

    def _check_result(self, ending: Ending) -> None:
        """Check that the outputs are finite and that validation selected an epoch.

        Raises: NumericalError.
        """
        output = self.evaluator.outputs(self.train.x[:CHECKED_ROWS])
        bad = len(bad_rows(output))
        if bad and (self.nonfinite.action == "stop" or bad == len(output)):
            raise NumericalError(
                f"step {self.steps}: outputs must be finite after the update "
                f"({odd_value(self._head(), output)})"
            )
        if self._odd_validation and not self.best.epoch and ending != "interrupted":
            raise NumericalError(f"no epoch can be the best: {self._odd_validation}")

    def _head(self) -> Split:
        """Return the first rows of the training part."""
        part, rows = self.train, slice(CHECKED_ROWS)
        return replace(part, x=part.x[rows], y=part.y[rows], truth=part.truth[rows], weights=None)

    def _train_epoch(self) -> bool:
        """Run the remaining steps of the epoch; return whether the epoch is complete."""
        step, hooks, sums = self.step, self._hooks["on_train_batch_end"], self._sums
        fused = self.fused_steps if self._may_skip else None
        ranks = self.step.ranks
        self._counters.epoch = len(self.history.rows) + 1
        if not (self.batches.is_done and sums[3]):  # else only the end of the epoch is left
            self.batches.begin()
        if fused is not None:
            self._skip_ahead(fused)
        for indices in self.batches.remaining():
            rows = len(indices)
            bound = step.bound(rows)
            self.fill(bound, indices)
            try:
                sums[0] += step.run(bound) * rows
            except NumericalError as error:
                self._failed(error, indices)
                continue
            sums[2] += rows
            sums[3] += 1.0
            sums[1] += step.grad_norm
            self._counters.batch_rows = indices
            for call in hooks:
                call(self)
            if self._stop if ranks is None else ranks.stops:
                break
            if fused is not None:
                self._skip_ahead(fused)
        return self.batches.is_done

    def _skip_ahead(self, fused: CompiledSteps) -> None:
        """Run as many steps in one call as all skip budgets allow."""
        batches, sums = self.batches, self._sums
        rows, start = batches.batch_size, batches.cursor
        left = batches.n_rows - start
        count, limit = float(fused.count(left)), inf
        for budget in self._hooks["skip_budget"]:
            own: SkipBudget = budget(self)
            count, limit = min(count, own.steps), min(limit, own.norm)
        if count < MIN_STEPS:
            return
        before = self.steps
        try:
            fused.make(start, int(count), limit)
        finally:  # some are made before a KeyboardInterrupt
            made = self.steps - before
            losses, norms = fused.results(made)
            if made:
                last = min(rows, left - rows * (made - 1))  # the rows of the last batch
                total, total_norm, learned, steps = sums
                total = reduce(add, map(mul, losses[:-1], repeat(rows)), total) + losses[-1] * last
                done = rows * (made - 1) + last
                sums[:] = total, reduce(add, norms, total_norm), learned + done, steps + made
                batches.cursor += done
                self._counters.batch_rows = batches.order[batches.cursor - last : batches.cursor]
        self._call("on_steps_skipped", norms)

    def _failed(self, error: NumericalError, indices: Array) -> None:
        """Apply the rule for a step that is not finite; if it raises, reset the batch cursor."""
        try:
            self.nonfinite.handle(error, self.step, indices, self.train.places)
        except NumericalError:
            self.batches.cursor -= len(indices)
            raise

    def fill(self, bound: BoundStep, indices: Array) -> None:
        """Gather rows of the training part into the buffers of a step."""
        train = self.train
        bound.gather((train.x, train.y, train.weights), indices)

    def _end_epoch(self, spent: float) -> None:
        validation = self._validate(self.validation) if self.validation else {}
        rows = self.batches.n_rows
        loss, norm, learned, steps = self._sums
        row = EpochRow(
            epoch=self.epoch,
            steps=self.steps,
            lr=self.step.optimizer.current_lr,
            gradient_norm=norm / steps if steps else nan,
            train_loss=loss / learned if learned else nan,
            validation=validation,
            seconds=spent,
            samples_per_second=rows / spent,
        )
        self._sums[:] = [0.0] * 4
        self.history.rows.append(row)
        value = self.best.value_of(validation)
        if self.chooses:
            self.best.update(self.step.mlp.params.flat, self.epoch, validation)
        schedule = self.step.optimizer.schedule
        if isinstance(schedule, PlateauSchedule):
            schedule.observe(value if validation else row.train_loss)
        self._call("on_train_epoch_end", row)

    def _validate(self, part: Split) -> dict[str, float]:
        """Return loss and metrics; warn the first time that the loss is not finite."""
        measured = self.evaluator.run(part)
        if not self._odd_validation and not isfinite(measured["loss"]):
            reason = odd_value(part, self.evaluator.output)
            self._odd_validation = f"validation loss must be finite ({reason})"
            _log.warning("warning: epoch %d: %s", self.epoch, self._odd_validation)
        return measured

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps; weights and order are not copied.

        After `run` it has the weights of the last step, from which a loop of more epochs goes on.
        """
        states = {name: one.state_dict() for name, one in self._states.items()}
        return {**self._own_state(), "callbacks": states}

    def _own_state(self) -> dict[str, Any]:
        """Return the state without that of callbacks."""
        sums, counters = [*self._sums], self._counters
        epoch = {"sums": sums, "seconds": counters.seconds, "samples": counters.samples}
        return {
            **self.step.state_dict(),
            "weights": dict(self._last_weights().views),
            "batches": self.batches.state_dict(),
            "best": self.best.state_dict(),
            "epoch": epoch,
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from `state_dict`, or change nothing; call it before `run`.

        Raises: CheckpointError if the state is that of another network, optimizer or data set.
        """
        put_back = self.remembered()
        try:
            self._load(state)
        except Exception:
            put_back()
            raise

    def remembered(self) -> Callable[[], None]:
        """Return a call that puts the present state back; it has copies."""
        state, last = deepcopy(self._own_state()), self._last
        weights = self.step.mlp.params.flat.copy()
        states = [(vars(one), {**vars(one)}) for one in self._states.values()]

        def put_back() -> None:
            self._load({**state, "callbacks": {}})
            self._last = last
            self.step.mlp.params.flat[...] = weights
            for now, before in states:  # before `run` a callback may have no state to return
                now.clear()
                now.update(before)

        return put_back

    def _load(self, state: Mapping[str, Any]) -> None:
        self.step.load_state_dict(state)
        self._last = None
        with restoring():
            self.batches.load_state_dict(state["batches"])
            self.best.load_state_dict(state["best"])
            self.history.load_state_dict(state["history"])
            epoch = state["epoch"]
            loss, norm, rows, steps = map(float, epoch["sums"])
            self._sums[:] = [loss, norm, rows, steps]
            counters = self._counters
            counters.seconds, counters.samples = float(epoch["seconds"]), int(epoch["samples"])
            states = state["callbacks"]
            for name in self._states.keys() & states.keys():
                self._states[name].load_state_dict(states[name])

    def _call(self, hook: str, *details: Any) -> None:
        for call in self._hooks[hook]:
            call(self, *details)


def _check_fit(step: TrainingStep, task: Task, parts: Sequence[Split]) -> None:
    """Raise UsageError unless a task has the outputs of the network, ShapeError unless data fit."""
    for part in parts:
        step.check_names(part.x, part.y)
    outputs = step.mlp.outputs
    if isinstance(task, OutputTasks):
        for part in parts:
            need_names(part.truth, task.tasks, "Split: truth", more=True)
    if isinstance(task, LossOnly | OutputTasks) or task.outputs == outputs:
        return
    if not isinstance(outputs, int):
        names = ", ".join(outputs)
        raise UsageError(
            f"loop: of outputs by name ({names}) the task must be LossOnly(), or tasks by output"
        )
    raise UsageError(
        f"loop: task must have as many outputs as the network (got {task.outputs} and "
        f"{outputs}); write {type(task).__name__}({outputs}), or Mlp([..., {task.outputs}])"
    )


def _by_output(step: TrainingStep, tasks: Mapping[str, Task]) -> OutputTasks:
    """Return tasks by output as one.  Raises: UsageError unless the network has such outputs."""
    outputs = step.mlp.outputs
    if isinstance(outputs, int):
        raise UsageError(
            f"loop: task must be one Task for a network of one output (got {quoted(tasks)})"
        )
    for name, task in tasks.items():
        if name not in outputs:
            names = ", ".join(outputs)
            raise UsageError(
                f"loop: task must name outputs, {names} (got {name!r}){suggestion(name, outputs)}"
            )
        if not isinstance(task, Task):
            raise UsageError(f"loop: task of {name!r} must be a Task (got {quoted(task)})")
        if not isinstance(task, LossOnly) and task.outputs != outputs[name]:
            raise UsageError(
                f"loop: task of {name!r} must have as many outputs as the network there "
                f"(got {task.outputs} and {outputs[name]})"
            )
    return OutputTasks({n: t for n, t in tasks.items() if not isinstance(t, LossOnly)})


def in_order(callbacks: object) -> list[Callback]:
    """Return callbacks in the order of their calls.  Raises: UsageError for others."""
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    for one in given:
        if not isinstance(one, Callback):
            raise UsageError(
                f"callbacks: must be instances of Callback (got {quoted(one)}){_advice_on(one)}"
            )
    if given is not callbacks:
        raise UsageError("callbacks: must be a list (got a callback); write callbacks=[callback]")
    return sorted(given, key=lambda callback: callback.order)


def _advice_on(given: object) -> str:
    """Return what to write in place of a callback that is none, or ""."""
    if isinstance(given, EarlyStopping):
        return (
            "; write early_stopping=EarlyStopping(patience=20) for a Loop, "
            "training={'early_stopping': {'patience': 20}} for fit"
        )
    if isinstance(given, type) and issubclass(given, Callback):
        return f"; write callbacks=[{given.__name__}()]"
    return "; write a class with the hook, such as on_train_epoch_end(self, loop, row)"


def _overrides(callback: Callback, name: str) -> bool:
    return getattr(type(callback), name) is not getattr(Callback, name)
