"""Many networks of one architecture, each trained on rows of its own."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from copy import copy, deepcopy
from math import nan
from threading import Event, Lock
from time import perf_counter
from typing import Any, TypeVar, overload

import numpy as np

from mlpengine.core.buffers import zeros
from mlpengine.core.errors import NumericalError, ShapeError, UsageError
from mlpengine.core.placement import ALIGNMENT
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.core.wording import quoted
from mlpengine.nn.network import Network
from mlpengine.nn.recording import check_arrays
from mlpengine.ops import Loss
from mlpengine.optim import Clip, Optimizer
from mlpengine.optim.schedules import PlateauSchedule
from mlpengine.step.bound_step import StepData
from mlpengine.step.step import TrainingStep, steps_at_once

SLICE_SECONDS = 0.05
"""Seconds for which a thread makes steps of one member before it takes the next.

A member that is new to a core reads its weights and moments from memory."""

SHORTEST = 16
"""A slice has a stretch divided by this, or more."""

N = TypeVar("N", bound=Network)

_log = logging.getLogger("mlpengine")


class Population(Sequence[N]):
    """Networks of the class and settings of `mlp`, with their parameters in one block.

    Member k has the bits of ``Mlp(..., seed=seeds[k])``, or of another class, made with the options
    of `mlp`, whose own parameters are not used.  The parameters of ``members[k]`` lie in the block:
    what is written to either is in both.  Iteration yields the members.  ``copy.copy`` shares the
    parameters; a deep or pickled copy has its own.

    Args:
        count: number of members.
        seeds: of the members, each for the initial weights and for dropout; by default 0, 1, 2, ...

    Raises: UsageError for no members, another number of seeds, a seed that is not a whole number
    from 0, or a class that takes no seed.
    """

    def __init__(self, mlp: N, count: int, *, seeds: Sequence[int] | None = None) -> None:
        if not isinstance(mlp, Network):
            raise UsageError(f"population: mlp must be a network (got {quoted(mlp)})")
        if count < 1:
            raise UsageError(f"population: needs at least one member (got {count})")
        seeds = range(count) if seeds is None else seeds
        if len(seeds) != count:
            raise UsageError(f"population: needs a seed for each of {count} (got {len(seeds)})")
        if not all(isinstance(s, int | np.integer) and s >= 0 for s in seeds):
            raise UsageError(f"population: seeds must be whole numbers from 0 (got {seeds!r})")
        self._members = tuple(mlp.like(seed=int(seed)) for seed in seeds)
        self._members[0].need_one("population")
        self._place()

    def _place(self) -> None:
        """Move all parameters into a new block, whose rows are whole cache lines apart."""
        line = ALIGNMENT // self[0].dtype.itemsize
        length = -(-len(self[0].params) // line) * line
        self._block = zeros(Spec((len(self), length), self[0].dtype))
        for k, member in enumerate(self):
            member.move_to(self._block, k)

    @property
    def params(self) -> Array:
        """(count, parameters), a view of the block; row k is ``members[k].params.flat``."""
        return self._block[:, : len(self[0].params)]

    def __len__(self) -> int:
        return len(self._members)

    @overload
    def __getitem__(self, k: int) -> N: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[N, ...]: ...
    def __getitem__(self, k: int | slice) -> N | tuple[N, ...]:
        return self._members[k]

    def __iter__(self) -> Iterator[N]:
        return iter(self._members)

    def predict(self, x: ArrayLike) -> Array:
        """Return the outputs (count, rows, out_dim) for `x` (rows, in_dim), without dropout.

        Raises: ShapeError or DtypeError.
        """
        return np.stack([member.predict(x) for member in self])

    def mean(self, x: ArrayLike) -> Array:
        """Return the mean (rows, out_dim) of the members' outputs for `x` (rows, in_dim).

        Outputs are logits where the loss takes logits.  Raises: ShapeError or DtypeError.
        """
        return np.asarray(self.predict(x).mean(axis=0))

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by name, each (count, ...) with a row for each member."""
        names = self[0].params.views
        return {name: np.stack([m.params.views[name] for m in self]) for name in names}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copy in what `state_dict` of a population of this size and shape returned, all or none.

        Raises: CheckpointError listing every missing, unknown or misshapen name.
        """
        arrays = {name: np.asarray(value) for name, value in state.items()}
        specs = self[0].params.specs.items()
        check_arrays({n: Spec((len(self), *s.shape), s.dtype) for n, s in specs}, arrays)
        for name, rows in arrays.items():
            for member, row in zip(self, rows, strict=True):
                member.params.views[name][...] = row

    def __getstate__(self) -> dict[str, Any]:
        return {"members": self._members, "block": self._block}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._members, self._block = state["members"], state["block"]
        if not self._block.flags.writeable:  # joblib maps files read-only
            self._place()

    def __repr__(self) -> str:
        return f"Population({len(self)} of {self[0]!r})"


class PopulationStep:
    """A training step for each member of a population: its own rows, optimizer and buffers.

    A member has the bits of a `TrainingStep` of its own with the same settings, whatever the number
    of threads.  Members of one shape share a compiled program, which is built once.

    A member whose loss or gradient is not finite stops alone, before that update: it becomes
    inactive, a warning is logged, and the others go on.

    Args:
        optimizer: class of the optimizer, or a function, called as ``optimizer(member, lr=...,
            weight_decay=...)`` with those of the two settings that are given.
        lr, weight_decay: a number for all members, or one for each.
        clip_norm: as for `TrainingStep`; each member has a copy of a rule.
        threads: maximum of threads that share the members where steps are compiled as a whole;
            other steps run in the calling thread, one member after the other.
        weighted, backend: as for `TrainingStep`.

    Attributes:
        steps: the training step of each member, with its optimizer; one makes a short batch by
            ``steps[k](x, y)``.
        active: (count,) bool; a member makes no steps while its entry is False, which may be set.
        failures: by number, the error that stopped a member last.

    Raises: UsageError for another number of settings than members, or an optimizer or schedule that
    members would share.
    """

    def __init__(
        self,
        members: Population[Any],
        loss: Loss,
        optimizer: Callable[..., Optimizer],
        batch_size: int,
        *,
        lr: float | Sequence[float] | None = None,
        weight_decay: float | Sequence[float] | None = None,
        clip_norm: float | Clip | None = None,
        weighted: bool = False,
        backend: str = "auto",
        threads: int = 1,
    ) -> None:
        if threads < 1:
            raise UsageError(f"population step: threads must be at least 1 (got {threads})")
        self.members, self.batch_size, self.threads = members, batch_size, threads
        given = {"lr": lr, "weight_decay": weight_decay}
        settings = {n: _one_each(n, v, len(members)) for n, v in given.items() if v is not None}
        steps: list[TrainingStep] = []
        for k, member in enumerate(members):
            step = TrainingStep(
                member,
                loss,
                _make_optimizer(optimizer, member, {n: v[k] for n, v in settings.items()}),
                batch_size,
                clip_norm=deepcopy(clip_norm),
                weighted=weighted,
                backend=backend,
            )
            backend = step.backend  # what cannot be compiled is reported once
            steps.append(step)
        self.steps = tuple(steps)
        _check_schedules([step.optimizer for step in steps])
        self.active = np.ones(len(members), np.bool_)
        self.failures: dict[int, NumericalError] = {}
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def backend(self) -> str:
        """What runs the steps, as `TrainingStep.backend`."""
        return self.steps[0].backend

    def run_many(
        self,
        x: Array,
        y: Array,
        orders: Array | Sequence[Array],
        sample_weight: Array | None = None,
    ) -> tuple[Array, Array]:
        """Make a step on each `batch_size` rows of each member's order; return losses and norms.

        The call answers Ctrl-C after the steps in hand, at most some 50 milliseconds of work.

        Shapes: x (rows, in_dim); y (rows, ...); orders (count, steps * batch_size) of int64, or
            vectors of several lengths; sample_weight (rows,) for all members or (count, rows);
            losses and norms (count, steps), NaN where a member made no step.
        Dtype: x, y and sample_weight that of the step's buffers, losses and norms float64.
        Raises: ShapeError, DataError or UsageError before any step; NumericalError if no member is
            active at the end; IndexRangeError for a label out of range, after whole steps.
        """
        active = [int(k) for k in np.flatnonzero(self.active)]
        if not active:
            raise UsageError("population step: needs an active member (all have stopped)")
        work = _Work(self.steps, self.batch_size, active)
        work.prepare(x, y, orders, sample_weight)
        work.run(*self._helpers(len(active)))
        for k, error in sorted(work.failures.items()):
            self.active[k] = False
            self.failures[k] = error
            _log.warning("population: %s", error)
        if not self.active.any():
            raise self.failures[active[0]]
        return work.losses, work.norms

    def _helpers(self, active: int) -> tuple[ThreadPoolExecutor | None, int]:
        """Return the pool of threads, and how many of them help the calling one."""
        count = min(self.threads, active) - 1 if self.steps[0].fused else 0
        if not count:
            return None, 0
        if self._pool is None or self._pool[0] != os.getpid():  # a fork leaves the threads behind
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads - 1, "mlpengine-population")
        return self._pool[1], count

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the threads; a shallow copy shares networks and optimizers."""
        state = {**vars(self), "_pool": None}
        return state | {
            "steps": tuple(copy(step) for step in self.steps),
            "active": self.active.copy(),
            "failures": dict(self.failures),
        }

    def __repr__(self) -> str:
        return f"PopulationStep({int(self.active.sum())} of {len(self.steps)} active)"


class _Work:
    """The steps of one call, which threads make in slices.

    A thread takes a slice of the steps of the member with the most left.  A slice is one or more
    calls of a stretch of steps each.  The last slices are short, and the members end together, so
    that all threads end at about the same time, though one may be slower than the other.
    """

    def __init__(
        self, steps: Sequence[TrainingStep], batch_size: int, active: Sequence[int]
    ) -> None:
        self._steps, self._batch, self._active = steps, batch_size, active
        self._stretch = max(1, steps_at_once(steps[0]))
        self._threads = 1
        self._ended, self._lock = Event(), Lock()
        self.failures: dict[int, NumericalError] = {}

    def prepare(
        self,
        x: Array,
        y: Array,
        orders: Array | Sequence[Array],
        sample_weight: Array | None,
    ) -> None:
        """Check the arguments of `PopulationStep.run_many`, and allocate the results."""
        members = len(self._steps)
        if len(orders) != members:
            text = f"needs {members} orders, one for each member (got {len(orders)})"
            raise ShapeError(f"population: {text}")
        weights: Sequence[Array | None] = [sample_weight] * members
        if sample_weight is not None and sample_weight.ndim == 2:
            if len(sample_weight) != members:
                raise ShapeError(
                    f"population: sample_weight must be (rows,) or ({members}, rows) "
                    f"(got {sample_weight.shape})"
                )
            weights = [*sample_weight]
        self._data: list[StepData] = [(x, y, w) for w in weights]
        self._orders = [np.ascontiguousarray(order) for order in orders]
        self._counts = [0] * members
        for k in self._active:
            step, data, order = self._steps[k], self._data[k], self._orders[k]
            self._counts[k] = step.count_steps(data, order, f"population, member {k}")
        shape = members, max(self._counts)
        self.losses, self.norms = np.full(shape, nan), np.full(shape, nan)
        self._left = [*self._counts]
        self._waiting = [k for k in self._active if self._counts[k]]

    def run(self, pool: ThreadPoolExecutor | None, helpers: int) -> None:
        """Make all steps, in this thread and in `helpers` threads of the pool."""
        self._threads = 1 + helpers
        futures = (
            [pool.submit(self._run_slices) for _ in range(helpers)] if pool is not None else []
        )
        try:
            self._run_slices()
            wait(futures)
        finally:
            self._ended.set()  # where this thread was interrupted
            wait(futures)
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
        """Return a member, and the numbers of the first step of its slice and of that after it.

        Of several threads, one takes a fourth of its share of the steps that wait.  None if no
        member waits: as many are left as other threads.
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
        """Make a stretch of steps of member k from number `start`; return the number after it."""
        step, batch = self._steps[k], self._batch
        stop = min(start + self._stretch, last)
        before = step.optimizer.steps
        results = self.losses[k, start:stop], self.norms[k, start:stop]
        try:
            step.make_steps(self._data[k], self._orders[k][start * batch : stop * batch], *results)
        except NumericalError as error:
            made = step.optimizer.steps - before
            for values in results:
                values[made:] = nan
            self.failures[k] = NumericalError(f"member {k}: {error}")
            return self._counts[k]
        return stop


def _one_each(name: str, value: float | Sequence[float], members: int) -> list[float]:
    values = np.asarray(value)
    if values.ndim == 0:
        return [values.item()] * members
    if values.shape != (members,):
        raise UsageError(
            f"population step: {name} must be a number, or one for each of {members} members "
            f"(got {list(values.shape)})"
        )
    return list(values.tolist())


def _make_optimizer(
    optimizer: Callable[..., Optimizer], member: Network, settings: Mapping[str, float]
) -> Optimizer:
    made = optimizer(member, **settings) if callable(optimizer) else None
    if not isinstance(made, Optimizer) or made.params is not member.params:
        raise UsageError(
            "population step: optimizer must be a class, or a function that makes one for a member "
            f"(got {quoted(optimizer)}); write PopulationStep(population, loss, "
            f"{type(optimizer).__name__ if isinstance(optimizer, Optimizer) else 'Adam'}, "
            "batch_size=32, lr=0.001)"
        )
    return made


def _check_schedules(optimizers: Sequence[Optimizer]) -> None:
    """Raise UsageError if members share a schedule that has a state."""
    stateful = [o.schedule for o in optimizers if isinstance(o.schedule, PlateauSchedule)]
    if len({id(schedule) for schedule in stateful}) < len(stateful):
        raise UsageError(
            "population step: each member needs a PlateauSchedule of its own; optimizer may be a "
            "function that makes one (got one for several members)"
        )
