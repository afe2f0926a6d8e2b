"""Training of several networks side by side, each by a loop of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from math import isfinite, nan
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np

from mlpengine.core.errors import NumericalError, UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.step.ranks import Ranks
from mlpengine.step.state import restoring
from mlpengine.training.history import EpochRow, History
from mlpengine.training.loop import Callback, Ending, Loop, Result, in_order

SEED_STRIDE = 1_000
"""Member k of a run with seed s has the seed `SEED_STRIDE` s + k, so that no two runs share one."""

T = TypeVar("T")


class EnsembleLoop:
    """Trains members epoch by epoch, and leaves each with its own best weights.

    A member is a `Loop`, with the rows, validation part, seed and callbacks that it was made with;
    its steps have the bits of a run of its own.  Where steps are compiled as a whole, threads take
    whole members, so that no thread waits for another within an epoch.

    With `kinds` the members are as many groups of equal size, in each of which every member has
    another fold for its validation part.  The mean over the folds of the *other* members of its
    group then chooses a member's best epoch, so that its score on its own fold is that on new rows;
    a group ends when all of it would stop early.  Without `kinds` each member's own validation part
    chooses its epoch and ends its training.

    `callbacks` are called in ascending `order` after each epoch of all members that still train
    (`on_train_batch_end` is not called).  They may read the attributes below.

    Several `ranks` train a part of the members each, and tell each other their states after each
    epoch; each has all members, and callbacks of its own.

    Args:
        threads: maximum number of threads, of each rank.
        kinds: number of groups of members whose validation parts are folds; 0 for other members.
        ranks: the processes that share the members, all of which make the same loop.

    Attributes:
        members: the loops.
        history: for each epoch the mean over the members that made it; `steps` is the sum over all.
        best_epochs: the best epoch of each member so far, 0 where it has none.

    Raises: NumericalError, from `run`, naming the first member that fails; the others stop, too.
    """

    def __init__(
        self,
        members: Sequence[Loop],
        *,
        threads: int = 1,
        kinds: int = 0,
        callbacks: Sequence[Callback] = (),
        ranks: Ranks | None = None,
    ) -> None:
        if not members:
            raise UsageError("ensemble: needs at least one member (got 0)")
        self.members = tuple(members)
        size = len(members) // kinds if kinds else 1
        if kinds and (size < 2 or len(members) % kinds):
            counts = f"{len(members)} of {plural(kinds, 'kind')}"
            text = f"two members or more, as many of each kind ({counts})"
            raise UsageError(f"ensemble: folds need {text}")
        self._groups = [self.members[k : k + size] for k in range(0, len(members), size)]
        for member in members:
            member.chooses = not kinds
        first = self.members[0]
        self.threads, self.task, self.step = threads, first.task, first.step
        self.epochs = max(member.epochs for member in members)
        self.history = History(first.history.metrics)
        self.callbacks = in_order(callbacks)
        self._stop = False
        self.ranks = ranks
        own = ranks.share(len(self.members)) if ranks else slice(None)
        self._own = frozenset(range(1, len(self.members) + 1)[own])

    @property
    def best_epochs(self) -> list[int]:
        """The best epoch of each member so far."""
        return [member.best.epoch for member in self.members]

    @property
    def best_epoch(self) -> int:
        """The last epoch in which a member became better."""
        return max(self.best_epochs)

    @property
    def steps(self) -> int:
        """Number of steps of all members so far."""
        return sum(member.steps for member in self.members)

    @property
    def position(self) -> tuple[int, ...]:
        """Steps and epochs so far, different for different states."""
        return tuple(n for member in self.members for n in member.position)

    @property
    def within_epoch(self) -> bool:
        """Whether a member has begun an epoch that it has not ended."""
        return any(member.within_epoch for member in self.members)

    @property
    def is_finite(self) -> bool:
        """Whether all weights of all members are finite."""
        return all(member.is_finite for member in self.members)

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped because they were not finite."""
        return sum(member.skipped for member in self.members)

    def callback(self, name: str) -> Any:
        """Return the callback of that name of the first member that has one, or None."""
        callbacks = (member.callback(name) for member in self.members)
        return next((callback for callback in callbacks if callback is not None), None)

    def stop(self) -> None:
        """End training after the current steps, as `Loop.stop` does."""
        self._stop = True
        if self.ranks is not None:
            self.ranks.wants_stop = True
        for member in self.members:
            member.stop()

    def run(self) -> Result:
        """Train until each member has ended, or `stop` is called."""
        for member in self.members:
            member.begin()
        self._call("on_train_start")
        try:
            ending = self._run_epochs()
            self._call("on_train_end")
            results = self._agreed(lambda: [
                self._named(k, m.finish, m.ending or ending) for k, m in self._numbered()
            ])  # fmt: skip
        except NumericalError as error:
            self._call("on_exception", error)
            raise
        self._stop = False
        if self.ranks is not None:
            self.ranks.wants_stop = False
        seconds = sum(row.seconds for row in self.history.rows)
        samples = sum(row.seconds * row.samples_per_second for row in self.history.rows)
        result = Result(
            ending,
            max(result.epochs for result in results),
            self.best_epoch,
            seconds,
            samples / seconds if seconds else 0.0,
            self.history,
        )
        self._call("on_fit_end", result)
        return result

    def _running(self) -> list[tuple[int, Loop]]:
        """Return the members of groups that have not ended, with their numbers."""
        ended = [all(m.ending for m in group) for group in self._groups for _ in group]
        return [one for one, over in zip(self._numbered(), ended, strict=True) if not over]

    def _numbered(self) -> list[tuple[int, Loop]]:
        return [*enumerate(self.members, start=1)]

    def _run_epochs(self) -> Ending:
        workers = self.threads if all(member.step.fused for member in self.members) else 1
        with ThreadPoolExecutor(workers, "mlpengine-member") as pool:
            while running := self._running():
                number = min(len(member.history.rows) for _, member in running)
                if self._stop if self.ranks is None else self.ranks.agree_to_stop():
                    return "interrupted"
                behind = [(k, m) for k, m in running if len(m.history.rows) == number]
                began = perf_counter()
                own = [(k, m) for k, m in behind if k in self._own]
                self._agreed(partial(self._make_epoch, own, pool if workers > 1 else None))
                self._exchange(dict(own))
                if any(len(member.history.rows) == number for _, member in behind):
                    return "interrupted"
                self._end_epoch(number, perf_counter() - began)
        early = any(member.ending == "early" for member in self.members)
        return "early" if early else "epochs"

    def _agreed(self, work: Callable[[], T]) -> T:
        """Return what `work` returns.

        Raises: NumericalError on every rank, that of the lowest rank that has one.
        """
        if self.ranks is None:
            return work()
        result, error = None, None
        try:
            result = work()
        except NumericalError as caught:
            error = caught
        if first := self.ranks.first(error):
            raise first
        return cast("T", result)

    def _exchange(self, own: Mapping[int, Loop]) -> None:
        """Give all ranks the states of this rank's members, and load those of theirs."""
        if self.ranks is None:
            return
        for states in self.ranks.of_all({k: member.state_dict() for k, member in own.items()}):
            for k in states.keys() - self._own:
                self.members[k - 1].load_state_dict(states[k])

    def _make_epoch(
        self, members: Sequence[tuple[int, Loop]], pool: ThreadPoolExecutor | None
    ) -> None:
        """Make the next epoch of each of these members.

        Raises: NumericalError of the first that fails, after the others have stopped.
        """
        remaining = iter(members)
        if pool is None:
            self._run_each(remaining)
            return
        futures = [pool.submit(self._run_each, remaining) for _ in range(self.threads)]
        try:
            wait(futures)
        finally:
            if not all(future.done() for future in futures):  # this thread was interrupted
                self.stop()
                wait(futures)
        for future in futures:
            future.result()

    def _run_each(self, remaining: Iterator[tuple[int, Loop]]) -> None:
        """Make an epoch of each member that no other thread takes before."""
        for number, member in remaining:
            if self._stop:
                return
            try:
                self._named(number, member.run_epoch)
            except NumericalError as error:
                self.stop()
                member.abandon(error)
                raise

    def _named(self, number: int, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `work` returns; add the number of the member to its error."""
        try:
            return work(*arguments)
        except NumericalError as error:
            raise NumericalError(f"member {number}: {error}") from error

    def _end_epoch(self, number: int, spent: float) -> None:
        made = [m for m in self.members if len(m.history.rows) > number]
        if len(self._groups) < len(self.members):
            for group in self._groups:
                if len(group[0].history.rows) > number:
                    _choose_together(group, number)
        rows = [member.history.rows[number] for member in made]
        samples = sum(member.batches.n_rows for member in made)
        row = EpochRow(
            epoch=number + 1,
            steps=self.steps,
            lr=_mean(row.lr for row in rows),
            gradient_norm=_mean(row.gradient_norm for row in rows),
            train_loss=_mean(row.train_loss for row in rows),
            validation={
                name: _mean(row.validation[name] for row in rows) for name in rows[0].validation
            },
            seconds=spent,
            samples_per_second=samples / spent,
        )
        self.history.rows.append(row)
        self._call("on_train_epoch_end", row)

    def _call(self, hook: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps; weights and orders are not copied."""
        return {
            "members": [member.state_dict() for member in self.members],
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from `state_dict`, or change nothing; call it before `run`.

        Raises: CheckpointError if the state is that of other members.
        """
        put_back = [member.remembered() for member in self.members]
        try:
            with restoring():
                for member, one in zip(self.members, state["members"], strict=True):
                    member.load_state_dict(one)
                self.history.load_state_dict(state["history"])
        except Exception:
            for call in put_back:
                call()
            raise


def _choose_together(group: Sequence[Loop], number: int) -> None:
    """Compare an epoch of each member with its best so far, by the folds of the other members.

    Members whose own measurements are not finite have no share in the mean of others.
    """
    rows = [member.history.rows[number].validation for member in group]
    keys = {"loss", group[0].best.rule.monitor}
    sound = [all(isfinite(row[key]) for key in keys) for row in rows]
    for k, member in enumerate(group):
        others = [row for j, row in enumerate(rows) if sound[j] and j != k]
        chosen = {key: _mean(row[key] for row in others) for key in keys} if sound[k] else rows[k]
        member.best.update(member.step.mlp.params.flat, number + 1, chosen)


def _mean(values: Any) -> float:
    numbers: Array = np.fromiter(values, np.float64)
    return float(numbers.mean()) if len(numbers) else nan
