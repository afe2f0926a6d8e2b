"""The training loop: epochs, validation, early stopping, and those who watch."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from time import perf_counter
from typing import Any, Literal

import numpy as np

from mlpengine.data import Batches, gather
from mlpengine.errors import CheckpointError, DataError, NumericalError
from mlpengine.optim import PlateauSchedule
from mlpengine.spec import Array
from mlpengine.train.best import Best, EarlyStopping
from mlpengine.train.bound_step import BoundStep
from mlpengine.train.evaluate import Evaluator
from mlpengine.train.history import EpochRow, History
from mlpengine.train.nonfinite import bad_rows, odd_value
from mlpengine.train.runs import FEWEST, CompiledSteps, Unseen, compiled_steps
from mlpengine.train.skipping import NonfiniteRule
from mlpengine.train.step import TrainingStep
from mlpengine.train.task import Part, Task

CHECKED_ROWS = 512
"""Training rows for which the outputs of the final weights must be finite."""

_log = logging.getLogger("mlpengine")

Ending = Literal["epochs", "early", "interrupted"]


@dataclass(frozen=True)
class Result:
    """How a run ended; the network holds the weights of `best_epoch`."""

    ending: Ending
    epochs: int
    best_epoch: int
    seconds: float
    samples_per_second: float
    history: History


class Loop:
    """Trains for a number of epochs and leaves the network with its best weights.

    The best epoch is the one with the best monitored metric on the validation part, whether or
    not `early_stopping` ends training before `epochs`; without a validation part, the last.

    `observers` are objects with any of the methods ``on_start(loop)``, ``on_step(loop)`` after
    each step, ``on_epoch(loop, row)`` after validation, ``on_stop(loop)`` when no step follows and
    the network still holds the last weights, then ``on_end(loop, result)``, or
    ``on_error(loop, error)`` if a step was not finite.  What they may read is under Attributes;
    what they do not define costs nothing.  One that has ``unseen(loop)``, too, says with it what
    it need not see, as `Unseen`: steps may then be made many at once, where that is quicker,
    without an ``on_step``, and ``on_unseen(loop, norms)`` gets the norms of their gradients.  One
    with a `name`, `state_dict` and `load_state_dict` has its state kept in checkpoints; it is
    loaded before ``on_start``.

    Attributes:
        step: the bound training step, with the buffers, the loss and the norms of the last step.
        epoch: number of the current epoch, from 1.
        batch_rows: row numbers, in the training part, of the last batch.
        history: one row for each whole epoch.
        best: the best epoch so far.
        many: makes many steps at once; None where steps are made one by one.

    `state_dict` is everything that the steps to come depend on: a loop of the same settings that
    loads it goes on with the same bits.

    `on_nonfinite` says what becomes of a step whose loss or gradient is not finite; nothing is
    updated by it.

    Raises: NumericalError, from `run`, for such a step unless it may be skipped.
    """

    def __init__(
        self,
        step: TrainingStep,
        task: Task,
        train: Part,
        validation: Part | None = None,
        *,
        epochs: int,
        early_stopping: EarlyStopping | None = None,
        seed: int | np.random.Generator = 0,
        observers: Sequence[object] = (),
        on_nonfinite: NonfiniteRule | None = None,
    ) -> None:
        self.step, self.task, self.train, self.validation = step, task, train, validation
        self.epochs, self.early_stopping = epochs, early_stopping
        self.nonfinite = on_nonfinite or NonfiniteRule()
        self.evaluator = Evaluator(step.mlp, step.loss, task)
        self.batches = Batches(len(train), step.batch_size, seed=seed)
        self.batch_rows: Array = self.batches.order[:0]
        weights = train.weights if step.weighted else None
        if short := len(train) % step.batch_size:
            step.bound(short)  # made here rather than within an epoch, by the executor of all
        self.many = compiled_steps(step, (train.x, train.y, weights), self.batches.order)
        self.epoch = 0
        self.history = History(("loss", *task.headline) if validation else ())
        self.best = Best(step.mlp.params.flat, early_stopping or EarlyStopping())
        self.seconds = 0.0
        self._samples = 0
        self._sums = [0.0] * 4  # loss times rows, gradient norm, rows, steps of this epoch
        self._stop = False
        self._odd_validation = ""
        self._calls = {name: _methods(observers, name) for name in _METHODS}
        self._may_skip = all(hasattr(o, "unseen") for o in observers if hasattr(o, "on_step"))
        self._states: dict[str, Any] = {
            getattr(observer, "name", ""): observer
            for observer in (*observers, self.nonfinite)
            if hasattr(observer, "load_state_dict")
        }

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.step.optimizer.steps

    def observer(self, name: str) -> Any:
        """Return the observer of that name that has a state, or None."""
        return self._states.get(name)

    def stop(self) -> None:
        """End training after the current step, or those that are made at once, milliseconds later.

        It may be called from a signal handler or another thread.
        """
        self._stop = True

    def run(self) -> Result:
        """Train until the epochs are over, early stopping ends it, or `stop` is called."""
        self._notify("on_start")
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # the step finds and names them
                try:
                    ending = self._run_epochs()
                except NumericalError:
                    self._notify("on_stop")
                    raise
                self._notify("on_stop")
                if self.best.epoch:
                    self.step.mlp.params.flat[...] = self.best.weights
                self._check_result(ending)
        except NumericalError as error:
            self._notify("on_error", error)
            raise
        rate = self._samples / self.seconds if self.seconds else 0.0
        done = len(self.history.rows)
        result = Result(ending, done, self.best.epoch, self.seconds, rate, self.history)
        self._notify("on_end", result)
        return result

    def _run_epochs(self) -> Ending:
        patience = self.early_stopping.patience if self.early_stopping else inf
        while len(self.history.rows) < self.epochs:
            if self.best.waited >= patience:
                return "early"
            if self._stop:
                return "interrupted"
            began = perf_counter()
            if not self._learn():
                return "interrupted"
            if not self.is_finite:
                raise NumericalError(
                    f"step {self.steps}: weights must be finite after the update (lower the "
                    f"learning rate, {self.step.optimizer.current_lr:g})"
                )
            spent = perf_counter() - began
            self.seconds += spent
            self._samples += len(self.train)
            self._close_epoch(spent)
        return "epochs" if self.best.waited < patience else "early"

    @property
    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return bool(np.isfinite(self.step.mlp.params.flat).all())

    def _check_result(self, ending: Ending) -> None:
        """Refuse weights with which the next step would fail, or that no validation chose.

        Raises: NumericalError.
        """
        output = self.step.mlp.predict(self.train.x[:CHECKED_ROWS])
        bad = len(bad_rows(output))
        if bad and (self.nonfinite.action == "stop" or bad == len(output)):
            raise NumericalError(
                f"step {self.steps}: outputs must be finite after the update "
                f"({odd_value(self._head(), output)})"
            )
        if self._odd_validation and not self.best.epoch and ending != "interrupted":
            raise NumericalError(f"no epoch can be the best: {self._odd_validation}")

    def _head(self) -> Part:
        """Return the first rows of the training part."""
        part, rows = self.train, slice(CHECKED_ROWS)
        return replace(part, x=part.x[rows], y=part.y[rows], truth=part.truth[rows], weights=None)

    def _learn(self) -> bool:
        """Learn from the batches of an epoch, or those left of it; return whether all are done."""
        step, observers, sums = self.step, self._calls["on_step"], self._sums
        many = self.many if self._may_skip else None
        self.epoch = len(self.history.rows) + 1
        for indices in self.batches.epoch():
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
            self.batch_rows = indices
            for observe in observers:
                observe(self)
            if self._stop:
                break
            if many is not None:
                self._learn_unseen(many)
        return self.batches.is_done

    def _learn_unseen(self, many: CompiledSteps) -> None:
        """Make the next steps, as far as nobody must see them; the sums grow as one by one."""
        batches, sums = self.batches, self._sums
        rows, start = batches.batch_size, batches.cursor
        may: list[Unseen] = [ask(self) for ask in self._calls["unseen"]]
        full_batches = (batches.n_rows - start) // rows
        count = int(min(full_batches, many.most, *(unseen.steps for unseen in may)))
        if count < FEWEST:
            return
        losses, norms = many.make(start, count, min((unseen.norm for unseen in may), default=inf))
        for loss, norm in zip(losses, norms, strict=True):
            sums[0] += loss * rows
            sums[1] += norm
        sums[2] += rows * len(norms)
        sums[3] += len(norms)
        batches.cursor += rows * len(norms)
        if norms:
            self.batch_rows = batches.order[batches.cursor - rows : batches.cursor]
        self._notify("on_unseen", norms)

    def _failed(self, error: NumericalError, indices: Array) -> None:
        """Leave a step out that was not finite, or raise with the state as it was before it."""
        try:
            self.nonfinite.met(error, self.step, indices, self.train.places)
        except NumericalError:
            self.batches.cursor -= len(indices)
            raise

    def fill(self, bound: BoundStep, indices: Array) -> None:
        """Gather rows of the training part into the buffers of a step."""
        train = self.train
        gather(train.x, indices, bound.scratch.input)
        gather(train.y, indices, bound.loss.target)
        if train.weights is not None and bound.loss.sample_weight is not None:
            gather(train.weights, indices, bound.loss.sample_weight)

    def _close_epoch(self, spent: float) -> None:
        validation = self._validate(self.validation) if self.validation else {}
        rows = len(self.train)
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
        value = self.best.update(self.step.mlp.params.flat, self.epoch, validation)
        schedule = self.step.optimizer.schedule
        if isinstance(schedule, PlateauSchedule):
            schedule.observe(value if validation else row.train_loss)
        self._notify("on_epoch", row)

    def _validate(self, part: Part) -> dict[str, float]:
        """Return loss and metrics; warn the first time that the loss is not finite."""
        measured = self.evaluator.run(part)
        if not self._odd_validation and not isfinite(measured["loss"]):
            reason = odd_value(part, self.evaluator.output)
            self._odd_validation = f"validation loss must be finite ({reason})"
            _log.warning("warning: epoch %d: %s", self.epoch, self._odd_validation)
        return measured

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps; weights and order are not copied."""
        step = self.step
        return {
            "weights": dict(step.mlp.params.views),
            "dropout": step.mlp.rng.bit_generator.state,
            "optimizer": step.optimizer.state_dict(),
            "clip": step.clip.state_dict() if step.clip else {},
            "batches": self.batches.state_dict(),
            "best": self.best.state_dict(),
            "epoch": {"sums": list(self._sums), "seconds": self.seconds, "samples": self._samples},
            "history": self.history.state(),
            "observers": {name: one.state_dict() for name, one in self._states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where `state_dict` was called; call it before `run`.

        Raises: CheckpointError if the state is one of another network, optimizer or data.
        """
        step = self.step
        try:
            step.mlp.load_state_dict(state["weights"])
            step.optimizer.load_state_dict(state["optimizer"])
            if step.clip:
                step.clip.load_state_dict(state["clip"])
            self.batches.load_state_dict(state["batches"])
            self.best.load_state_dict(state["best"])
            self.history.load(state["history"])
            epoch = state["epoch"]
            self._sums[:] = map(float, epoch["sums"])
            self.seconds, self._samples = float(epoch["seconds"]), int(epoch["samples"])
            step.mlp.rng.bit_generator.state = state["dropout"]
            for name in self._states.keys() & state["observers"].keys():
                self._states[name].load_state_dict(state["observers"][name])
        except (KeyError, TypeError, ValueError, AttributeError, DataError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"checkpoint: does not fit this run ({error!r})") from error

    def _notify(self, event: str, *details: Any) -> None:
        for observe in self._calls[event]:
            observe(self, *details)


_METHODS = (
    *("on_start", "on_step", "unseen", "on_unseen"),
    *("on_epoch", "on_stop", "on_error", "on_end"),
)


def _methods(observers: Sequence[object], name: str) -> list[Callable[..., Any]]:
    return [getattr(observer, name) for observer in observers if hasattr(observer, name)]
