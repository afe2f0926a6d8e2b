"""Steps of several networks, shared among threads."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from math import nan
from threading import Event, Lock
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.errors import NumericalError, ShapeError, UsageError
from mlpengine.core.spec import Array
from mlpengine.step.bound_step import StepData, step_data
from mlpengine.step.fused_run import steps_at_once
from mlpengine.step.step import TrainingStep

SLICE_SECONDS = 0.05
"""Seconds for which a thread makes steps of one network before it takes the next network.

A core that takes a new network must read its weights and moments from memory."""

SHORTEST = 16
"""Divisor of a stretch that gives the minimum size of a slice."""

_log = logging.getLogger("mlpengine")


class StepsMade(NamedTuple):
    """Results of the steps of several networks.

    Shapes: losses and norms (networks, steps) of float64, NaN where no step was made.
    `failures` maps the number of a failed network to its error.
    """

    losses: Array
    norms: Array
    failures: dict[int, NumericalError]


def run_together(
    steps: Sequence[TrainingStep],
    x: Any,
    y: Any,
    orders: Array | Sequence[Array],
    sample_weight: Array | None = None,
    *,
    threads: int = 1,
) -> StepsMade:
    """Make a step of each network on each `batch_size` rows of its order.

    A network has the bits of `TrainingStep.run_many`, whatever the number of threads.  Networks of
    one shape share a compiled program.  If a loss or gradient is not finite, its network alone
    stops before the update, and a warning is logged.  The call answers Ctrl-C after the current
    steps, at most about 50 milliseconds.

    Args:
        steps: of different networks.
        x: (rows, in_dim), of the dtype of the networks.
        y: (rows, ...), as the loss takes it.
        orders: (networks, steps * batch_size) of int64, or vectors of several lengths.
        sample_weight: (rows,) for all networks, or (networks, rows).
        threads: maximum number of threads that share the networks if steps are compiled as a whole;
            other steps run in the calling thread, one network after the other.

    Raises: ShapeError, DataError or UsageError before any step; NumericalError if all networks
        fail; IndexRangeError for a label out of range, after whole steps.
    """
    if not steps or threads < 1:
        text = "at least one step and one thread are needed"
        raise UsageError(f"run_together: {text} (got {len(steps)} and {threads})")
    work = _Work(steps)
    work.prepare(x, y, orders, sample_weight)
    helpers = min(threads, len(steps)) - 1 if all(step.fused for step in steps) else 0
    work.run(helpers)
    for _, error in sorted(work.failures.items()):
        _log.warning("warning: %s", error)
    if len(work.failures) == len(steps):
        raise work.failures[0]
    return StepsMade(work.losses, work.norms, work.failures)


class _Work:
    """The steps of one call, divided into slices for the threads.

    A thread takes a slice of steps from the waiting network with the most steps left.  A slice is
    one or more calls of a stretch of steps each.  The last slices are short and all networks finish
    together, so that threads of different speed end at about the same time.
    """

    def __init__(self, steps: Sequence[TrainingStep]) -> None:
        self._steps, self._threads = steps, 1
        self._ended, self._lock = Event(), Lock()
        self.failures: dict[int, NumericalError] = {}

    def prepare(
        self, x: Any, y: Any, orders: Array | Sequence[Array], sample_weight: Array | None
    ) -> None:
        """Check the arguments of `run_together`, and allocate the results."""
        count = len(self._steps)
        if len(orders) != count:
            text = f"needs {count} orders, one for each network (got {len(orders)})"
            raise ShapeError(f"run_together: {text}")
        weights: Sequence[Array | None] = [sample_weight] * count
        if sample_weight is not None and sample_weight.ndim == 2:
            if len(sample_weight) != count:
                raise ShapeError(
                    f"run_together: sample_weight must be (rows,) or ({count}, rows) "
                    f"(got {sample_weight.shape})"
                )
            weights = [*sample_weight]
        self._data: list[StepData] = [step_data(x, y, w) for w in weights]
        self._orders = [np.ascontiguousarray(order) for order in orders]
        self._counts = [
            step.count_steps(data, order, f"network {k}")
            for k, (step, data, order) in enumerate(
                zip(self._steps, self._data, self._orders, strict=True)
            )
        ]
        shape = count, max(self._counts)
        self.losses, self.norms = np.full(shape, nan), np.full(shape, nan)
        self._left = [*self._counts]
        first = self._steps[0]
        self._stretch = max(1, steps_at_once(len(first.mlp.params), first.batch_size))
        self._waiting = [k for k in range(count) if self._counts[k]]

    def run(self, helpers: int) -> None:
        """Make all steps, in this thread and in `helpers` others."""
        self._threads = 1 + helpers
        if not helpers:
            self._run_slices()
            return
        with ThreadPoolExecutor(helpers, "mlpengine-network") as pool:
            futures = [pool.submit(self._run_slices) for _ in range(helpers)]
            try:
                self._run_slices()
                wait(futures)
            finally:
                self._ended.set()  # in case this thread was interrupted
        for future in futures:
            future.result()

    def _run_slices(self) -> None:
        try:
            while not self._ended.is_set() and (taken := self.next_slice()):
                k, start, last = taken
                end = perf_counter() + SLICE_SECONDS
                start = self._make(k, start, last)
                while start < last and perf_counter() < end and not self._ended.is_set():
                    start = self._make(k, start, last)
                with self._lock:
                    self._left[k] = self._counts[k] - start
                    if self._left[k]:
                        self._waiting.append(k)
        except BaseException:
            self._ended.set()
            raise

    def next_slice(self) -> tuple[int, int, int] | None:
        """Return the number of a network, and the first and the end step of a slice of its steps.

        With several threads, a slice is a fourth of a thread's share of the waiting steps.  None if
        no network waits: other threads have all that are left.
        """
        with self._lock:
            if not self._waiting:
                return None
            k = max(self._waiting, key=self._left.__getitem__)
            start, steps = self._counts[k] - self._left[k], self._left[k]
            if self._threads > 1:
                share = sum(self._left[m] for m in self._waiting) // (4 * self._threads)
                steps = min(steps, max(share, self._stretch // SHORTEST, 1))
            self._waiting.remove(k)
            return k, start, start + steps

    def _make(self, k: int, start: int, last: int) -> int:
        """Make a stretch of steps of network k from step `start`; return the number of the next."""
        step = self._steps[k]
        stop, batch = min(start + self._stretch, last), step.batch_size
        before = step.optimizer.steps
        results = self.losses[k, start:stop], self.norms[k, start:stop]
        try:
            step.make_steps(self._data[k], self._orders[k][start * batch : stop * batch], *results)
        except NumericalError as error:
            made = step.optimizer.steps - before
            for values in results:
                values[made:] = nan
            self.failures[k] = NumericalError(f"network {k}: {error}")
            return self._counts[k]
        return stop
