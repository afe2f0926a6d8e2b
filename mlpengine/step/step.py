"""One training step on fixed buffers: forward, loss, backward, clip, optimizer."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args
from weakref import WeakSet
from zlib import crc32

import numpy as np

from mlpengine.backends import BackendName
from mlpengine.backends.update import largest_factor, largest_update
from mlpengine.core.buffers import quiet_runner, second_call, unmasked
from mlpengine.core.errors import (
    CheckpointError,
    CompileError,
    DataError,
    DtypeError,
    NumericalError,
    ShapeError,
    UsageError,
)
from mlpengine.core.fields import COUNT
from mlpengine.core.named import (
    NamedRows,
    as_rows,
    check_rows,
    matched,
    need_array,
    need_names,
    row_specs,
)
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.core.system import call_in_forks
from mlpengine.core.wording import differing, nearest, plural, quoted
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.network import Network
from mlpengine.nn.safetensors_file import read_tensors, write_tensors
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import REGISTRY, Loss, MeanSquaredError
from mlpengine.ops.loss_sum import LossSum
from mlpengine.ops.philox import scaled_limit
from mlpengine.optim import Clip, Optimizer
from mlpengine.optim.clipping import Apply, clip_rule
from mlpengine.optim.grouped import GroupedOptimizer
from mlpengine.optim.schedules import ScheduleLike
from mlpengine.step.bound_step import BoundStep, StepData
from mlpengine.step.ranks import Ranks
from mlpengine.step.shards import Buffers, Shards
from mlpengine.step.state import pack, restoring, unpack
from mlpengine.tape.norm import GlobalNorm
from mlpengine.tape.rematerialization import Rematerialization

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor
    from mlpengine.step.step_builder import StepBuilder


_BOUND = ("_bound", "_buffers", "_clip", "_full", "_quietly", "_result", "_update")
"""Attributes that a copy makes for itself."""

STEP_EXAMPLE = "TrainingStep(mlp, loss, optimizer, batch_size=32)"

WORK_AT_ONCE = 2**28
"""Parameters times rows of the steps of one call, milliseconds, after which signals are handled and
checkpoints that are due are written."""

ROWS_OF_UPDATE = 8
"""Number of rows whose arithmetic takes as long as the update of the optimizer."""

_STEPS: WeakSet["TrainingStep"] = WeakSet()
"""All steps of this process."""


def _free_steps() -> None:
    """Let a forked child make steps, even those that a thread of its parent was making."""
    for step in _STEPS:
        step._quietly, step._result.busy = quiet_runner(), False


call_in_forks(_free_steps)


@dataclass(slots=True)
class _Result:
    """What each step writes, or each call of `make_fused_steps`."""

    bound: BoundStep
    loss: float = nan
    norm: float = nan
    clipped: float = nan
    clipped_steps: int = 0
    checked: bool = False
    """Whether the first targets were checked."""
    busy: bool = False
    """Whether a thread is making steps."""


class TrainingStep:
    """A training step of one network, loss and optimizer, bound to its buffers once.

    ``step(x, y)`` runs forward, loss, backward, clipping and the optimizer, and returns the loss
    of the batch before the update.  It allocates only at the first step with each number of rows.
    Batches may be shorter than `batch_size`.

    A network with several inputs or outputs takes and gives arrays by name, and has a loss for each
    output, ``{"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()}``.  The loss is their
    sum.

    Args:
        optimizer: made for the network; or one for each of its groups of parameters, ``{"head":
            Adam(network), "body": Sgd(network)}``, with one schedule.  `step.optimizer` is then
            both, with the learning rate of the first one, to which the others are in proportion.
        loss_weights: factors of the losses in that sum; 1 where there is none.
        clip_norm: maximum global L2 norm of the gradients, or another rule that scales them; None
            does not clip.
        weighted: whether batches come with sample weights.
        backend: ``compiled`` for machine code for these shapes, in which NumPy computes what has
            no compiled rule; ``numpy``; ``numexpr``, whose rules then run where it has some; or
            ``auto``, which is compiled where there is a compiler and NumPy elsewhere.
        threads: maximum for a compiled step, which uses fewer where more would not be faster.  The
            result is the same, bit for bit, for every number of threads.
        rematerialization: as for `Mlp.scratch`.
        dropout_schedule: a function from the number of completed steps to a factor, 0 to 1, of the
            network's dropout rates.
        shards: number of parts that a batch is cut into, a power of two.  The result depends on
            it, but not on the number of ranks that compute them.
        ranks: processes, a divisor of `shards`, that share the work, as in
            ``Ranks(MPI.COMM_WORLD)``.  All of them make the same calls on whole batches, of which
            each reads its own rows.

    Attributes:
        backend: what runs the steps, ``compiled``, ``numpy`` or ``numexpr``; all are
            deterministic.
        not_compiled: why NumPy runs where compiled code was meant to; empty elsewhere.
        bad_rows: rows at fault in the last step that was not finite.

    Raises: NumericalError from a call whose loss or gradient is not finite, on every rank; the
    parameters and the optimizer are as before that step.
    """

    _target: Any = None

    def __new__(cls, mlp: Any = None, loss: Any = None, *_: Any, **__: Any) -> Any:
        """Return the step for one array of inputs and outputs, or that for arrays by name."""
        named = isinstance(loss, Mapping) or (
            isinstance(mlp, Network)
            and "" not in {**mlp.in_shapes}.keys() & {**mlp.out_sizes}.keys()
        )
        if cls is TrainingStep and named:
            cls = NamedStep
        return super().__new__(cls)

    def __init__(
        self,
        mlp: Network,
        loss: Loss | Mapping[str, Loss],
        optimizer: Optimizer | Mapping[str, Optimizer],
        batch_size: int,
        *,
        loss_weights: Mapping[str, float] | None = None,
        clip_norm: float | Clip | None = None,
        weighted: bool = False,
        backend: str = "auto",
        threads: int = 1,
        rematerialization: Rematerialization = "keep",
        dropout_schedule: ScheduleLike | None = None,
        shards: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        batch_size = COUNT.check("training step: batch_size", batch_size)
        threads = COUNT.check("training step: threads", threads)
        if isinstance(optimizer, Mapping) and isinstance(mlp, Network):
            optimizer = GroupedOptimizer(mlp, optimizer)
        if isinstance(loss, Mapping):
            loss_sum: Any = LossSum(loss, loss_weights)
            _check_parts(mlp, MeanSquaredError(), optimizer)
        elif loss_weights is not None:
            raise UsageError("training step: loss_weights must come with a loss for each output")
        else:
            loss_sum = loss
            _check_parts(mlp, loss, optimizer)
        if optimizer.params is not mlp.params:
            raise UsageError(
                "training step: optimizer must be made for mlp (got another's); write Adam(mlp)"
            )
        if dropout_schedule is not None and not callable(dropout_schedule):
            raise UsageError(
                "training step: dropout_schedule must be callable "
                f"(got {quoted(dropout_schedule)}), such as CosineSchedule(1000)"
            )
        self.clip = clip_rule(clip_norm, "training step: clip_norm")
        self.loss: Loss = loss_sum
        self.mlp, self.optimizer = mlp, optimizer
        self.batch_size, self.weighted = batch_size, weighted
        self.threads = threads
        if backend not in get_args(BackendName):
            names = ", ".join(get_args(BackendName))
            raise UsageError(f"backend: must be one of {names} (got {backend!r})")
        self.backend, self.not_compiled = backend, ""
        if backend == "auto":
            from mlpengine.step.auto_backend import auto_backend  # slow, and few imports need it

            self.backend, self.not_compiled = auto_backend()
        self.bad_rows: list[int] = []
        self.shards, self.ranks = shards, ranks
        self._agreed = False
        self.rematerialization = rematerialization
        self.dropout_schedule = dropout_schedule
        self._start()

    def _start(self, buffers: Buffers | None = None) -> None:
        """Bind the step for full batches."""
        self.mlp.rng.scheduled = self.dropout_schedule is not None
        self._buffers = self._make_buffers() if buffers is None else buffers
        self._quietly = quiet_runner()
        self._largest_update = largest_update(self.mlp.dtype, self.optimizer.ranges)
        self._bound: dict[int, BoundStep] = {}
        self._full = self.bound(self.batch_size)
        self._rates = self._full.scratch.recording.rates
        self._draws = self._full.scratch.recording.draws or self.dropout_schedule is not None
        self._result = _Result(self._full)
        _STEPS.add(self)
        self._update = tuple(self.optimizer.calls(self._full.grads.flat))
        self._clip = self._bind_clip()

    def _make_buffers(self) -> Buffers:
        compiled = self.backend == "compiled"

        def scratch(rows: int) -> Scratch:
            backend = "numpy" if compiled else self.backend
            return self.mlp.scratch(rows, backend=backend, rematerialization=self.rematerialization)

        if self.shards == 1 and self.ranks is None:
            return scratch(self.batch_size), self.mlp.gradients(self.batch_size)
        return Shards(self.mlp, self.batch_size, self.shards, self.ranks, make=scratch)

    @property
    def threads_used(self) -> int:
        """Threads that may share a step: `threads`, fewer for small shapes, 1 in NumPy."""
        if self.backend != "compiled":
            return 1
        fused = self._full.fused
        return self.threads if fused is None or self.ranks else fused.source.threads

    @property
    def scratch(self) -> Scratch:
        """The activations of the last step; of its first shard on this rank, if there are several.

        Source: the buffers, which the next step overwrites.
        """
        return self._result.bound.scratch

    @property
    def grads(self) -> Gradients:
        """The gradients of the last step.

        Of several shards they are those of the first one on this rank, but ``grads.flat`` is the
        gradient of the batch.
        """
        return self._result.bound.grads

    @property
    def loss_value(self) -> float:
        """Loss of the last step before its update, mean over its rows; NaN before the first."""
        return self._result.loss

    @property
    def losses(self) -> dict[str, float]:
        """Loss of the last step by output, without weights; of the only output as ``output``.

        Of several ranks these are the shares of the rows of this one.
        """
        return {"output": self.loss_value}

    @property
    def grad_norm(self) -> float:
        """Global norm of the last gradients before clipping."""
        return self._result.norm

    @property
    def clipped_norm(self) -> float:
        """Global norm of the last gradients after clipping."""
        return self._result.clipped

    @property
    def clipped_steps(self) -> int:
        """Number of steps of the last `make_fused_steps` whose gradients were clipped."""
        return self._result.clipped_steps

    def __call__(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Train on the rows of `x` (rows, in_dim) with targets `y`; return their mean loss."""
        rows = x if type(x) is np.ndarray else unmasked(x, "training step: x")
        target = y if type(y) is np.ndarray else unmasked(y, "training step: y")
        if rows.ndim != 2 and rows.ndim != len(self.mlp.in_shape) + 1:
            raise ShapeError(self._not_rows(x, rows, target))
        return self._train(rows, target, sample_weight)

    def _train(self, rows: Any, target: Any, sample_weight: ArrayLike | None) -> float:
        """Train on rows and targets whose number of axes is right."""
        bound = self.bound(len(rows))
        weights = None
        if sample_weight is not None:
            weights = unmasked(sample_weight, "training step: sample_weight")
        try:
            bound.write(rows, target, weights)
        except (ShapeError, DtypeError):
            if not self.take_targets_as(target):
                raise
            bound = self.bound(len(rows))
            bound.write(rows, target, weights)
        if not self._result.checked:
            self._check_target(target)
        return self.run(bound)

    def check_names(self, x: Any, y: Any) -> None:
        """Raise ShapeError unless features and targets have names where those of the step have."""
        for name, value in (("x", x), ("y", y)):
            need_array(value, f"training step: {name}")

    def _check_target(self, target: Array) -> None:
        """Raise IndexRangeError for the first targets of the step if they are no probabilities."""
        self.loss.check_target(target)
        self._result.checked = True

    def _not_rows(self, x: ArrayLike, rows: Array, target: Array) -> str:
        """Return the message for features that are not (rows, in_dim)."""
        if not rows.ndim:
            return f"training step: x must be an array of rows (got {quoted(x)})"
        shape, advice = self.mlp.in_shape, "write np.reshape(x, (len(x), -1))"
        if rows.ndim == 1 and target.shape[1:] == shape:
            advice = "the features come first; write step(x, y)"
        elif rows.ndim == 1:
            deep = max(0, self._full.loss.target.ndim - target.ndim)
            advice = f"for one row write step([x], {'[' * deep}y{']' * deep})"
        wanted = ", ".join(map(str, ("rows", *shape)))
        return f"training step: x must be ({wanted}) (got {rows.shape}); {advice}"

    def take_targets_as(self, y: Array) -> bool:
        """Bind the step anew for targets of the kind of `y`, such as probabilities of classes.

        Return False if it is bound for such targets already, or the loss does not take them.
        """
        output, now = Spec.of(self._full.scratch.output), Spec.of(self._full.loss.target)
        given = Spec((*output.shape[:1], *y.shape[1:]), y.dtype)
        try:
            kind = self.loss.target_spec(output, given)
        except (ShapeError, DtypeError):
            return False
        return (kind.shape[1:], kind.dtype) != (now.shape[1:], now.dtype) and self._take(kind)

    def _take(self, kind: Any) -> bool:
        """Bind the step anew for targets of this kind; return True."""
        self._target = kind
        self._start(self._buffers)
        return True

    def bound(self, rows: int) -> BoundStep:
        """Return the step for `rows` rows: `write` or `gather` a batch into it, then `run` it.

        Without shards a batch may also be written to its ``scratch.input`` and ``loss.target``.
        The same backend runs all numbers of rows: if the step for one number cannot be compiled,
        none is.  Call this for all numbers before training, so that the backend does not change.
        Raises: ShapeError for no rows, or more than the batch size.
        """
        bound = self._bound.get(rows)
        if bound is None:
            if not rows:
                raise ShapeError("training step: x needs at least one row (got 0)")
            if rows > self.batch_size:
                raise ShapeError(
                    f"training step: takes up to {plural(self.batch_size, 'row')} (got {rows}); "
                    f"make it with batch_size={rows}, or write step(x[:{self.batch_size}], "
                    f"y[:{self.batch_size}]) for each batch"
                )
            backend = self.backend
            bound = self._bound[rows] = self._bind(rows)
            if self.backend != backend and len(self._bound) > 1:
                self._bound = {n: self._bind(n) for n in self._bound}
                self._full = self._bound[self.batch_size]
                bound = self._bound[rows]
        return bound

    def run(self, bound: BoundStep) -> float:
        """Train on the contents of the buffers of `bound`; return the loss before the update."""
        result, fused = self._result, bound.fused
        if result.busy:
            raise second_call("training step")
        result.busy = True  # no signal is handled between this and the `try`
        try:
            result.bound = bound
            loss: float
            if fused is None:
                loss = self._quietly(self._run, bound)
            else:
                loss = self._make_fused(bound, fused)
        finally:
            result.busy = False
        return loss

    def _run(self, bound: BoundStep) -> float:
        if self.ranks is not None and not self._agreed:
            self._compare_ranks(self.ranks)
        optimizer = self.optimizer
        if self._draws:
            self._begin(optimizer.steps)
        for call in bound.calls:
            call()
        result = self._result
        result.loss = value = bound.value
        if bound.update is not None:
            bound.update.call.loss = value
            return self._make_fused(bound, bound.update)
        result.norm, result.clipped = norm, clipped = self._clip()
        update = optimizer.scheduled_lr(optimizer.steps) * clipped
        if not (isfinite(value) and isfinite(norm) and update <= self._largest_update):
            self._raise_nonfinite(bound)
        for call in self._update:
            call()
        return value

    def _begin(self, steps: int) -> None:
        """Let dropout draw what it draws after that many steps; called where units are dropped."""
        self.mlp.rng.step = steps
        if self.dropout_schedule is not None:
            self.mlp.rng.scale_rates(self._dropout_share(steps))

    def _dropout_share(self, steps: int) -> float:
        """Return the factor of the dropout rates after that many steps.  Raises: UsageError."""
        share = 1.0 if self.dropout_schedule is None else self.dropout_schedule(steps)
        if not 0.0 <= share <= 1.0:
            raise UsageError(
                f"training step: dropout_schedule must lie in 0 to 1 "
                f"(got {share:g} after {plural(steps, 'step')})"
            )
        return share

    def _runs_of_one_dropout(self, count: int) -> Iterator[slice]:
        """Yield the parts of the next `count` steps that have the same dropout."""
        if self.dropout_schedule is None:
            yield slice(0, count)
            return
        rates, first = self._rates, self.optimizer.steps
        shares = [self._dropout_share(first + i) for i in range(count)]
        limits = [[scaled_limit(rate, share) for rate in rates] for share in shares]
        start = 0
        for i in range(1, count + 1):
            if i == count or limits[i] != limits[start]:
                yield slice(start, i)
                start = i

    def _compare_ranks(self, ranks: Ranks) -> None:
        """Raise UsageError, on every rank, unless the ranks make the same steps."""
        names = ("shards", "batch_size", "weighted", "backend")
        values = {name: getattr(self, name) for name in names}
        values |= {"network": repr(self.mlp)}
        values |= {"optimizer": repr(self.optimizer), "weights": crc32(self.mlp.params.flat.data)}
        if difference := ranks.difference(values):
            raise UsageError(f"training step: {difference}")
        self._agreed = True

    def run_many(
        self, x: Array, y: Array, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        """Run a step for every `batch_size` rows of `order`; return losses and gradient norms.

        Equivalent to a loop that gathers rows and calls `run`; a fused step makes many in a call of
        milliseconds, after which it answers Ctrl-C.
        Shapes: x (rows, in_dim), y (rows, ...), order (steps * batch_size,) of int64.
        Raises: as `run`, from the first step that fails, after the steps before it.
        """
        target = self._full.loss.target
        if y.dtype != target.dtype or y.ndim != target.ndim:
            self.take_targets_as(y)
        return self._run_many((x, y, sample_weight), order)

    def _run_many(self, data: StepData, order: Array) -> tuple[Array, Array]:
        count = self.count_steps(data, order, "run_many")
        losses, norms = np.zeros(count), np.zeros(count)
        self.make_steps(data, order, losses, norms)
        return losses, norms

    def count_steps(self, data: StepData, order: Array, where: str) -> int:
        """Return how many full batches `order` names.

        Raises: ShapeError or DataError, beginning with `where`, unless `make_steps` can make a step
        on each; IndexRangeError for targets that are no probabilities.
        """
        known = isinstance(order, np.ndarray) and order.dtype == np.int64 and order.ndim == 1
        if not known or order.size % self.batch_size:
            raise ShapeError(
                f"{where}: order must be an array of int64, a multiple of {self.batch_size} long "
                f"(got {quoted(order)}); write np.arange({self.batch_size}), say"
            )
        if misfit := next(self._full.layout_errors(data, order), ""):
            raise DataError(f"{where}: {misfit}")
        if not self._result.checked:
            self._check_target(data[1])
        return order.size // self.batch_size

    def make_steps(self, data: StepData, order: Array, losses: Array, norms: Array) -> None:
        """Make the steps of `run_many`, on arguments known to fit, and write the results."""
        bound, batch = self._full, self.batch_size
        done, at_once = 0, max(1, steps_at_once(self))
        many = bound.fused is not None and order.flags.c_contiguous
        while many and done < len(losses):
            part, rows = slice(done, done + at_once), slice(done * batch, (done + at_once) * batch)
            made = self.make_fused_steps(bound, data, order[rows], losses[part], norms[part])
            many = made == len(losses[part])
            done += made
        for i in range(done, len(losses)):  # a step that failed does so again, and raises
            bound.gather(data, order[i * batch : (i + 1) * batch])
            losses[i] = self.run(bound)
            norms[i] = self.grad_norm

    def make_fused_steps(
        self,
        bound: BoundStep,
        data: StepData,
        order: Array,
        losses: Array,
        norms: Array,
        max_norm: float = inf,
    ) -> int:
        """Run a step for each entry of `losses` in machine code; return how many are completed.

        The last one may have fewer rows, where its program is that of whole batches.  A step that
        fails, or whose gradient norm exceeds `max_norm`, updates nothing and is the last one.
        """
        result = self._result
        if result.busy:
            raise second_call("training step")
        result.busy = True
        try:
            return self._make_many(bound, data, order, losses, norms, max_norm)
        finally:
            result.busy = False

    def _make_many(
        self,
        bound: BoundStep,
        data: StepData,
        order: Array,
        losses: Array,
        norms: Array,
        max_norm: float,
    ) -> int:
        optimizer, fused, count = self.optimizer, bound.fused, len(losses)
        if fused is None:
            return 0
        rates, decays = optimizer.next_rates(count)
        batch, done, clips = self.batch_size, 0, 0
        for part in self._runs_of_one_dropout(count):
            if self._draws:
                self._begin(optimizer.steps)
            rows = order[part.start * batch : part.stop * batch]
            wanted = part.stop - part.start
            first = fused.call.steps = optimizer.steps
            try:
                fused.run(
                    rows,
                    data,
                    rates if isinstance(rates, float) else rates[part],
                    decays if isinstance(decays, float) else decays[part],
                    losses[part],
                    norms[part],
                    steps=first,
                    missing=wanted * batch - len(rows),
                    max_norm=max_norm,
                )
            finally:  # KeyboardInterrupt is raised where the call returns
                made = fused.call.steps - first
                done += made
                if made:
                    last = part.start + made - 1
                    optimizer.count(rates if isinstance(rates, float) else rates.item(last), made)
            clips += fused.call.clips
            if made < wanted:
                break
        if done * batch > len(order):
            bound = self.bound(len(order) % batch)
        result = self._result
        result.bound, result.clipped_steps = bound, clips
        if done:
            result.loss, result.norm = losses.item(done - 1), norms.item(done - 1)
            result.clipped = fused.call.clipped
        return done

    def _make_fused(self, bound: BoundStep, fused: "Executor") -> float:
        optimizer, result = self.optimizer, self._result
        steps = optimizer.steps
        lr, decay = optimizer.scheduled_lr(steps), optimizer.scheduled_decay(steps)
        if self._draws:
            self._begin(steps)
        try:
            result.loss, result.norm, status = fused.make_step(lr, decay, steps)
        except BaseException:  # KeyboardInterrupt is raised where the call returns
            if fused.call.steps == steps + 1:
                optimizer.count(lr)
            raise
        result.clipped = result.norm if status else fused.call.clipped
        if status:
            self._raise_nonfinite(bound)
        optimizer.count(lr)
        return result.loss

    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on but the batch; the weights are not copied."""
        return {
            "weights": dict(self.mlp.params.views),
            "dropout": {"seed": self.mlp.rng.seed},
            "optimizer": self.optimizer.state_dict(),
            "clip": self.clip.state_dict() if self.clip else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from `state_dict`, or change nothing.

        Raises: CheckpointError if the state is that of another network or optimizer.
        """
        before = {**self.state_dict(), "weights": self.mlp.state_dict()}
        try:
            self._load(state)
        except CheckpointError:
            self._load(before)
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        with restoring():
            if "weights" not in state:
                own = state.keys() <= self.mlp.params.views.keys()
                given = "that of a network" if own else f"one with {', '.join(map(repr, state))}"
                raise CheckpointError(
                    f"training step: needs what step.state_dict() returned (got {given:.100}); "
                    "write mlp.load_state_dict(state) for weights alone"
                )
            self.mlp.load_state_dict(state["weights"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.clip:
                self.clip.load_state_dict(state["clip"])
            self.mlp.rng.seed = state["dropout"]["seed"]

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file, atomically; of several ranks, rank 0 does."""
        arrays, plain = pack(self.state_dict())
        if self.ranks is None or self.ranks.rank == 0:
            write_tensors(path, arrays, {"step": plain, "mlp": self.mlp.to_dict()})

    def load(self, path: str | Path) -> None:
        """Continue exactly from what `save` wrote, with a step of the same settings.

        Raises: CheckpointError if the file is damaged, or of another network or optimizer.
        """
        arrays, header = read_tensors(path)
        if "step" not in header:
            raise CheckpointError(
                f"{path}: must be written by TrainingStep.save; Mlp.load and mlpengine.load read "
                f"models"
            )
        own, saved = differing(self.mlp.to_dict(), header.get("mlp"))
        if own != saved:
            raise CheckpointError(f"{path}: must be of the same network (got {saved}, not {own})")
        try:
            self.load_state_dict(unpack(arrays, header["step"]))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error

    @property
    def fused(self) -> bool:
        """Whether a step, update included, is one call into machine code."""
        return self._full.fused is not None

    def summary(self) -> str:
        """Return a table of the instructions of a full batch's step, and what computes each.

        That is a compiled program or NumPy, which runs between programs what has no compiled rule.
        """
        compiled = self.backend == "compiled"
        lines = [*self._builder().describe(self._full, compiled=compiled)]
        width = max(len(where) for where, _ in lines)
        return "\n".join(f"{where:<{width}}  {text}" for where, text in lines)

    def emit_c(self) -> str:
        """Return the C text of the step over a full batch, as ``summary --emit-c`` prints it.

        Raises: CompileError if the step is not fused.
        """
        if self._full.fused is None:
            raise CompileError(
                "emit: the step must be compiled as a whole; a part that only NumPy has, or a "
                "missing compiler, splits it"
            )
        return self._full.fused.source.text

    def _raise_nonfinite(self, bound: BoundStep) -> NoReturn:
        for statistics in bound.scratch.recording.statistics:
            statistics.restore()
        step, norm, self.bad_rows = self.optimizer.steps + 1, self.clipped_norm, []
        fault = bound.find_fault()  # raises for a label out of range, which leaves no loss
        if fault is None and isfinite(self.loss_value) and isfinite(norm):
            lr = self.optimizer.scheduled_lr(self.optimizer.steps)
            lr *= largest_factor(self.optimizer.ranges)
            raise NumericalError(
                f"step {step}: the update must be finite (lr {lr:g}, gradient norm {norm:g})"
            )
        self.bad_rows = fault.rows if fault else []
        place = fault.place if fault else "the loss overflows, although every output is finite"
        raise NumericalError(f"step {step}: loss and gradients must be finite ({place})")

    def _bind_clip(self) -> Apply:
        """Return a function that clips the gradients and returns their norm before and after."""
        grads = self._full.grads
        if self.clip is not None:
            return self.clip.bind(self.mlp.params, grads)
        norm = GlobalNorm(grads.flat)

        def measure() -> tuple[float, float]:
            value = norm()
            return value, value

        return measure

    def _bind(self, rows: int) -> BoundStep:
        whole = self._bound.get(self.batch_size)
        compiled = self.backend == "compiled"
        bound, problem = self._builder().build(self._buffers, rows, whole, compiled=compiled)
        if problem:
            self.backend, self.not_compiled = "numpy", problem
        return bound

    def _builder(self) -> "StepBuilder":
        from mlpengine.step.step_builder import StepBuilder  # slow, and few imports need it

        settings = self.loss, self.optimizer, self.clip, self.weighted, self.threads
        return StepBuilder(*settings, self._target)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings and the contents of all buffers; a copy is bound anew.

        A shallow copy shares network, loss, optimizer and clipping rule, and has its own buffers.
        """
        buffers = self._buffers
        result = self._result
        last = next(rows for rows, bound in self._bound.items() if bound is result.bound)
        return {
            **{k: v for k, v in vars(self).items() if k not in _BOUND},
            "buffers": tuple(map(copy, buffers)) if isinstance(buffers, tuple) else copy(buffers),
            "targets": {rows: [*bound.targets()] for rows, bound in self._bound.items()},
            "last": (last, result.loss, result.norm, result.clipped, result.clipped_steps),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        buffers, targets, last = (state.pop(name) for name in ("buffers", "targets", "last"))
        vars(self).update(state)
        self._start(buffers)
        for rows, given in targets.items():
            for buffer, values in zip(self.bound(rows).targets(), given, strict=True):
                buffer[...] = values
        rows, *numbers = last
        self._result = _Result(self.bound(rows), *numbers)


def steps_at_once(step: TrainingStep) -> int:
    """Return how many steps one call may make; 0 where one step takes longer than that."""
    return WORK_AT_ONCE // (len(step.mlp.params) * (step.batch_size + ROWS_OF_UPDATE))


def _check_parts(mlp: object, loss: object, optimizer: object) -> None:
    """Raise UsageError, with the right call, unless these are a network, a loss, an optimizer."""
    kinds: dict[str, tuple[object, type, str]] = {
        "mlp": (mlp, Network, "a network such as Mlp([4, 8, 3])"),
        "loss": (loss, Loss, "a loss such as SoftmaxCrossEntropy()"),
        "optimizer": (optimizer, Optimizer, "an optimizer such as Adam(mlp)"),
    }
    losses = {name: op.__name__ for name, op in REGISTRY.items() if issubclass(op, Loss)}
    optimizers = {kind.__name__: kind.__name__ for kind in _below(Optimizer)}
    for name, (value, kind, text) in kinds.items():
        if isinstance(value, kind):
            continue
        made, ends = (losses, "()") if name == "loss" else (optimizers, "(mlp)")
        near = made.get(nearest(value, made) or "") if isinstance(value, str) else None
        if isinstance(value, type) and issubclass(value, kind) and name != "mlp":
            near = value.__name__
        right = STEP_EXAMPLE.replace(name, f"{near}{ends}") if near else STEP_EXAMPLE
        raise UsageError(
            f"training step: {name} must be {text} (got {quoted(value)}); write {right}"
        )


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the classes that are derived from one."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


class NamedStep(TrainingStep):
    """A `TrainingStep` that takes arrays by name; ``TrainingStep(...)`` returns it where needed."""

    def _start(self, buffers: Any = None) -> None:
        self._check_losses()
        super()._start(buffers)

    def _check_losses(self) -> None:
        """Raise UsageError unless there is a loss for each output."""
        names = [*self.mlp.out_sizes]
        losses = [*self.loss.losses] if isinstance(self.loss, LossSum) else [""]
        if {*names} != {*losses}:
            wanted = ", ".join(f"{name!r}: ..." for name in names if name)
            given = ", ".join(map(repr, filter(None, losses))) or "one loss"
            right = f"a loss for each output, {{{wanted}}}" if wanted else "one loss"
            raise UsageError(f"training step: loss must be {right} (got {given})")

    def __call__(self, x: Any, y: Any, sample_weight: Any = None) -> float:
        return self._train(*self._named(x, y), sample_weight)

    def _named(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return features and targets as arrays or `NamedRows`, of as many rows each."""
        self.check_names(x, y)
        rows, target = as_rows(x), as_rows(y)
        if not isinstance(rows, NamedRows) and rows.ndim != len(self.mlp.in_shape) + 1:
            raise ShapeError(self._not_rows(x, rows, rows))
        for name, value in (("x", rows), ("y", target)):
            check_rows(value, len(rows), f"training step: {name}")
        return rows, target

    def check_names(self, x: Any, y: Any) -> None:
        targets = self.loss.targets if isinstance(self.loss, LossSum) else None
        for name, value, wanted in (("x", x, self.mlp.in_shape), ("y", y, targets)):
            if isinstance(wanted, dict | list):
                need_names(value, dict.fromkeys(wanted), f"training step: {name}")
            else:
                need_array(value, f"training step: {name}")

    def take_targets_as(self, y: Any) -> bool:
        if not isinstance(self.loss, LossSum):
            return super().take_targets_as(y)
        now = row_specs(self._full.loss.target, self.batch_size)
        kinds = {}
        for name, given in row_specs(y, self.batch_size).items():
            output = row_specs(self._full.scratch.output[name], self.batch_size)
            try:
                kinds[name] = self.loss.losses[name].target_spec(output, given)
            except (ShapeError, DtypeError):
                return False
        return kinds != now and self._take(kinds)

    def run_many(
        self, x: Any, y: Any, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        rows, target = self._named(x, y)
        if isinstance(self.loss, LossSum):
            self.take_targets_as(target)
        return self._run_many((rows, target, sample_weight), order)

    def make_fused_steps(
        self, bound: BoundStep, data: StepData, order: Array, *results: Any, **options: Any
    ) -> int:
        flat: Any = [rows for rows, _ in matched(data, bound.buffers)]
        return super().make_fused_steps(bound, flat, order, *results, **options)

    @property
    def losses(self) -> dict[str, float]:
        if not isinstance(self.loss, LossSum):
            return super().losses
        total = dict.fromkeys(self.loss.losses, 0.0)
        for bound in self._result.bound.loss_parts:
            for name, value in self.loss.values(bound).items():
                total[name] += value
        return total
