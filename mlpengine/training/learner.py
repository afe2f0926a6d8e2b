"""One network of a loop: its batches, epochs and best weights."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import repeat
from math import inf, isfinite, nan
from operator import add, mul
from time import perf_counter
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from mlpengine.core.buffers import Uncopyable
from mlpengine.core.errors import CheckpointError, NumericalError, RunError, UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted
from mlpengine.data.features import Batches
from mlpengine.diagnostics.constant_loss import constant_losses
from mlpengine.models.evaluate import Evaluator, loss_names, odd_value
from mlpengine.models.task import Split, Task
from mlpengine.optim import PlateauSchedule
from mlpengine.settings import EarlyStopping
from mlpengine.settings.training import Action
from mlpengine.step.bound_step import BoundStep
from mlpengine.step.fault import bad_rows, listed_rows
from mlpengine.step.many_steps import MIN_STEPS, CompiledSteps, compiled_steps
from mlpengine.step.packing import restoring
from mlpengine.step.step import TrainingStep
from mlpengine.tape.flat import Flat
from mlpengine.training.best import Best
from mlpengine.training.history import EpochRow, History

CHECKED_ROWS = 512
"""Number of training rows that must have finite outputs with the final weights."""

EXPLODED = 1e12
"""A run fails if its loss exceeds `EXPLODED` times the loss of the best constant output."""

_log = logging.getLogger("mlpengine")

Ending = Literal["epochs", "early", "time", "interrupted"]
ENDINGS: dict[Ending, str] = {
    "epochs": "",
    "early": ", stopped early",
    "time": ", stopped at the time limit",
    "interrupted": ", interrupted",
}
"""Text for each ending, printed after the number of epochs."""


class SkipBudget(NamedTuple):
    """The number of next steps without callbacks; a gradient norm above `norm` ends them early."""

    steps: float = inf
    norm: float = inf


class Learner(Uncopyable):
    """A network in a `Loop`.

    Args:
        rows: indices of the training rows that the network learns from; None for all.
        seed: seed for the order of the rows.
        on_nonfinite: action at a nonfinite loss or gradient: ``stop``, or ``skip`` for at most
            `nonfinite_limit` steps.  A skipped step updates nothing.

    Attributes:
        step: the training step, with its buffers, and the loss and norms of the last step.
        history: a row for each whole epoch.
        best: the best epoch so far.
        chooses: whether the network's own validation part (not the loop) chooses the best epoch.
        fused_steps: runs many steps in one call; None if steps run one by one.
        epoch: number of the current epoch, from 1.
        batch_rows: indices, in the training part, of the rows of the last batch.
        skipped: number of skipped nonfinite steps.
        stops: whether training ends after the current step.
        may_skip: whether `budgets` may allow several steps in one call.
        after_step: hooks of callbacks after a single step.
        after_many: hooks of callbacks after a call of several steps.
        budgets: functions of callbacks that return a `SkipBudget`.
    """

    _instead = "is bound to its buffers; copy the step, and make a loop that loads `state_dict`"

    def __init__(
        self,
        step: TrainingStep,
        task: Task,
        train: Split,
        validation: Split | None,
        *,
        early_stopping: EarlyStopping | None,
        rows: Array | None,
        seed: int | np.random.Generator,
        on_nonfinite: Action,
        nonfinite_limit: int,
        drop_last: bool,
    ) -> None:
        self.step, self.task, self.train, self.validation = step, task, train, validation
        self.early_stopping, self.chooses = early_stopping, True
        self._action, self._limit, self.skipped = on_nonfinite, nonfinite_limit, 0
        program = step.bound(step.batch_size).forward
        self.evaluator = Evaluator(step.mlp, step.loss, task, step.ranks, program)
        if train.windows is None:
            step.loss.check_target(train.y)
        used = len(train) if rows is None else rows
        windows = train.windows if rows is None else None
        self.batches = Batches(
            used, step.batch_size, seed=seed, windows=windows, drop_last=drop_last
        )
        self.epoch, self.batch_rows = 0, self.batches.order[:0]
        weights = train.weights if step.weighted else None
        count = self.batches.n_rows
        if short := count % step.batch_size:
            step.bound(short)  # bind now, so that no epoch's time includes binding
        self.fused_steps = compiled_steps(
            step, (train.x, train.y, weights), self.batches.order, count
        )
        self.history = History((*loss_names(step.loss), *task.headline) if validation else ())
        flat = step.mlp.params.flat
        self._average = step.optimizer.moments.get("average", flat)
        self._present = np.empty_like(flat)  # the weights while the network holds their average
        self.best = Best(self._average, early_stopping or EarlyStopping())
        self._sums = [0.0] * 4  # loss times rows, gradient norm, rows, steps of this epoch
        self._odd_validation = ""
        self._last: Flat | None = None  # last step's weights while the network holds the best
        self.stops, self.may_skip = False, True
        self.after_step: list[Callable[[], None]] = []
        self.after_many: list[Callable[[list[float]], None]] = []
        self.budgets: list[Callable[[], SkipBudget]] = []

    @property
    def steps(self) -> int:
        """Number of steps so far."""
        return self.step.optimizer.steps

    @property
    def seconds(self) -> float:
        """Seconds spent on epochs, without validation."""
        return sum(row.seconds for row in self.history.rows)

    @property
    def position(self) -> tuple[int, int, int]:
        """Steps, epochs and position in the epoch; these identify a state of the run."""
        return self.steps, len(self.history.rows), self.batches.cursor

    @property
    def within_epoch(self) -> bool:
        """Whether the current epoch has batches left."""
        return not self.batches.is_done

    @property
    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return bool(np.isfinite(self.step.mlp.params.flat).all())

    def ending(self, epochs: int) -> Ending | None:
        """Return why training ends now, with at most `epochs` epochs; None if it continues."""
        if len(self.history.rows) >= epochs:
            return "epochs"
        rule, best = self.early_stopping, self.best
        return "early" if rule and best.waited >= rule.epochs_after(best.epoch) else None

    def begin(self) -> None:
        """Replace the best weights by the weights of the last step, to continue training."""
        self.step.mlp.params.flat[...] = self._last_weights().flat
        self._last = None

    def run_epoch(self) -> bool:
        """Run the next epoch, or the rest of the current one; return whether it is complete."""
        began = perf_counter()
        if not self._train_epoch():
            return False
        if ranks := self.step.ranks:
            drift = ranks.difference({"weights": crc32(self.step.mlp.params.flat.data)})
            if drift:
                raise RunError(f"epoch {self.epoch}: {drift}")
        if not self.is_finite:
            raise NumericalError(
                f"step {self.steps}: weights must be finite after the update (learning "
                f"rate {self.step.optimizer.current_lr:g}); lower the learning rate"
            )
        self._end_epoch(perf_counter() - began)
        return True

    def _train_epoch(self) -> bool:
        """Run the remaining steps of the epoch; return whether the epoch is complete."""
        step, hooks, sums = self.step, self.after_step, self._sums
        fused = self.fused_steps if self.may_skip else None
        ranks = step.ranks
        self.epoch = len(self.history.rows) + 1
        if not (self.batches.is_done and sums[3]):  # else only validation is left
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
            self.batch_rows = indices
            for call in hooks:
                call()
            if self.stops if ranks is None else ranks.stops:
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
        for budget in self.budgets:
            own = budget()
            if not isinstance(own, SkipBudget):
                raise UsageError(
                    f"callbacks: skip_budget must return a SkipBudget (got {quoted(own)})"
                )
            count, limit = min(count, own.steps), min(limit, own.norm)
        if count < MIN_STEPS:
            return
        before = self.steps
        try:
            fused.make(start, int(count), limit)
        finally:  # after a KeyboardInterrupt, count the steps that were made
            made = self.steps - before
            losses, norms = fused.results(made)
            if made:
                last = min(rows, left - rows * (made - 1))  # the rows of the last batch
                total, total_norm, learned, steps = sums
                total = reduce(add, map(mul, losses[:-1], repeat(rows)), total) + losses[-1] * last
                done = rows * (made - 1) + last
                sums[:] = total, reduce(add, norms, total_norm), learned + done, steps + made
                batches.cursor += done
                self.batch_rows = batches.order[batches.cursor - last : batches.cursor]
        for call in self.after_many:
            call(norms)

    def _failed(self, error: NumericalError, indices: Array) -> None:
        """Count a nonfinite step if it may be skipped; if not, go back to its batch and raise."""
        text, bad = str(error), indices[self.step.bad_rows]
        if bad.size:
            places = self.train.places
            origin = f" ({places.row(int(bad[0]))})" if places else ""
            text += f"; training {listed_rows(bad.tolist())}{origin}"
        if self._action == "skip" and self.skipped < self._limit:
            self.skipped += 1
            return
        self.batches.cursor -= len(indices)
        if self._action == "skip":
            text += f"; {plural(self.skipped, 'step was', 'steps were')} skipped already"
        raise NumericalError(text) from error

    def fill(self, bound: BoundStep, indices: Array) -> None:
        """Gather rows of the training part into the buffers of a step."""
        train = self.train
        bound.gather((train.x, train.y, train.weights), indices)

    def _end_epoch(self, spent: float) -> None:
        validation = self._validate(self.validation) if self.validation else {}
        loss, norm, learned, steps = self._sums
        row = EpochRow(
            epoch=self.epoch,
            steps=self.steps,
            lr=self.step.optimizer.current_lr,
            gradient_norm=norm / steps if steps else nan,
            train_loss=loss / learned if learned else nan,
            validation=validation,
            seconds=spent,
            samples_per_second=self.batches.n_rows / spent,
        )
        self._sums[:] = [0.0] * 4
        self.history.rows.append(row)
        value = self.best.value_of(validation)
        if self.chooses:
            self.best.update(self.epoch, validation)
        schedule = self.step.optimizer.schedule
        if isinstance(schedule, PlateauSchedule):
            schedule.observe(value if validation else row.train_loss)

    def _validate(self, part: Split) -> dict[str, float]:
        """Return loss and metrics of the averaged weights; warn once if the loss is not finite."""
        flat = self.step.mlp.params.flat
        self._present[...] = flat
        flat[...] = self._average
        measured = self.evaluator.run(part)
        flat[...] = self._present
        if not self._odd_validation and not isfinite(measured["loss"]):
            reason = odd_value(part, self.evaluator.output)
            self._odd_validation = f"validation loss must be finite ({reason})"
            _log.warning("warning: epoch %d: %s", self.epoch, self._odd_validation)
        return measured

    def finish(self, ending: Ending) -> None:
        """Give the network its best weights, and check its outputs."""
        if self.best.epoch:
            params = self.step.mlp.params
            self._last = Flat(params.specs)
            self._last.flat[...] = params.flat
            params.flat[...] = self.best.weights
        part, rows = self.train, slice(CHECKED_ROWS)
        head = replace(part, x=part.x[rows], y=part.y[rows], truth=part.truth[rows], weights=None)
        output = self.evaluator.outputs(head.x)
        bad = len(bad_rows(output))
        if bad and (self._action == "stop" or bad == len(output)):
            raise NumericalError(
                f"step {self.steps}: outputs must be finite after the update "
                f"({odd_value(head, output)})"
            )
        (constant,) = constant_losses(self.step.loss, self.step.mlp.outputs, [(head.y, None)])
        loss = self.evaluator.run(head)["loss"]
        if loss > EXPLODED * constant > 0 and ending != "interrupted":
            raise NumericalError(
                f"step {self.steps}: the training loss exploded (it is {loss:.3g}, and a constant "
                f"prediction has {constant:.3g}); lower the learning rate"
            )
        if self._odd_validation and not self.best.epoch and ending != "interrupted":
            raise NumericalError(f"no epoch can be the best: {self._odd_validation}")

    def _last_weights(self) -> Flat:
        """Return the weights of the last step, or weights that were set later."""
        params = self.step.mlp.params
        if self._last is not None and np.array_equal(params.flat, self.best.weights):
            return self._last
        return params

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps; weights and order are not copied.

        After training, the state has the weights of the last step, so that training can continue.
        """
        # position, sums and generator let a run continue within an epoch with the same bits
        return {
            **self.step.state_dict(),
            "weights": dict(self._last_weights().views),
            "batches": self.batches.state_dict(),
            "best": self.best.state_dict(),
            "sums": [*self._sums],
            "skipped": self.skipped,
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`; after an error, a part of the state is loaded."""
        self.step.load_state_dict(state)
        self._last = None
        with restoring():
            self.batches.load_state_dict(state["batches"])
            self.best.load_state_dict(state["best"])
            self.history.load_state_dict(state["history"])
            loss, norm, rows, steps = map(float, state["sums"])
            self._sums[:] = [loss, norm, rows, steps]
            if not isinstance(state["skipped"], int) or state["skipped"] < 0:
                raise CheckpointError(f"skipped: must be a count (got {state['skipped']!r})")
            self.skipped = state["skipped"]
