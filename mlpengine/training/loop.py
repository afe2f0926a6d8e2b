"""The training loop of one or several networks: epochs, early stopping, callbacks, state."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, nan
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from mlpengine.core.buffers import Uncopyable, second_call
from mlpengine.core.errors import CheckpointError, NumericalError, UsageError
from mlpengine.core.fields import COUNT
from mlpengine.core.spec import Array
from mlpengine.core.wording import best_text, plural, quoted, suggestion
from mlpengine.models.task import Split, Task
from mlpengine.settings import EarlyStopping
from mlpengine.settings.training import Action
from mlpengine.step.packing import restoring
from mlpengine.step.ranks import Ranks
from mlpengine.step.step import TrainingStep
from mlpengine.training.best import choose_together
from mlpengine.training.history import EpochRow, History, mean_row
from mlpengine.training.learner import ENDINGS, Ending, Learner, SkipBudget
from mlpengine.training.loop_arguments import check_fit, check_stopping, checked_task

if TYPE_CHECKING:
    from mlpengine.drawing.cell import Cell
    from mlpengine.drawing.chart_types import Chart
    from mlpengine.drawing.markup import Markup

_log = logging.getLogger("mlpengine")


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a run.

    After a run, each network holds the weights of its best epoch; `best_epochs` has these epochs.
    """

    ending: Ending
    epochs: int
    best_epochs: Sequence[int]
    seconds: float
    samples_per_second: float
    history: History

    @property
    def best_epoch(self) -> int:
        """Latest epoch in `best_epochs`."""
        return max(self.best_epochs)

    def charts(self) -> "list[Chart]":
        """Return the charts of `history`, with a mark at a best epoch that all networks share."""
        same = len({*self.best_epochs}) == 1
        return self.history.charts(self.best_epoch if same and self.best_epoch else None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(self.lines())})"

    def lines(self) -> list[str]:
        """Return the outcome as text."""
        best = f", {best_text(self.best_epochs)}" if self.best_epoch else ""
        return [f"{plural(self.epochs, 'epoch')}{best}{ENDINGS[self.ending]}"]

    def plot(self) -> "Cell":
        """Return a chart of losses, metrics and learning rate by epoch, for a notebook."""
        from mlpengine.drawing.cell import chart_cell

        return chart_cell(repr(self), self.charts())

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html

        return cell_html(*self.content())

    def content(self) -> "list[Markup]":
        """Return the parts of the display in a notebook."""
        from mlpengine.drawing.charts import MEAN_CURVES
        from mlpengine.drawing.markup import joined, tag
        from mlpengine.drawing.svg import grid

        note = tag("p", MEAN_CURVES, class_="soft") if len(self.best_epochs) > 1 else ""
        return [tag("p", self.lines()[0]), joined(grid(self.charts()), note)]


class Callback:
    """Base class of callbacks for a `Loop`; only overridden hooks take time.

    Hooks are named as in PyTorch Lightning.  `on_train_start` is called first.  In each epoch,
    `on_train_batch_end` is called after each step, and `on_train_epoch_end` after validation.  At
    the end, `on_train_end` is called, then `on_fit_end`, or `on_exception` if the run failed.

    If a callback overrides `state_dict` and `load_state_dict`, checkpoints store its state under
    its `name`; the state is loaded before `on_train_start`.

    Attributes:
        name: key of the state in checkpoints; by default the name of the class.
        order: callbacks are called by increasing number; equal numbers keep the given order.
        watches_first: whether, with several networks, the hooks of steps are called for the first
            network (perhaps in another thread); by default they are not called.

    Raises: UsageError if a subclass defines a method ``on_...`` that is not a hook.
    """

    name: ClassVar[str] = ""
    order: ClassVar[int] = 0
    watches_first: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for attribute in dir(cls):
            if attribute.startswith("on_") and attribute not in HOOKS:
                near = suggestion(attribute, HOOKS)
                raise UsageError(f"{cls.__name__}: Callback has no hook {attribute!r}{near}")

    def on_train_start(self, loop: "Loop") -> None:
        """Called once, after a state is loaded and before the first step."""

    def on_train_batch_end(self, loop: "Loop") -> None:
        """Called after each step that `skip_budget` does not exempt."""

    def on_steps_skipped(self, loop: "Loop", norms: list[float]) -> None:
        """Called after steps that `skip_budget` exempts, with the gradient norms of these steps."""

    def on_train_epoch_end(self, loop: "Loop", row: EpochRow) -> None:
        """Called after each whole epoch and its validation, with the measurements in `row`."""

    def on_train_end(self, loop: "Loop") -> None:
        """Called after the last step, even after an error; networks have the last weights."""

    def on_exception(self, loop: "Loop", error: Exception) -> None:
        """Called after `on_train_end` if this NumericalError ended the run."""

    def on_fit_end(self, loop: "Loop", result: Result) -> None:
        """Called at the end; networks have the best weights."""

    def skip_budget(self, loop: "Loop") -> SkipBudget:
        """Return the number of next steps that are exempt from `on_train_batch_end`.

        A compiled step makes these steps in a single, faster call.  A callback that overrides
        `on_train_batch_end` but not this method is called after each step.
        """
        return SkipBudget(0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a resumed run, as a tree for `pack`."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class Loop(Uncopyable):
    """Trains one or several networks; each network ends with its best weights.

    The best epoch has the best monitored metric on the validation part, with or without
    `early_stopping`.  Without a validation part, the last epoch is the best epoch.  The task of a
    network with several outputs is `LossOnly()`, or tasks by output, such as
    ``{"price": Regression(target), "class": Classification(3)}``.  Validation then measures the
    metrics of each task, with names such as ``accuracy of class``.

    Several networks train epoch by epoch, each with the same bits as in its own loop.  If whole
    steps are compiled, each thread trains whole networks, so threads do not wait for each other
    within an epoch.

    With `folds`, network k learns from the rows outside fold ``k % folds`` and is validated on this
    fold.  A group of networks has one network for each fold.  The best epoch of a network is chosen
    by the mean score of the *other* networks in the group.  The network's score on its own fold is
    therefore a score on new rows.  A group ends when all its networks would stop early.  Without
    folds, each network's own validation chooses its epoch and ends its training.

    `callbacks` are called in increasing `order`, and may read the attributes below.  With several
    networks, callbacks are called when all networks that still train have finished the epoch, and
    measurements are means.

    If a step has several ranks, each rank runs the same loop with its own callbacks.  A stop within
    an epoch then takes effect one step later.  The processes of the argument `ranks` share several
    networks, and exchange the states of the networks after each epoch.

    Args:
        steps: the step of the network, or one step for each of several networks.
        folds: the fold of each training row, from 0.
        seed: seed for the order of rows.  Network k of several, from 0, uses seed + k.  You can
            also give a list with one seed for each network.
        on_nonfinite: action at a nonfinite loss or gradient: ``stop``, or ``skip`` for at most
            `nonfinite_limit` steps.  A skipped step updates nothing.
        drop_last: leave out the rows of an epoch that do not fill a batch.
        threads: maximum number of threads, on each rank, that train several networks.

    Attributes:
        until: the time of `perf_counter` at which training ends.  After the first epoch, an epoch
            only starts if the remaining time is at least the duration of the last epoch.
        members: a `Learner` for each network.
        step: the training step of the first network, with the loss and norms of its last step.
        history: a row for each whole epoch.  With several networks, a row has means over the
            networks that trained in the epoch, but the `steps` of all networks.

    `state_dict` has everything that later steps depend on.  A loop with the same settings that
    loads the state continues with the same bits.

    Raises: NumericalError, from `run`, for a nonfinite step that may not be skipped.  With several
    networks, the error names the first network that fails, and the others stop, too.
    """

    _instead = "is bound to its buffers; copy the step, and make a loop that loads `state_dict`"

    def __init__(
        self,
        steps: TrainingStep | Sequence[TrainingStep],
        task: Task | Mapping[str, Task],
        train: Split,
        validation: Split | None = None,
        *,
        epochs: int,
        early_stopping: EarlyStopping | None = None,
        folds: Array | None = None,
        seed: int | np.random.Generator | Sequence[int | np.random.Generator] = 0,
        callbacks: Sequence[Callback] = (),
        on_nonfinite: Action = "stop",
        nonfinite_limit: int = 10,
        drop_last: bool = False,
        threads: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        each = [steps] if isinstance(steps, TrainingStep) else [*steps]
        if not each:
            raise UsageError("loop: needs at least one step (got 0)")
        if on_nonfinite not in get_args(Action):
            raise UsageError(f"loop: on_nonfinite must be stop or skip (got {on_nonfinite!r})")
        self.task = checked_task(each[0], task)
        check_stopping(
            each[0], self.task, early_stopping, validated=bool(validation) or folds is not None
        )
        self.train, self.epochs = train, COUNT.check("loop: epochs", epochs)
        self.threads, self.step = COUNT.check("loop: threads", threads), each[0]
        size, parts = 1, [validation]
        if folds is not None:
            folds = np.asarray(folds)
            numbers = np.unique(folds)
            size = len(numbers)
            known = size > 1 and np.array_equal(numbers, np.arange(size))
            whole = len(folds) == len(train) and not len(each) % max(size, 1)
            if validation is not None or not known or not whole:
                given = f"{plural(len(each), 'step')}, {plural(size, 'fold')} of {len(folds)} rows"
                raise UsageError(
                    "loop: folds must have the fold of each training row, counted from 0; the "
                    "number of steps must be a multiple of the number of folds, and validation "
                    f"must be None (got {given})"
                )
            parts = [train.rows(np.flatnonzero(folds == k)) for k in range(size)]
        if len({id(step.mlp) for step in each}) < len(each):
            raise UsageError("loop: each step needs a network of its own (two steps have the same)")
        self.validation = parts[0]
        seeds = _seeds(seed, len(each))
        for step in each:
            check_fit(step, self.task, train, validation)
        self.members = tuple(
            Learner(
                step,
                self.task,
                train,
                parts[k % size],
                early_stopping=early_stopping,
                rows=None if folds is None else np.flatnonzero(folds != k % size),
                seed=seeds[k],
                on_nonfinite=on_nonfinite,
                nonfinite_limit=COUNT.check("loop: nonfinite_limit", nonfinite_limit),
                drop_last=drop_last,
            )
            for k, step in enumerate(each)
        )
        first = self.members[0]
        self._groups = [self.members[k : k + size] for k in range(0, len(each), size)]
        for member in self.members:
            member.chooses = folds is None
        several = len(each) > 1
        self.history = History(first.history.metrics) if several else first.history
        self.ranks = ranks if several else self.step.ranks
        self._shares = self.ranks if several else None
        own = self._shares.share(len(each)) if self._shares else slice(None)
        self._own = frozenset(range(1, len(each) + 1)[own])
        self._busy = False
        self._stop, self.until, self._odd_monitor = False, inf, False
        self.callbacks = in_order(callbacks)
        self._states = _by_name(self.callbacks)
        self._hooks: dict[str, list[Callable[..., Any]]] = {
            hook: [getattr(one, hook) for one in self.callbacks if _overrides(one, hook)]
            for hook in HOOKS
        }
        self._watch(first, [one for one in self.callbacks if one.watches_first or not several])

    def __repr__(self) -> str:
        networks = plural(len(self.members), "network")
        done = f"epoch {len(self.history.rows):,} of {self.epochs:,}"
        return f"Loop({networks}, {done}, {self.train!r})"

    def _watch(self, member: Learner, callbacks: Sequence[Callback]) -> None:
        """Connect the step hooks of callbacks to the steps of a network."""

        def bound(hook: str) -> list[Callable[..., Any]]:
            return [partial(getattr(one, hook), self) for one in callbacks if _overrides(one, hook)]

        member.after_step = bound("on_train_batch_end")
        member.after_many, member.budgets = bound("on_steps_skipped"), bound("skip_budget")
        member.may_skip = all(
            _overrides(one, "skip_budget")
            for one in callbacks
            if _overrides(one, "on_train_batch_end")
        )

    @property
    def epoch(self) -> int:
        """Number of the current epoch of the first network, from 1."""
        return self.members[0].epoch

    @property
    def batch_rows(self) -> Array:
        """Indices, in the training part, of the rows of the last batch of the first network."""
        return self.members[0].batch_rows

    @property
    def best_epochs(self) -> list[int]:
        """Best epoch of each network so far, 0 if it has none."""
        return [member.best.epoch for member in self.members]

    @property
    def best_epoch(self) -> int:
        """Last epoch in which a network improved, 0 if there is none."""
        return max(self.best_epochs)

    @property
    def seconds(self) -> float:
        """Seconds spent on epochs."""
        return sum(row.seconds for row in self.history.rows)

    @property
    def steps(self) -> int:
        """Number of steps of all networks so far."""
        return sum(member.steps for member in self.members)

    @property
    def position(self) -> tuple[int, ...]:
        """Steps, epoch and position in the epoch of each network; these identify a state."""
        return tuple(n for member in self.members for n in member.position)

    @property
    def within_epoch(self) -> bool:
        """Whether any network is within an epoch."""
        return any(member.within_epoch for member in self.members)

    @property
    def is_finite(self) -> bool:
        """Whether all weights of all networks are finite."""
        return all(member.is_finite for member in self.members)

    @property
    def skipped(self) -> int:
        """Number of skipped nonfinite steps."""
        return sum(member.skipped for member in self.members)

    @property
    def ending(self) -> Ending | None:
        """Why training ends; None if an epoch is left."""
        if self._running():
            return None
        return "epochs" if len(self.history.rows) >= self.epochs else "early"

    def callback(self, name: str) -> Any:
        """Return the callback with this name if it has a state, or None."""
        return self._states.get(name)

    def stop(self) -> None:
        """End training after the current step, or after the current call of many steps.

        Training ends within milliseconds.  A signal handler, another thread or any rank may call
        this method.  If no `run` is active, the next one ends at once.  A later `run` continues
        with the next batch.
        """
        self._want_stop(True)

    def _want_stop(self, wanted: bool) -> None:
        self._stop = wanted
        if self.ranks is not None:
            self.ranks.wants_stop = wanted
        for member in self.members:
            member.stops = wanted

    def run(self) -> Result:
        """Train until no epoch is left, or until `stop` is called.

        Raises: TapeError if another call is running; NumericalError.
        """
        if self._busy:
            raise second_call("loop")
        self._busy = True
        try:
            return self._run()
        finally:
            self._busy = False

    def _run(self) -> Result:
        for member in self.members:
            member.begin()
        self._call("on_train_start")
        try:
            ending = self._run_epochs()
        except NumericalError as error:
            self._want_stop(False)
            self._call("on_train_end")
            self._call("on_exception", error)
            raise
        self._want_stop(False)
        self._call("on_train_end")
        try:
            self._agreed(partial(self._finish_all, ending))
        except NumericalError as error:
            self._call("on_exception", error)
            raise
        self._check_level_monitor()
        rows = self.history.rows
        samples = sum(row.seconds * row.samples_per_second for row in rows)
        rate = samples / self.seconds if self.seconds else 0.0
        result = Result(ending, len(rows), self.best_epochs, self.seconds, rate, self.history)
        self._call("on_fit_end", result)
        return result

    def _finish_all(self, ending: Ending) -> None:
        for number, member in self._numbered():
            self._named(number, member.finish, member.ending(self.epochs) or ending)

    def _numbered(self) -> list[tuple[int, Learner]]:
        return [*enumerate(self.members, start=1)]

    def _running(self) -> list[tuple[int, Learner]]:
        """Return the members of all groups in which a network still trains, and their numbers."""
        ended = [all(m.ending(self.epochs) for m in group) for group in self._groups for _ in group]
        return [one for one, over in zip(self._numbered(), ended, strict=True) if not over]

    def _run_epochs(self) -> Ending:
        fused = all(member.step.fused for member in self.members)
        workers = min(self.threads, len(self.members)) if fused else 1
        threads: AbstractContextManager[ThreadPoolExecutor | None] = nullcontext()
        if workers > 1:
            threads = ThreadPoolExecutor(workers, "mlpengine-member")
        with threads as pool:
            while running := self._running():
                number = min(len(member.history.rows) for _, member in running)
                if self._stop if self.ranks is None else self.ranks.agree_to_stop():
                    return "interrupted"
                behind = [(k, m) for k, m in running if len(m.history.rows) == number]
                began = perf_counter()
                if number and began + self.history.rows[-1].seconds > self.until:
                    return "time"
                own = [(k, m) for k, m in behind if k in self._own]
                self._agreed(partial(self._make_epoch, own, pool, workers))
                self._exchange(dict(own))
                if any(len(member.history.rows) == number for _, member in behind):
                    return "interrupted"
                self._end_epoch(number, perf_counter() - began)
        return self.ending or "interrupted"

    def _agreed(self, work: Callable[[], None]) -> None:
        """Do the work of this rank; if ranks share networks, raise the first error of any rank."""
        error = None
        try:
            work()
        except NumericalError as caught:
            if self._shares is None:
                raise
            error = caught
        if self._shares is not None and (first := self._shares.first(error)):
            raise first

    def _exchange(self, own: Mapping[int, Learner]) -> None:
        """Send the states of this rank's networks to all ranks, and load the other states."""
        if self._shares is None:
            return
        for states in self._shares.of_all({k: member.state_dict() for k, member in own.items()}):
            for k in states.keys() - self._own:
                self.members[k - 1].load_state_dict(states[k])

    def _make_epoch(
        self, members: Sequence[tuple[int, Learner]], pool: ThreadPoolExecutor | None, workers: int
    ) -> None:
        remaining = iter(members)
        if pool is None:
            self._run_each(remaining)
            return
        futures = [pool.submit(self._run_each, remaining) for _ in range(workers)]
        try:
            wait(futures)
        finally:
            if not all(future.done() for future in futures):  # this thread was interrupted
                self.stop()
                wait(futures)
        for future in futures:
            future.result()

    def _run_each(self, remaining: Iterator[tuple[int, Learner]]) -> None:
        """Run an epoch of each network that no other thread has taken."""
        for number, member in remaining:
            if self._stop and self.step.ranks is None:  # ranks stop at the same step
                return
            try:
                self._named(number, member.run_epoch)
            except NumericalError:
                self.stop()
                raise

    def _named(self, number: int, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `work`; with several networks, an error names the network."""
        try:
            return work(*arguments)
        except NumericalError as error:
            if len(self.members) == 1:
                raise
            raise NumericalError(f"member {number}: {error}") from error

    def _end_epoch(self, number: int, spent: float) -> None:
        for group in self._groups:
            if not group[0].chooses and len(group[0].history.rows) > number:
                choose_together([m.best for m in group], [m.history.rows[number] for m in group])
        if len(self.members) > 1:
            made = [m for m in self.members if len(m.history.rows) > number]
            rows = [member.history.rows[number] for member in made]
            learned = sum(member.batches.n_rows for member in made)
            times = {"seconds": spent, "samples_per_second": learned / spent}
            self.history.rows.append(mean_row(rows, steps=self.steps, **times))
        self._check_monitor()
        self._call("on_train_epoch_end", self.history.rows[-1])

    def _check_monitor(self) -> None:
        """Refuse or report a monitored metric that is not finite although the loss is finite."""
        rule, epoch = self.members[0].early_stopping, len(self.history.rows)
        rows = [m.history.rows[-1].validation for m in self.members if len(m.history.rows) == epoch]
        if rule is None or self._odd_monitor or not any(rows):
            return
        odd = [v for row in rows if not isfinite(v := row[rule.monitor]) and isfinite(row["loss"])]
        if not odd:
            return
        text = f"the validation metric {rule.monitor} must be finite (got {odd[0]}"
        text += f" in {len(odd)} of {len(rows)} networks)" if len(rows) > 1 else ")"
        if epoch == 1:
            error = NumericalError(
                f"epoch 1: {text}; set training.early_stopping.monitor to another metric, such as "
                "loss"
            )
            error.setting = ("training", "early_stopping", "monitor")
            raise error
        self._odd_monitor = True
        _log.warning("warning: epoch %d: %s; such an epoch is not the best", epoch, text)

    def _check_level_monitor(self) -> None:
        """Report a monitored metric that is equal in all epochs, such as an accuracy."""
        rule, rows = self.members[0].early_stopping, self.history.rows
        values = {r.validation.get(rule.monitor, nan) for r in rows} if rule else {nan}
        if rule and len(rows) > 2 and len(values) == 1 and isfinite(*values) and values != {1.0}:
            advice = "set training.early_stopping.monitor to another metric, such as loss"
            _log.warning(
                "warning: the validation metric %s was %g in all epochs, so the first epoch counts "
                "as the best; %s",
                rule.monitor, *values, "give more rows" if rule.monitor == "loss" else advice,
            )  # fmt: skip

    def _call(self, hook: str, *details: Any) -> None:
        for call in self._hooks[hook]:
            call(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps; weights and orders are not copied.

        After `run`, the state has the weights of the last step, so that a loop with more epochs can
        continue.
        """
        return {
            "members": [member.state_dict() for member in self.members],
            "history": self.history.state_dict(),
            "callbacks": {name: one.state_dict() for name, one in self._states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`; call this method before `run`.

        After an error, make a new loop, because a part of the state was loaded.

        Raises: CheckpointError if the state belongs to other networks, optimizers or data.
        """
        with restoring():
            if len(state["members"]) != len(self.members):
                count = plural(len(self.members), "network")
                text = f"loop: needs the state of {count} (got {len(state['members'])})"
                raise CheckpointError(text)
            for member, one in zip(self.members, state["members"], strict=True):
                member.load_state_dict(one)
            self.history.load_state_dict(state["history"])
            for name in self._states.keys() & state["callbacks"].keys():
                self._states[name].load_state_dict(state["callbacks"][name])


def _seeds(
    seed: int | np.random.Generator | Sequence[int | np.random.Generator], count: int
) -> Sequence[int | np.random.Generator]:
    """Return the seed of each network.  Raises: UsageError for invalid or too few seeds."""
    each = [*seed] if isinstance(seed, Sequence) else [seed]
    if isinstance(seed, int | np.integer):
        each = [int(seed) + k for k in range(count)]
    known = all(
        isinstance(one, np.random.Generator) or (isinstance(one, int | np.integer) and one >= 0)
        for one in each
    )
    if not known or len(each) != count:
        raise UsageError(
            "loop: seed must be a whole number from 0, or one for each of "
            f"{plural(count, 'network')} (got {seed!r})"
        )
    return each


def _overrides(callback: Callback, name: str) -> bool:
    return getattr(type(callback), name) is not getattr(Callback, name)


def in_order(callbacks: object) -> list[Callback]:
    """Return callbacks in calling order.  Raises: UsageError unless they are callbacks."""
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    wrong = [one for one in given if given is not callbacks or not isinstance(one, Callback)]
    if wrong:
        got = quoted(wrong[0])
        raise UsageError(f"callbacks: must be a list of Callback instances (got {got})")
    return sorted(given, key=lambda callback: callback.order)


def _by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return the callbacks with a state, by name.  Raises: UsageError if two share a name."""
    states: dict[str, Callback] = {}
    for callback in callbacks:
        if _overrides(callback, "state_dict"):
            name = callback.name or type(callback).__name__
            if name in states:
                raise UsageError(f"callbacks: names must differ (two keep a state as {name!r})")
            states[name] = callback
    return states
