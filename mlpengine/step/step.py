"""One training step on fixed buffers: forward, loss, backward, clip, optimizer."""

from collections.abc import Callable, Mapping
from copy import copy
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from weakref import WeakSet
from zlib import crc32

import numpy as np

from mlpengine.backends import BackendName
from mlpengine.backends.update import largest_update
from mlpengine.core.buffers import quiet_runner, second_call, unmasked
from mlpengine.core.errors import CompileError, DtypeError, ShapeError, UsageError
from mlpengine.core.fields import Count, fitting
from mlpengine.core.named import as_rows, check_rows, need_array, row_specs
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.core.system import call_in_forks
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.network import Network
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import Loss
from mlpengine.ops.loss_sum import LossSum
from mlpengine.optim import Clip, Optimizer
from mlpengine.optim.clipping import bind_clip, clip_rule
from mlpengine.optim.schedules import ScheduleLike
from mlpengine.step.bound_step import BoundStep, step_data
from mlpengine.step.checks import (
    check_names,
    checked_loss,
    checked_optimizer,
    not_rows,
    too_many_rows,
)
from mlpengine.step.dropout import Dropout, checked_schedule
from mlpengine.step.fault import nonfinite_error
from mlpengine.step.many_steps import count_steps, make_steps
from mlpengine.step.ranks import Ranks
from mlpengine.step.shards import Buffers, Shards
from mlpengine.step.state import load_parts, load_step, save_step
from mlpengine.tape.rematerialization import Rematerialization

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor
    from mlpengine.step.step_builder import StepBuilder

_BOUND = ("_bound", "_buffers", "_clip", "dropout", "_full", "last", "_quietly", "_update")
"""Attributes that a copy makes for itself."""

T = TypeVar("T")

_STEPS: WeakSet["TrainingStep"] = WeakSet()
"""All steps of this process."""


def _free_steps() -> None:
    """Let a forked child make steps, even those that a thread of its parent was making."""
    for step in _STEPS:
        step._quietly, step._busy = quiet_runner(), False


call_in_forks(_free_steps)


class TrainingStep:
    """A training step of one network, loss and optimizer, bound to its buffers once.

    ``step(x, y)`` runs forward, loss, backward, clipping and the optimizer, and returns the loss
    of the batch before the update.  It allocates only at the first step with each number of rows.
    Batches may be shorter than `batch_size`.

    A network with several inputs or outputs takes and gives arrays by name, and has a loss for each
    output, ``{"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()}``.  The loss is their
    sum.  Several networks have a step each; `run_together` makes their steps on several threads.

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
        loss_value: loss of the last step before its update, mean over its rows; NaN at first.
        grad_norm, clipped_norm: global norm of the last gradients before and after clipping.
        clipped_steps: number of steps of the last call of many whose gradients were clipped.
        bad_rows: rows at fault in the last step that was not finite.
        last: the buffers of the last step.
        dropout: what is drawn in a step, or None.

    Raises: NumericalError from a call whose loss or gradient is not finite, on every rank; the
    parameters and the optimizer are as before that step.
    """

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
        self.batch_size: int = fitting("training step: batch_size", Count, batch_size)
        self.threads: int = fitting("training step: threads", Count, threads)
        self.mlp, self.loss = mlp, checked_loss(mlp, loss, loss_weights)
        self.optimizer = checked_optimizer(mlp, optimizer)
        self.dropout_schedule = checked_schedule(dropout_schedule)
        self.clip = clip_rule(clip_norm, "training step: clip_norm")
        self.weighted, self.rematerialization = weighted, rematerialization
        self.shards, self.ranks, self._agreed = shards, ranks, False
        if backend not in get_args(BackendName):
            names = ", ".join(get_args(BackendName))
            raise UsageError(f"backend: must be one of {names} (got {backend!r})")
        self.backend, self.not_compiled = backend, ""
        if backend == "auto":
            from mlpengine.step.auto_backend import auto_backend  # slow, and few imports need it

            self.backend, self.not_compiled = auto_backend()
        self.bad_rows: list[int] = []
        self.loss_value = self.grad_norm = self.clipped_norm = nan
        self.clipped_steps = 0
        self._target: Any = None  # specs of targets of another kind than the usual one
        self._start()

    def _start(self, buffers: Buffers | None = None) -> None:
        """Bind the step for full batches."""
        self.mlp.rng.scheduled = self.dropout_schedule is not None
        self._buffers = self._make_buffers() if buffers is None else buffers
        self._quietly = quiet_runner()
        self._largest_update = largest_update(self.mlp.dtype, self.optimizer.ranges)
        self._bound: dict[int, BoundStep] = {}
        self._full = self.last = self.bound(self.batch_size)
        recording = self._full.scratch.recording
        draws = recording.draws or self.dropout_schedule is not None
        self.dropout = Dropout(self.mlp, recording, self.dropout_schedule) if draws else None
        self._axes = -1 if "" not in self.mlp.in_shapes else len(self.mlp.in_shape) + 1
        self._checked = self._busy = False
        _STEPS.add(self)
        self._update = tuple(self.optimizer.calls(self._full.grads.flat))
        self._clip = bind_clip(self.clip, self.mlp.params, self._full.grads)

    def _make_buffers(self) -> Buffers:
        backend = "numpy" if self.backend == "compiled" else self.backend

        def scratch(rows: int) -> Scratch:
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
    def fused(self) -> bool:
        """Whether a step, update included, is one call into machine code."""
        return self._full.fused is not None

    @property
    def scratch(self) -> Scratch:
        """The activations of the last step; of its first shard on this rank, if there are several.

        Source: the buffers, which the next step overwrites.
        """
        return self.last.scratch

    @property
    def grads(self) -> Gradients:
        """The gradients of the last step.

        Of several shards they are those of the first one on this rank, but ``grads.flat`` is the
        gradient of the batch.
        """
        return self.last.grads

    @property
    def losses(self) -> dict[str, float]:
        """Loss of the last step by output, without weights; of the only output as ``output``.

        Of several ranks these are the shares of the rows of this one.
        """
        if not isinstance(self.loss, LossSum):
            return {"output": self.loss_value}
        total = dict.fromkeys(self.loss.losses, 0.0)
        for bound in self.last.loss_parts:
            for name, value in self.loss.values(bound).items():
                total[name] += value
        return total

    def __call__(self, x: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Train on the rows of `x` (rows, in_dim) with targets `y`; return their mean loss."""
        rows = x if type(x) is np.ndarray and x.ndim == self._axes else self._rows(x, y)
        target = y if type(y) is np.ndarray else self._targets(y)
        weights = None
        if sample_weight is not None:
            weights = unmasked(sample_weight, "training step: sample_weight")
        bound = self.bound(len(rows))
        try:
            bound.write(rows, target, weights)
        except (ShapeError, DtypeError):
            if not self.take_targets_as(target):
                raise
            bound = self.bound(len(rows))
            bound.write(rows, target, weights)
        if not self._checked:
            self.check_target(target)
        return self.run(bound)

    def _rows(self, x: Any, y: Any) -> Any:
        """Return features as an array or `NamedRows`, unless they are no rows."""
        check_names(self, x, y)
        if self._axes < 0:
            rows = as_rows(x)
            check_rows(rows, len(rows), "training step: x")
            return rows
        array = unmasked(x, "training step: x")
        if array.ndim != self._axes and array.ndim != 2:
            target = np.asarray(self._targets(y))
            raise ShapeError(not_rows(self.mlp, x, array, target, self._full.loss.target))
        return array

    def _targets(self, y: Any) -> Any:
        if isinstance(self.loss, LossSum):
            return as_rows(y)
        need_array(y, "training step: y")
        return unmasked(y, "training step: y")

    def check_target(self, target: Any) -> None:
        """Raise IndexRangeError for the first targets of the step if they are no probabilities."""
        if not self._checked:
            self.loss.check_target(target)
            self._checked = True

    def take_targets_as(self, y: Any) -> bool:
        """Bind the step anew for targets of the kind of `y`, such as probabilities of classes.

        Return False if it is bound for such targets already, or the loss does not take them.
        """
        full, rows = self._full, self.batch_size
        try:
            kind = self.loss.target_spec(row_specs(full.scratch.output, rows), row_specs(y, rows))
        except (ShapeError, DtypeError):
            return False
        if kind == row_specs(full.loss.target, rows):
            return False
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
            if not 0 < rows <= self.batch_size:
                raise ShapeError(too_many_rows(rows, self.batch_size))
            backend = self.backend
            bound = self._bound[rows] = self._bind(rows)
            if self.backend != backend and len(self._bound) > 1:
                self._bound = {n: self._bind(n) for n in self._bound}
                self._full = self._bound[self.batch_size]
                bound = self._bound[rows]
        return bound

    def run(self, bound: BoundStep) -> float:
        """Train on the contents of the buffers of `bound`; return the loss before the update."""
        if self._busy:
            raise second_call("training step")
        self._busy = True  # no signal is handled between this and the `try`
        try:
            self.last, fused = bound, bound.fused
            if fused is not None:
                return self._run_fused(bound, fused)
            loss: float = self._quietly(self._run, bound)
            return loss
        finally:
            self._busy = False

    def _run(self, bound: BoundStep) -> float:
        if not self._agreed and self.ranks is not None:
            self._compare_ranks(self.ranks)
        optimizer = self.optimizer
        if self.dropout is not None:
            self.dropout.begin(optimizer.steps)
        for call in bound.calls:
            call()
        self.loss_value = value = bound.value
        if bound.update is not None:
            bound.update.call.loss = value
            return self._run_fused(bound, bound.update)
        self.grad_norm, self.clipped_norm = norm, clipped = self._clip()
        update = optimizer.scheduled_lr(optimizer.steps) * clipped
        if not (isfinite(value) and isfinite(norm) and update <= self._largest_update):
            raise nonfinite_error(self, bound)
        for call in self._update:
            call()
        return value

    def _run_fused(self, bound: BoundStep, fused: "Executor") -> float:
        optimizer = self.optimizer
        steps = optimizer.steps
        lr, decay = optimizer.scheduled_lr(steps), optimizer.scheduled_decay(steps)
        if self.dropout is not None:
            self.dropout.begin(steps)
        try:
            loss, norm, status = fused.make_step(lr, decay, steps)
        except BaseException:  # KeyboardInterrupt is raised where the call returns
            if fused.call.steps == steps + 1:
                optimizer.count(lr)
            raise
        self.loss_value, self.grad_norm = loss, norm
        self.clipped_norm = norm if status else fused.call.clipped
        if status:
            raise nonfinite_error(self, bound)
        optimizer.count(lr)
        return loss

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
        self, x: Any, y: Any, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        """Run a step for every `batch_size` rows of `order`; return losses and gradient norms.

        Equivalent to a loop that gathers rows and calls `run`; a fused step makes many in a call of
        milliseconds, after which it answers Ctrl-C.
        Shapes: x (rows, in_dim), y (rows, ...), order (steps * batch_size,) of int64.
        Raises: as `run`, from the first step that fails, after the steps before it.
        """
        check_names(self, x, y)
        data = step_data(x, y, sample_weight)
        self.take_targets_as(data[1])
        count = count_steps(self, data, order, "run_many")
        losses, norms = np.zeros(count), np.zeros(count)
        make_steps(self, data, order, losses, norms)
        return losses, norms

    def alone(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return what `make` returns; meanwhile other calls of the step raise TapeError."""
        if self._busy:
            raise second_call("training step")
        self._busy = True
        try:
            return make(*arguments)
        finally:
            self._busy = False

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
        load_parts(self, state)

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file, atomically; of several ranks, rank 0 does."""
        if self.ranks is None or self.ranks.rank == 0:
            save_step(self, path)

    def load(self, path: str | Path) -> None:
        """Continue exactly from what `save` wrote, with a step of the same settings.

        Raises: CheckpointError if the file is damaged, or of another network or optimizer.
        """
        load_step(self, path)

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
        return {
            **{k: v for k, v in vars(self).items() if k not in _BOUND},
            "buffers": tuple(map(copy, buffers)) if isinstance(buffers, tuple) else copy(buffers),
            "targets": {rows: [*bound.targets()] for rows, bound in self._bound.items()},
            "last": next(rows for rows, bound in self._bound.items() if bound is self.last),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        buffers, targets, last = (state.pop(name) for name in ("buffers", "targets", "last"))
        checked = state["_checked"]
        vars(self).update(state)
        self._start(buffers)
        self._checked = checked
        for rows, given in targets.items():
            for buffer, values in zip(self.bound(rows).targets(), given, strict=True):
                buffer[...] = values
        self.last = self.bound(last)
