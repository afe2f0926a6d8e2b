"""The training step: forward, loss, backward, clipping and update on fixed buffers."""

from collections.abc import Callable, Mapping
from copy import copy
from math import inf, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet
from zlib import crc32

import numpy as np

from mlpengine.backends.update_rules import largest_step
from mlpengine.core.buffers import quiet_runner, second_call, unmasked
from mlpengine.core.errors import (
    CompileError,
    DataError,
    DtypeError,
    IndexRangeError,
    NumericalError,
    ShapeError,
    UsageError,
)
from mlpengine.core.fields import COUNT, POSITIVE
from mlpengine.core.named import row_specs
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.core.system import call_in_forks
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.network import Network
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import Loss
from mlpengine.optim import FullBatch, Optimizer
from mlpengine.step import arguments
from mlpengine.step.blas_threads import one_blas_thread
from mlpengine.step.bound_step import BoundStep, StepData, step_data
from mlpengine.step.fault import listed_rows
from mlpengine.step.full_batch_problem import FullBatchSteps
from mlpengine.step.fused_run import FusedRun, steps_at_once
from mlpengine.step.packing import load_step, save_step, set_state
from mlpengine.step.ranks import Ranks
from mlpengine.step.shards import Buffers, make_buffers
from mlpengine.tape.norm import bind_clip
from mlpengine.tape.rematerialization import Rematerialization

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor
    from mlpengine.step.step_builder import StepBuilder

_BOUND = (
    *("_bound", "_buffers", "_clip", "_frozen", "_full", "_full_batch", "_last", "_many", "_rng"),
    *("_quiet", "_update"),
)
"""Attributes that are not copied: a copy binds its own calls to its own buffers."""

_STEPS: WeakSet["TrainingStep"] = WeakSet()
"""All steps of this process."""


def _free_steps() -> None:
    """Mark all steps as free in a forked child: threads of the parent do not run there."""
    for step in _STEPS:
        step._quiet, step._busy = quiet_runner(), False


call_in_forks(_free_steps)


class TrainingStep:
    """A training step of a network with a loss and an optimizer, on buffers of its own.

    ``step(x, y)`` runs forward, loss, backward, clipping and the optimizer; it returns the loss of
    the batch before the update.  Batches may be shorter than `batch_size`.  Only the first step
    with each number of rows allocates memory.

    If a network has several inputs or outputs, arrays are passed by name, and each output has a
    loss: ``{"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()}``.  The step minimizes the
    weighted sum of these losses.  Steps of different networks may run in parallel threads.

    Args:
        optimizer: an optimizer made for the network.
        loss_weights: factors of the losses in the sum; 1 for an output without a factor.
        clip_norm: maximum global L2 norm of the gradients; None does not clip.
        weighted: whether batches come with sample weights.
        backend: ``compiled`` (machine code for these shapes), ``numexpr``, ``numpy``, or ``auto``
            (``compiled`` if there is a compiler, else ``numpy``).  NumPy runs ops that the backend
            lacks.  Machine code treats denormal numbers (below 1.2e-38 in float32) as zero.
        threads: maximum number of threads of a compiled step; small shapes use fewer.  The result
            has the same bits for every number of threads.
        rematerialization: see `Network.scratch`.
        shards: number of parts of a batch, a power of two.  The result depends on the number of
            shards, but not on the number of ranks that compute them.
        ranks: the processes that share the work, as in ``Ranks(MPI.COMM_WORLD)``.  Their number
            must divide `shards`.  All ranks make the same calls on whole batches; each rank reads
            its own rows only.

    Attributes:
        not_compiled: the reason why NumPy runs the step although it should be compiled, or "".
        loss_value: mean loss of the last batch before the update; NaN before the first step.
        grad_norm, clipped_norm: global norm of the last gradients before and after clipping.
        clipped_steps: number of clipped steps in the last call of `make_fused_steps`.
        bad_rows: indices of the batch's rows that caused the last nonfinite loss or gradient.

    Raises: NumericalError, on every rank, for a nonfinite loss or gradient.  Such a step does not
    change the parameters or the optimizer.
    """

    __slots__ = (  # an unknown attribute, such as ``step.lr = 0.1``, is an AttributeError
        *_BOUND,
        *("__weakref__", "_agreed", "_axes", "_busy", "_checked", "_clip_norm", "_largest_step"),
        *("_batch_size", "_target", "_backend", "bad_rows", "clipped_norm", "clipped_steps"),
        *("grad_norm", "loss", "loss_value", "mlp", "not_compiled"),
        *("optimizer", "ranks", "rematerialization", "shards", "_threads", "_weighted"),
    )

    def __init__(
        self,
        mlp: Network,
        loss: Loss | Mapping[str, Loss],
        optimizer: Optimizer,
        batch_size: int,
        *,
        loss_weights: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        weighted: bool = False,
        backend: str = "auto",
        threads: int = 1,
        rematerialization: Rematerialization = "keep",
        shards: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        self._batch_size: int = COUNT.check("training step: batch_size", batch_size)
        self._threads: int = COUNT.check("training step: threads", threads)
        self.mlp, self.loss = mlp, arguments.loss_of(mlp, loss, loss_weights)
        self.optimizer = arguments.optimizer_of(mlp, optimizer)
        self._clip_norm = clip_norm
        if clip_norm is not None:
            self._clip_norm = POSITIVE.check("training step: clip_norm", clip_norm)
        self._weighted, self.rematerialization = weighted, rematerialization
        if ranks is not None:
            arguments.need("ranks", ranks, Ranks, "such as Ranks(MPI.COMM_WORLD)")
        self.shards, self.ranks, self._agreed = shards, ranks, False
        self._backend, self.not_compiled = arguments.backend_of(backend)
        self.bad_rows: list[int] = []
        self.loss_value = self.grad_norm = self.clipped_norm = nan
        self.clipped_steps = 0
        if problem := arguments.check_full_batch(self, backend):
            self._backend, self.not_compiled = "numpy", problem
        self._target: Any = None  # specs of targets; None for the default of the loss
        self._checked = False  # whether the values of the first targets were checked
        self._start()

    def __repr__(self) -> str:
        parts = f"{self.mlp!r}, {self.loss!r}, {self.optimizer!r}"
        return f"TrainingStep({parts}, batch_size={self.batch_size}, {self.backend})"

    def _start(self, buffers: Buffers | None = None) -> None:
        """Allocate buffers, unless they are given, and bind the step for full batches."""
        if buffers is None:
            sizes = self.batch_size, self.shards
            buffers = make_buffers(self.mlp, *sizes, self.ranks, self._scratch)
        self._buffers = buffers
        self._quiet: Callable[..., float] = quiet_runner()
        self._largest_step = largest_step(self.optimizer.describe_update())
        self._bound: dict[int, BoundStep] = {}
        self._frozen = self.mlp.params.frozen
        self._full = self._last = self.bound(self.batch_size)
        self._rng = self.mlp.rng if self._full.scratch.recording.draws else None
        self._many = FusedRun(self.optimizer, self._rng, self.batch_size)
        self._axes = -1 if "" not in self.mlp.in_shapes else len(self.mlp.in_shape) + 1
        self._busy = False
        _STEPS.add(self)
        own = self.optimizer
        self._full_batch = FullBatchSteps(self.mlp, own) if isinstance(own, FullBatch) else None
        self._update = () if self._full_batch else tuple(self.optimizer.calls(self.grads.flat))
        self._clip = bind_clip(self._full.grads.flat)

    def _scratch(self, rows: int) -> Scratch:
        backend = "numpy" if self.backend == "compiled" else self.backend
        return self.mlp.scratch(rows, backend=backend, rematerialization=self.rematerialization)

    @property
    def batch_size(self) -> int:
        """The number of rows of a full batch."""
        return self._batch_size

    @property
    def threads(self) -> int:
        """Maximum number of threads of a step."""
        return self._threads

    @property
    def weighted(self) -> bool:
        """Whether batches come with sample weights."""
        return self._weighted

    @property
    def backend(self) -> str:
        """The backend that runs the steps: ``compiled``, ``numpy`` or ``numexpr``."""
        return self._backend

    @property
    def threads_used(self) -> int:
        """Number of threads of a step: at most `threads`, fewer for small shapes, 1 in NumPy."""
        if fused := self._full.fused:
            return fused.source.threads
        return self.threads if self.backend == "compiled" else 1

    @property
    def fused(self) -> bool:
        """Whether the whole step, including the update, is one compiled program."""
        return self._full.fused is not None

    @property
    def scratch(self) -> Scratch:
        """Activations of the last step (with shards, of its first shard), until the next step."""
        return self._last.scratch

    @property
    def grads(self) -> Gradients:
        """The gradients of the last step.

        With several shards, the object belongs to this rank's first shard, but ``grads.flat`` is
        the gradient of the batch.
        """
        return self._last.grads

    @property
    def losses(self) -> dict[str, float]:
        """Loss of the last step by output name, without the factors of `loss_weights`.

        An output without a name is called ``output``.  Only rows of this rank contribute.
        """
        return self._last.losses(self.loss, self.loss_value)

    @property
    def clip_norm(self) -> float | None:
        """Maximum global L2 norm of the gradients; None without clipping."""
        return self._clip_norm

    def __call__(self, x: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Train on the rows of `x` (rows, in_dim) with targets `y`; return the mean loss."""
        plain = type(x) is np.ndarray and x.ndim == self._axes
        rows = x if plain else arguments.rows_of(self.mlp, self.loss, x, y)
        target = y if type(y) is np.ndarray else arguments.targets_of(self.loss, y)
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

    def check_target(self, target: Any) -> None:
        """Raise IndexRangeError if the first targets of the step are invalid probabilities."""
        if not self._checked:
            self.loss.check_target(target)
            self._checked = True

    def take_targets_as(self, y: Any) -> bool:
        """Make the step accept targets like `y`, such as class probabilities instead of labels.

        Return False if the step accepts such targets already, or if the loss refuses them.
        """
        full, rows = self._full, self.batch_size
        try:
            kind = self.loss.target_spec(row_specs(full.scratch.output, rows), row_specs(y, rows))
        except (ShapeError, DtypeError):
            return False
        if kind == row_specs(full.loss.target, rows):
            return False
        self._target, self._checked = kind, False
        self._start(self._buffers)
        return True

    def bound(self, rows: int) -> BoundStep:
        """Return the step for `rows` rows: `write` or `gather` a batch, then pass it to `run`.

        Without shards, you may also write a batch into ``scratch.input`` and ``loss.target``.
        One backend runs all batch sizes: if one size cannot be compiled, NumPy runs all sizes.
        To avoid a change of backend during training, first call this method for all sizes.
        Raises: ShapeError for 0 rows, or for more rows than the batch size.
        """
        if self.mlp.params.frozen is not self._frozen:
            self._check_frozen()
        bound = self._bound.get(rows)
        if bound is None:
            if not 0 < rows <= self.batch_size:
                raise ShapeError(arguments.too_many_rows(rows, self.batch_size))
            backend = self.backend
            bound = self._bound[rows] = self._bind(rows)
            if self.backend != backend and len(self._bound) > 1:
                self._bound = {n: self._bind(n) for n in self._bound}
                self._full = self._bound[self.batch_size]
                bound = self._bound[rows]
        return bound

    def _check_frozen(self) -> None:
        if self.mlp.params.frozen != self._frozen:
            raise UsageError(
                "training step: was made before layers were frozen or unfrozen; make a new "
                "optimizer and a new step"
            )

    def run(self, bound: BoundStep) -> float:
        """Train on the batch in the buffers of `bound`; return the loss before the update."""
        if self._busy:
            raise second_call("training step")
        self._busy = True  # Python handles no signal between this line and `try`
        try:
            self._last, fused = bound, bound.fused
            if fused is not None:
                return self._run_fused(bound, fused)
            if self._full_batch is not None:
                with one_blas_thread():  # the bits of BLAS depend on its number of threads
                    return self._quiet(self._run, bound)
            return self._quiet(self._run, bound)
        finally:
            self._busy = False

    def _run(self, bound: BoundStep) -> float:
        if not self._agreed and self.ranks is not None:
            self._compare_ranks(self.ranks)
        optimizer = self.optimizer
        if self._rng is not None:
            self._rng.step = optimizer.steps
        if self._full_batch is not None:
            self.loss_value, self.grad_norm = self._full_batch.minimize(bound)
            self.clipped_norm = self.grad_norm
            if not isfinite(self.loss_value + self.grad_norm):
                raise self._error(bound)
            return self.loss_value
        for call in bound.calls:
            call()
        self.loss_value = value = bound.value
        if bound.update is not None:
            bound.update.call.loss = value
            return self._run_fused(bound, bound.update)
        self.grad_norm, self.clipped_norm = norm, clipped = self._clip(self.clip_norm)
        (update, size), lr = self._largest_step, optimizer.scheduled_lr(optimizer.steps)
        if not (isfinite(value) and isfinite(norm) and clipped <= size and lr * clipped <= update):
            raise self._error(bound)
        for call in self._update:
            call()
        return value

    def _run_fused(self, bound: BoundStep, fused: "Executor") -> float:
        optimizer, steps = self.optimizer, self.optimizer.steps
        lr = optimizer.scheduled_lr(steps)
        if self._rng is not None:
            self._rng.step = steps
        try:
            loss, norm, status = fused.make_step(lr, steps)
        except BaseException:  # KeyboardInterrupt is raised when the call returns
            if fused.call.steps == steps + 1:
                optimizer.count(lr)
            raise
        self.loss_value, self.grad_norm = loss, norm
        self.clipped_norm = norm if status else fused.call.clipped
        if status:
            raise self._error(bound)
        optimizer.count(lr)
        return loss

    def _compare_ranks(self, ranks: Ranks) -> None:
        """Raise UsageError on every rank unless all ranks make the same steps."""
        values: dict[str, Any] = {"shards": self.shards, "batch_size": self.batch_size}
        values |= {"weighted": self.weighted, "backend": self.backend, "network": repr(self.mlp)}
        values |= {"optimizer": repr(self.optimizer), "weights": crc32(self.mlp.params.flat.data)}
        if difference := ranks.difference(values):
            raise UsageError(f"training step: {difference}")
        self._agreed = True

    def _error(self, bound: BoundStep) -> NumericalError:
        self.bad_rows = []
        error, self.bad_rows = bound.error(self.optimizer, self.loss_value, self.clipped_norm)
        return error

    def run_many(
        self, x: Any, y: Any, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        """Run a step on each batch of `batch_size` rows in `order`; return losses and norms.

        The results equal the results of a loop over `BoundStep.gather` and `run`.  Compiled steps
        run in calls of a few milliseconds; Ctrl-C takes effect after a call.
        Shapes: x (rows, in_dim), y (rows, ...), order (steps * batch_size,) of int64.
        Raises: as `run`.  All steps before the failed step are complete.
        """
        data = step_data(x, y, sample_weight)
        count = self.count_steps(data, order, "run_many")
        losses, norms = np.zeros(count), np.zeros(count)
        before = self.optimizer.steps
        try:
            self.make_steps(data, order, losses, norms)
        except (NumericalError, IndexRangeError) as error:
            start = (self.optimizer.steps - before) * self.batch_size
            rows = order[start : start + self.batch_size]
            bad = f": {listed_rows(rows[self.bad_rows].tolist())}" if self.bad_rows else ""
            batch = f"order[{start}:{start + self.batch_size}]"
            raise type(error)(f"run_many: {error} (the batch is {batch}{bad})") from None
        return losses, norms

    def count_steps(self, data: StepData, order: Array, where: str) -> int:
        """Return the number of full batches in `order`.

        Raises: ShapeError or DataError if `make_steps` cannot use these arrays; IndexRangeError for
        targets that are invalid probabilities.  `where` begins the message.
        """
        x, y, _ = data
        target = self._full.loss.target
        if self._axes < 0 or not type(x) is type(y) is type(target) is np.ndarray:
            arguments.check_names(self.mlp, self.loss, x, y)
            self.take_targets_as(y)
        elif y.dtype != target.dtype or y.ndim != target.ndim:
            self.take_targets_as(y)
        arguments.check_order(order, self.batch_size, where)
        if misfit := next(self._full.layout_errors(data, order), ""):
            raise DataError(f"{where}: {misfit}")
        self._check_frozen()
        self.check_target(data[1])
        return order.size // self.batch_size

    def make_steps(self, data: StepData, order: Array, losses: Array, norms: Array) -> None:
        """Run ``len(losses)`` steps on checked data; write `losses` and gradient `norms`."""
        bound, batch = self._full, self.batch_size
        done, at_once = 0, max(1, steps_at_once(len(self.mlp.params), batch))
        many = bound.fused is not None and order.flags.c_contiguous
        while many and done < len(losses):
            part, rows = slice(done, done + at_once), slice(done * batch, (done + at_once) * batch)
            made = self.make_fused_steps(bound, data, order[rows], losses[part], norms[part])
            many = made == len(losses[part])
            done += made
        for i in range(done, len(losses)):  # repeat the failed step to raise its error
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
        """Run ``len(losses)`` compiled steps in one call; return the number of completed steps.

        The last batch may be shorter if the program for full batches can run it.  A step that
        fails, or has a gradient norm above `max_norm`, updates nothing and ends the call.
        """
        if bound.fused is None:
            return 0
        if self._busy:
            raise second_call("training step")
        self._busy = True
        try:
            made = self._many.make(bound, bound.fused, data, order, losses, norms, max_norm)
        finally:
            self._busy = False
        done, self.clipped_steps = made
        short = done * self.batch_size > len(order)
        self._last = self.bound(len(order) % self.batch_size) if short else bound
        if done:
            self.loss_value, self.grad_norm = losses.item(done - 1), norms.item(done - 1)
            self.clipped_norm = bound.fused.call.clipped
        return done

    def state_dict(self) -> dict[str, Any]:
        """Return weights, dropout seed and optimizer state; the weights are not copied."""
        return {
            "weights": dict(self.mlp.params.views),
            "dropout": {"seed": self.mlp.rng.seed},
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict`, to continue with the same bits; after an error, nothing is changed.

        Raises: CheckpointError if the state belongs to another network or optimizer.
        """
        before = {**self.state_dict(), "weights": self.mlp.state_dict()}
        set_state(state, before, self.mlp, self.optimizer)

    def save(self, path: str | Path) -> None:
        """Write the state to a safetensors file, atomically; with several ranks, rank 0 writes."""
        if self.ranks is None or self.ranks.rank == 0:
            save_step(path, self.mlp, self.state_dict())

    def load(self, path: str | Path) -> None:
        """Load a file of `save`, written by a step with the same settings.

        Raises: CheckpointError if the file is damaged, or belongs to another network or optimizer.
        """
        load_step(path, self.mlp, self.load_state_dict)

    def summary(self) -> str:
        """Return a table of the instructions of a step, each with the program that runs it.

        The program is a compiled program, or NumPy with the reason.
        """
        return self._builder().summary(self._full, compiled=self.backend == "compiled")

    def emit_c(self) -> str:
        """Return the C source of the step for a full batch.

        Raises: CompileError if the whole step is not one compiled program.
        """
        if self._full.fused is None:
            raise CompileError("emit: the whole step must be compiled (NumPy runs a part of it)")
        return self._full.fused.source.text

    def _bind(self, rows: int) -> BoundStep:
        whole = self._bound.get(self.batch_size)
        compiled = self.backend == "compiled"
        bound, problem = self._builder().build(self._buffers, rows, whole, compiled=compiled)
        if problem:
            self._backend, self.not_compiled = "numpy", problem
        return bound

    def _builder(self) -> "StepBuilder":
        from mlpengine.step.step_builder import StepBuilder  # imported late, because it is slow

        settings = self.loss, self.optimizer, self.clip_norm, self.weighted, self.threads
        return StepBuilder(*settings, self._target)

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings and the contents of all buffers."""
        buffers = self._buffers
        own, slots = cast("tuple[dict[str, Any] | None, dict[str, Any]]", super().__getstate__())
        return {
            **{k: v for k, v in {**slots, **(own or {})}.items() if k not in _BOUND},
            "buffers": tuple(map(copy, buffers)) if isinstance(buffers, tuple) else copy(buffers),
            "targets": {rows: [*bound.targets()] for rows, bound in self._bound.items()},
            "last": next(rows for rows, bound in self._bound.items() if bound is self._last),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        buffers, targets, last = (state.pop(name) for name in ("buffers", "targets", "last"))
        for name, value in state.items():
            setattr(self, name, value)
        self._start(buffers)
        for rows, given in targets.items():
            for buffer, values in zip(self.bound(rows).targets(), given, strict=True):
                buffer[...] = values
        self._last = self.bound(last)
