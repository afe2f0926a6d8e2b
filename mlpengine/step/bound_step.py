"""A training step for a fixed number of rows: its buffers and its calls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.backends.update_rules import largest_factor
from mlpengine.core.buffers import Uncopyable, has_masked_entries, quiet_runner, replay, write_into
from mlpengine.core.errors import DtypeError, NumericalError, ShapeError
from mlpengine.core.named import NamedRows, arrays_by_name, arrays_in
from mlpengine.core.rows import gather_rows
from mlpengine.core.spec import Array, Call
from mlpengine.core.wording import quoted
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BoundLoss
from mlpengine.ops.loss_sum import LossSum
from mlpengine.optim import Optimizer
from mlpengine.step.arguments import advice_on_y, refuse_weights
from mlpengine.step.fault import Fault, bad_rows, listed_rows, locate_nonfinite

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor

StepData = tuple[Any, Any, Array | None]
"""Features, targets and, for a weighted step, sample weights, with equal numbers of rows."""


def step_data(x: Any, y: Any, weights: Array | None) -> StepData:
    """Return `x`, `y` and `weights`; mappings become `NamedRows`, and lists become arrays."""
    if type(x) is type(y) is np.ndarray:
        return x, y, weights
    x, y = (np.asarray(rows) if isinstance(rows, list | tuple) else rows for rows in (x, y))
    named = [NamedRows(rows) if isinstance(rows, Mapping) else rows for rows in (x, y)]
    return named[0], named[1], weights


@dataclass(frozen=True, eq=False, repr=False)
class BoundStep(Uncopyable):
    """The step for a fixed number of rows: its buffers, and the calls that compute gradients."""

    scratch: Scratch
    grads: Gradients
    loss: BoundLoss
    calls: tuple[Call, ...]
    fused: "Executor | None" = None
    """The whole step with its update as one program, or None; if it exists, `calls` is empty."""
    update: "Executor | None" = None
    """A compiled program for gradient norm, clipping and update, run after `calls`, or None."""

    program: "Executor | None" = None
    """The compiled program that `calls` runs; None if it does not compute all gradients."""

    @property
    def forward(self) -> "Executor | None":
        """The compiled program; None if it cannot compute outputs without dropout."""
        if not self.scratch.recording.predicts:
            return None
        program = self.fused or self.program
        return program if program is not None and program.computes_outputs else None

    @property
    def value(self) -> float:
        """Loss of the batch; valid after `calls` ran."""
        return float(self.loss.value)

    @property
    def buffers(self) -> StepData:
        """Buffers for features, targets and sample weights of a batch."""
        return self.scratch.input, self.loss.target, self.loss.sample_weight

    @property
    def loss_parts(self) -> Sequence[Any]:
        """The loss of each shard of the batch."""
        return [self.loss]

    def losses(self, loss: Any, value: float) -> dict[str, float]:
        """Return the unweighted loss of each output; `value` is the total loss of the step."""
        if not isinstance(loss, LossSum):
            return {"output": value}
        total = dict.fromkeys(loss.losses, 0.0)
        for part in self.loss_parts:
            for name, value in loss.values(part).items():
                total[name] += value
        return total

    def targets(self) -> Iterator[Array]:
        """Yield the buffers of targets and weights."""
        yield self.loss.target
        if self.loss.sample_weight is not None:
            yield self.loss.sample_weight

    def gather(self, data: StepData, order: Array) -> None:
        """Copy the rows `order` of `data` into the buffers."""
        for rows, buffer in zip(data, self.buffers, strict=True):
            if rows is not None and buffer is not None:
                gather_rows(rows, order, buffer)

    def write(self, x: Any, y: Any, weight: Array | None) -> None:
        """Copy a batch into the buffers."""
        inputs: Any = self.scratch.input
        target: Any = self.loss.target
        weights = self.loss.sample_weight
        try:  # repeated code: two calls of a helper would cost 2 % of the shortest step
            if type(inputs) is np.ndarray:
                write_into(inputs, x, "training step: x")
            else:
                inputs.write(x, "training step: x")
            if type(target) is np.ndarray:
                write_into(target, y, "training step: y")
            else:
                target.write(y, "training step: y")
        except (ShapeError, DtypeError) as error:
            of_y = isinstance(target, np.ndarray) and str(error).startswith("training step: y")
            advice = advice_on_y(y, target) if of_y else ""
            raise type(error)(f"{error}{advice}") from None
        if weights is not None and weight is not None:
            write_into(weights, weight, "training step: sample_weight")
        elif weights is not weight:
            refuse_weights(weight)

    def find_fault(self, first: int = 0, *, alone: bool = True) -> Fault | None:
        """Return the position of the first NaN or infinity, or None.

        `first` is the index in the batch of the first row in these buffers.  If other buffers hold
        rows of the same batch, `alone` is False: sums over all rows are then not searched.
        Raises: IndexRangeError if a label or target is the cause.
        """
        quiet_runner()(replay, self.loss.forward)
        given = [("target", one) for one in arrays_in(self.loss.target)]
        if self.loss.sample_weight is not None:
            given.append(("weight", self.loss.sample_weight))
        for name, array in given:
            if array.dtype.kind == "f" and len(rows := bad_rows(array)):
                numbers = (rows + first).tolist()
                place = f"the {name} is not, in {listed_rows(numbers)} of the batch"
                return Fault(place, numbers, in_data=True)
        return locate_nonfinite(self.scratch, self.grads, first, sums=alone)

    def error(
        self, optimizer: Optimizer, loss: float, norm: float
    ) -> tuple[NumericalError, list[int]]:
        """Return the error of a failed step, and the indices of the batch's rows that caused it."""
        for statistics in self.scratch.recording.statistics:
            statistics.restore()
        step, fault = optimizer.steps + 1, self.find_fault()
        floats = [one for one in arrays_in(*self.targets()) if one.dtype.kind == "f"]
        size = max((float(np.fmax.reduce(np.abs(one), axis=None)) for one in floats), default=0)
        most = f"; the largest target or weight is {size:g}" * bool(floats)
        if fault is None and isfinite(loss) and isfinite(norm):
            lr = optimizer.scheduled_lr(optimizer.steps) * largest_factor(optimizer.ranges)
            text = f"the update must be finite (lr {lr:g}, gradient norm {norm:g}{most})"
            return NumericalError(f"step {step}: {text}"), []
        place = fault.place if fault else f"the loss is not finite, although every output is{most}"
        if optimizer.steps and not (fault and fault.in_data):
            place += f"; learning rate {optimizer.current_lr:g}"
        error = NumericalError(f"step {step}: loss and gradients must be finite ({place})")
        return error, fault.rows if fault else []

    def layout_errors(self, data: StepData, order: Array) -> Iterator[str]:
        """Yield the reasons why the rows `order` of `data` cannot be copied into the buffers."""
        lengths = {}
        for name, value, buffers in zip(
            ("x", "y", "sample_weight"), data, self.buffers, strict=True
        ):
            if type(value) is type(buffers) is np.ndarray and _fits(value, buffers):
                lengths[name] = len(value)  # the usual case, without mappings
                continue
            if value is buffers is None:
                continue
            given = arrays_by_name(value)
            for part, buffer in arrays_by_name(buffers).items():
                where, rows = f"{name}[{part!r}]" if part else name, given[part]
                if text := _misfit(where, rows, buffer):
                    yield text
                if rows is not None:
                    lengths[where] = len(rows)
        shortest = min(lengths, key=lengths.__getitem__)
        last = lengths[shortest] - 1
        if order.size and int(order.view(np.uint64).max()) > last:  # -1 as uint64 is 2**64 - 1
            named = f"order must name rows 0 to {last}, the rows of {shortest}"
            yield f"{named} (got {order.min()} to {order.max()})"


def _misfit(where: str, rows: Array | None, buffer: Array | None) -> str:
    """Return the reason why the rows cannot be copied into the buffer unchanged, or ""."""
    if rows is None or buffer is None:
        same = rows is buffer
        return "" if same else f"{where} must be given if and only if the step is weighted"
    if not isinstance(rows, np.ndarray) or has_masked_entries(rows):
        return f"{where} must be an array in memory, without masked entries (got {quoted(rows)})"
    if _fits(rows, buffer):
        return ""
    if rows.dtype != buffer.dtype or rows.shape[1:] != buffer.shape[1:]:
        wanted = ", ".join(map(str, ("rows", *buffer.shape[1:])))
        got = f"{rows.dtype}[{', '.join(map(str, rows.shape))}]"
        advice = ""
        of_y = where.startswith("y")
        kinds = "biuf" if of_y else "biufO"
        if rows.dtype.kind in kinds and prod(rows.shape[1:]) == prod(buffer.shape[1:]):
            cast = f".astype({str(buffer.dtype)!r})" if rows.dtype != buffer.dtype else ""
            shape = ", ".join(map(str, (-1, *buffer.shape[1:])))
            cast += f".reshape({shape})" if rows.shape[1:] != buffer.shape[1:] else ""
            advice = f"; write {where}{cast}"
        elif of_y and buffer.dtype.kind == "i":
            advice = advice_on_y(rows[: len(buffer)], buffer[: len(rows)])
        return f"{where} must be {buffer.dtype}[{wanted}] (got {got}){advice}"
    return f"{where} must be C-contiguous; write np.ascontiguousarray({where})"


def _fits(rows: Array, buffer: Array) -> bool:
    """Return whether rows are C-contiguous and have the dtype and the row shape of a buffer."""
    same = rows.dtype == buffer.dtype and rows.shape[1:] == buffer.shape[1:]
    return same and rows.flags.c_contiguous
