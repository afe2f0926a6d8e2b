"""One training step on fixed buffers: forward, loss, backward, clip, optimizer."""

from copy import copy
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import numpy as np
from numpy.typing import ArrayLike

from mlpengine.backends import BackendName
from mlpengine.backends.update import largest_update
from mlpengine.buffers import quiet_runner, replay, write_into
from mlpengine.deprecation import renamed_argument
from mlpengine.errors import CompileError, DataError, NumericalError, ShapeError, UsageError
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.mlp import Mlp
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import Loss
from mlpengine.optim import Clip, NormClip, Optimizer
from mlpengine.optim.clipping import Apply
from mlpengine.spec import Array
from mlpengine.tape.norm import GlobalNorm
from mlpengine.tape.rematerialization import Rematerialization
from mlpengine.train.bound_step import BoundStep, Data
from mlpengine.train.nonfinite import locate_nonfinite

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor


BACKENDS = (*get_args(BackendName), "compiled")
"""What `backend` of a training step may be."""


class TrainingStep:
    """A training step of one network, loss and optimizer, bound to its buffers once.

    ``step(x, y)`` runs forward, loss, backward, clipping and the optimizer, and returns the loss
    of the batch before the update.  It allocates only at the first step with each number of rows.
    Batches may be shorter than `batch_size`.

    Args:
        clip_norm: maximum global L2 norm of the gradients; None does not clip.
        clip: another rule that scales the gradients, instead of `clip_norm`.
        weighted: whether batches come with sample weights.
        backend: as for `Mlp.scratch`, or ``compiled`` for machine code for these shapes; NumPy
            computes what has no compiled rule, and everything if there is no compiler.
        threads: maximum for a compiled step, which uses fewer where more would not be faster.  The
            result is the same, bit for bit, for every number of threads.
        rematerialization: as for `Mlp.scratch`.

    Attributes:
        executor: what runs the steps, ``compiled`` or ``numpy``; both are deterministic.
        scratch, grads: the buffers of the last step.
        loss_value: of the last step, mean over its rows.
        grad_norm, clipped_norm: global norm of the last gradients, before and after clipping.
        clipped_steps: number of steps of the last `run_fused` whose gradients were clipped.

    Raises: NumericalError from a call whose loss or gradient is not finite; the parameters and
    the optimizer are as before that step.
    """

    @renamed_argument("checkpointing", "rematerialization")
    def __init__(
        self,
        mlp: Mlp,
        loss: Loss,
        optimizer: Optimizer,
        batch_size: int,
        *,
        clip_norm: float | None = None,
        clip: Clip | None = None,
        weighted: bool = False,
        backend: str = "auto",
        threads: int = 1,
        rematerialization: Rematerialization = "keep",
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"training step: batch_size must be at least 1 (got {batch_size})")
        if threads < 1:
            raise UsageError(f"training step: threads must be at least 1 (got {threads})")
        if clip_norm is not None and clip is not None:
            raise UsageError("training step: takes clip_norm or clip, not both")
        self.clip = NormClip(clip_norm) if clip_norm is not None else clip
        self.mlp, self.loss, self.optimizer = mlp, loss, optimizer
        self.batch_size, self.weighted = batch_size, weighted
        self.threads = threads
        if backend not in BACKENDS:
            raise UsageError(f"backend: must be one of {', '.join(BACKENDS)} (got {backend!r})")
        self.executor = "compiled" if backend == "compiled" else "numpy"
        self.loss_value = self.grad_norm = self.clipped_norm = nan
        self.clipped_steps = 0
        rules = "auto" if backend == "compiled" else backend
        scratch = mlp.scratch(batch_size, backend=rules, rematerialization=rematerialization)
        self._start(scratch, mlp.gradients(batch_size))

    def _start(self, scratch: Scratch, grads: Gradients) -> None:
        """Bind the step for full batches."""
        self._full = self._bind(scratch, grads)
        self._bound = {self.batch_size: self._full}
        self._update = tuple(self.optimizer.calls(grads.flat))
        self._clip = self._bind_clip()
        self._quietly = quiet_runner()
        self._largest_update = largest_update(self.mlp.dtype)
        self.scratch, self.grads = scratch, grads

    def __call__(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Train on the rows of `x` (rows, in_dim) with targets `y`; return their mean loss."""
        rows = np.asarray(x)
        bound = self.bound(len(rows))
        write_into(bound.scratch.input, rows, "training step: x")
        write_into(bound.loss.target, np.asarray(y), "training step: y")
        if bound.loss.sample_weight is not None:
            if sample_weight is None:
                raise UsageError("training step: made with weighted=True, needs sample_weight")
            weights = np.asarray(sample_weight)
            write_into(bound.loss.sample_weight, weights, "training step: sample_weight")
        elif sample_weight is not None:
            raise UsageError("training step: make it with weighted=True to use sample_weight")
        return self.run(bound)

    def bound(self, rows: int) -> BoundStep:
        """Return the step for `rows` rows: write ``scratch.input`` and ``loss.target``, then `run`.

        The same executor runs all numbers of rows: if the step for one number cannot be compiled,
        none is.  Call this for all numbers before training, so that the executor does not change.
        Raises: ShapeError for no rows, or more than the batch size.
        """
        bound = self._bound.get(rows)
        if bound is None:
            if not rows:
                raise ShapeError("training step: x needs at least one row (got 0)")
            full, executor = self._full, self.executor
            bound = self._bind(full.scratch.for_rows(rows), full.grads.for_rows(rows))
            self._bound[rows] = bound
            if self.executor != executor:
                self._bound = {n: self._bind(b.scratch, b.grads) for n, b in self._bound.items()}
                self._full = self._bound[self.batch_size]
                bound = self._bound[rows]
        return bound

    def run(self, bound: BoundStep) -> float:
        """Train on the contents of the buffers of `bound`; return the loss before the update."""
        self.scratch, self.grads = bound.scratch, bound.grads
        if bound.fused is not None:
            return self._make_fused(bound, bound.fused)
        return float(self._quietly(self._run, bound))

    def _run(self, bound: BoundStep) -> float:
        self.mlp.rng.step = self.optimizer.steps
        replay(bound.calls)
        self.loss_value = value = float(bound.loss.value)
        norm, self.clipped_norm = self._clip()
        self.grad_norm = norm
        optimizer = self.optimizer
        update = optimizer.scheduled_lr(optimizer.steps) * self.clipped_norm
        if not (isfinite(value) and isfinite(norm) and update <= self._largest_update):
            self._raise_nonfinite(bound)
        replay(self._update)
        return value

    def run_many(
        self, x: Array, y: Array, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        """Run a step for every `batch_size` rows of `order`; return losses and gradient norms.

        Equivalent to a loop that gathers rows and calls `run`; a fused step does it in one call.
        Shapes: x (rows, in_dim), y (rows, ...), order (steps * batch_size,) of int64.
        Raises: as `run`, from the first step that fails, after the steps before it.
        """
        data = x, y, sample_weight
        count = self.count_steps(data, order, "run_many")
        losses, norms = np.zeros(count), np.zeros(count)
        self.run_into(data, order, losses, norms)
        return losses, norms

    def count_steps(self, data: Data, order: Array, where: str) -> int:
        """Return how many full batches `order` names.

        Raises: ShapeError or DataError, beginning with `where`, unless `run_into` can make a step
        on each.
        """
        if order.dtype != np.int64 or order.ndim != 1 or order.size % self.batch_size:
            raise ShapeError(
                f"{where}: order must be int64 and a multiple of {self.batch_size} long "
                f"(got {order.dtype}{list(order.shape)})"
            )
        if misfit := next(self._full.misfits(data, order), ""):
            raise DataError(f"{where}: {misfit}")
        return order.size // self.batch_size

    def run_into(self, data: Data, order: Array, losses: Array, norms: Array) -> None:
        """Make the steps of `run_many`, on arguments known to fit, and write the results."""
        bound, batch = self._full, self.batch_size
        if bound.fused is not None and order.flags.c_contiguous:
            done = self.run_fused(bound, data, order, losses, norms)
            if done < len(losses):
                self.record_result(losses.item(done), norms.item(done), norms.item(done))
                self._raise_nonfinite(bound)
            return
        for i in range(len(losses)):
            for rows, buffer in zip(data, bound.buffers, strict=True):
                if rows is not None and buffer is not None:
                    rows.take(order[i * batch : (i + 1) * batch], 0, buffer, "clip")
            losses[i] = self.run(bound)
            norms[i] = self.grad_norm

    def run_fused(
        self,
        bound: BoundStep,
        data: Data,
        order: Array,
        losses: Array,
        norms: Array,
        max_norm: float = inf,
    ) -> int:
        """Run a fused step for each entry of `losses`; return the number of completed steps.

        A step that fails, or whose gradient norm exceeds `max_norm`, updates nothing and is the
        last one.
        """
        optimizer, fused, count = self.optimizer, bound.fused, len(losses)
        assert fused is not None
        self.mlp.rng.step = optimizer.steps
        rates = np.full(count, optimizer.lr)
        if optimizer.schedule is not None:
            rates[:] = [optimizer.scheduled_lr(optimizer.steps + i) for i in range(count)]
        decays = np.full(count, optimizer.weight_decay)
        if optimizer.decay_schedule is not None:
            decays[:] = [optimizer.scheduled_decay(optimizer.steps + i) for i in range(count)]
        done = fused.run(
            order, data, rates, decays, losses, norms, steps=optimizer.steps, max_norm=max_norm
        )
        self.scratch, self.grads = bound.scratch, bound.grads
        optimizer.steps += done
        self.clipped_steps = fused.call.clips
        if done:
            optimizer.current_lr = rates.item(done - 1)
            clipped = fused.call.clipped
            self.record_result(losses.item(done - 1), norms.item(done - 1), clipped)
        return done

    def _make_fused(self, bound: BoundStep, fused: "Executor") -> float:
        optimizer = self.optimizer
        lr = optimizer.scheduled_lr(optimizer.steps)
        self.mlp.rng.step = optimizer.steps
        decay = optimizer.scheduled_decay(optimizer.steps)
        loss, norm, status = fused.make_step(lr, decay, optimizer.steps)
        self.record_result(loss, norm, norm if status else fused.call.clipped)
        if status:
            self._raise_nonfinite(bound)
        optimizer.current_lr = lr
        optimizer.steps += 1
        return loss

    @property
    def fused(self) -> bool:
        """Whether a step, update included, is one call into machine code."""
        return self._full.fused is not None

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

    def record_result(self, loss: float, norm: float, clipped: float) -> None:
        """Set the attributes that describe the last step, after a fused step."""
        self.loss_value, self.grad_norm, self.clipped_norm = loss, norm, clipped

    def _raise_nonfinite(self, bound: BoundStep) -> NoReturn:
        step, norm = self.optimizer.steps + 1, self.clipped_norm
        if isfinite(self.loss_value) and isfinite(norm):
            lr = self.optimizer.scheduled_lr(self.optimizer.steps)
            raise NumericalError(
                f"step {step}: the update must be finite (lr {lr:g}, gradient norm {norm:g})"
            )
        quiet_runner()(replay, bound.loss.forward)  # raises where a label or target is the reason
        place = locate_nonfinite(bound.scratch, bound.grads)
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

    def _bind(self, scratch: Scratch, grads: Gradients) -> BoundStep:
        from mlpengine.train.executors import StepBuilder  # 20 ms that few imports need

        builder = StepBuilder(self.loss, self.optimizer, self.clip, self.weighted, self.threads)
        bound, self.executor = builder.build(scratch, grads, self.executor)
        return bound

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings and the contents of all buffers; a copy is bound anew.

        A shallow copy shares network, loss, optimizer and clipping rule, and has its own buffers.
        """
        names = ("mlp", "loss", "optimizer", "clip", "batch_size", "weighted", "threads")
        results = ("executor", "loss_value", "grad_norm", "clipped_norm", "clipped_steps")
        return {
            **{name: getattr(self, name) for name in (*names, *results)},
            "buffers": (copy(self._full.scratch), copy(self._full.grads)),
            "targets": {r: (b.loss.target, b.loss.sample_weight) for r, b in self._bound.items()},
            "last": self.scratch.batch_size,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        scratch, grads = state.pop("buffers")
        targets, last = state.pop("targets"), state.pop("last")
        vars(self).update(state)
        self._start(scratch, grads)
        for rows, (target, weights) in targets.items():
            loss = self.bound(rows).loss
            loss.target[...] = target
            if loss.sample_weight is not None:
                loss.sample_weight[...] = weights
        self.scratch, self.grads = self.bound(last).scratch, self.bound(last).grads
