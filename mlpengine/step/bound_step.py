"""A training step on buffers of one number of rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from mlpengine.core.buffers import Uncopyable, hides_entries, quiet_runner, replay, write_into
from mlpengine.core.errors import DtypeError, ShapeError, UsageError
from mlpengine.core.named import NamedRows, arrays_in, matched
from mlpengine.core.rows import gather_rows
from mlpengine.core.spec import Array, Call
from mlpengine.core.wording import plural
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BoundLoss
from mlpengine.step.fault import Fault, bad_rows, listed_rows, locate_nonfinite

if TYPE_CHECKING:
    from mlpengine.backends.compiled import Executor

StepData = tuple[Array, Array, Array | None]
"""Features, targets and, for a weighted step, sample weights, by rows."""


@dataclass(frozen=True, eq=False, repr=False)
class BoundStep(Uncopyable):
    """The step for one number of rows: its buffers, and the calls up to the gradients."""

    scratch: Scratch
    grads: Gradients
    loss: BoundLoss
    calls: tuple[Call, ...]
    fused: "Executor | None" = None
    """The whole step, update included, as machine code; then `calls` is empty."""
    update: "Executor | None" = None
    """What follows `calls`, from the norm to the update, as machine code."""

    program: "Executor | None" = None
    """`calls` as machine code, which may gather the rows, or None."""

    @property
    def forward(self) -> "Executor | None":
        """What computes outputs without dropout as machine code, or None."""
        if not self.scratch.recording.predicts:
            return None
        program = self.fused or self.program
        return program if program is not None and program.computes_outputs else None

    @property
    def value(self) -> float:
        """The loss of the batch, after `calls`."""
        return float(self.loss.value)

    @property
    def buffers(self) -> StepData:
        """The buffers that a batch is written into."""
        return self.scratch.input, self.loss.target, self.loss.sample_weight

    @property
    def loss_parts(self) -> Sequence[Any]:
        """The losses of all parts of the batch."""
        return [self.loss]

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

    def write(self, x: Array, y: Array, weight: Array | None) -> None:
        """Copy a batch into the buffers.

        Raises: ShapeError or DtypeError; UsageError for weights that are missing or not wanted.
        """
        try:
            write_into(self.scratch.input, x, "training step: x")
            write_into(self.loss.target, y, "training step: y")
        except (ShapeError, DtypeError) as error:
            advice = _advice_on_x(x, self.scratch.input) or _advice_on_y(y, self.loss.target)
            raise type(error)(f"{error}{advice}") from None
        buffer = self.loss.sample_weight
        if buffer is not None and weight is not None:
            write_into(buffer, weight, "training step: sample_weight")
        elif buffer is not weight:
            refuse_weights(weight)

    def find_fault(self, first: int = 0, *, alone: bool = True) -> Fault | None:
        """Return the place of the first number that is not finite, or None.

        `first` is the number of the first row; unless `alone`, the gradients are sums to which
        other rows contribute.  Raises: IndexRangeError where a label or target is the reason.
        """
        quiet_runner()(replay, self.loss.forward)
        for target in arrays_in(self.loss.target):
            if target.dtype.kind == "f" and len(rows := bad_rows(target)):
                numbers = (rows + first).tolist()
                return Fault(f"the target is not, in {listed_rows(numbers)} of the batch", numbers)
        return locate_nonfinite(self.scratch, self.grads, first, sums=alone)

    def layout_errors(self, data: StepData, order: Array) -> Iterator[str]:
        """Yield the reasons why the rows `order` of `data` cannot be copied into the buffers."""
        pairs = matched(data, self.buffers)
        for rows, buffer in pairs:
            if text := _misfit(rows, buffer):
                yield text
        last = min(len(rows) for rows, _ in pairs if rows is not None) - 1
        if order.size and int(order.view(np.uint64).max()) > last:  # negative ones are large, too
            yield f"order must name rows 0 to {last} (got {order.min()} to {order.max()})"


class NamedBoundStep(BoundStep):
    """A step on inputs and targets by name."""

    def write(self, x: Array, y: Array, weight: Array | None) -> None:
        for name, buffer, given in (
            ("x", self.scratch.input, x),
            ("y", self.loss.target, y),
        ):
            where = f"training step: {name}"
            if isinstance(buffer, NamedRows):
                buffer.write(given, where)
            else:
                write_into(buffer, given, where)
        weights = self.loss.sample_weight
        if weights is not None and weight is not None:
            write_into(weights, weight, "training step: sample_weight")
        elif weights is not weight:
            refuse_weights(weight)


def refuse_weights(weight: Array | None) -> NoReturn:
    """Raise UsageError for sample weights that are missing, or not wanted."""
    if weight is None:
        raise UsageError("training step: made with weighted=True, needs sample_weight")
    raise UsageError(
        "training step: takes no sample_weight unless it is weighted; write "
        "TrainingStep(mlp, loss, optimizer, batch_size=32, weighted=True)"
    )


def _advice_on_x(x: Array, buffer: Array) -> str:
    """Return what to write in place of features that do not fit, or ""."""
    if x.shape[:1] == buffer.shape[:1] and x.ndim == 2 and x.shape != buffer.shape:
        return f"; for these features write Mlp([{x.shape[1]}, ...])"
    if x.shape == buffer.shape and x.dtype.kind not in "biuf":
        return "; write np.asarray(x, 'float32')"
    return ""


def _advice_on_y(y: Array, buffer: Array) -> str:
    """Return what to write in place of targets that do not fit, or ""."""
    rows, classes = len(buffer), buffer.dtype.kind == "i"
    if y.shape[:1] != (rows,):
        return f"; write one target for each of {plural(rows, 'row')}"
    if classes and y.dtype.kind not in "biuf":
        return "; write labels, y = np.unique(y, return_inverse=True)"
    if classes and y.shape == buffer.shape:
        return "; write y.astype('int64')"
    if y.size == buffer.size:
        return "; write y.ravel()" if classes else f"; write y.reshape(-1, {buffer.shape[1]})"
    if classes and y.ndim == 2 and y.dtype.kind in "bi":
        return "; write y.argmax(axis=1)"
    if classes and y.ndim == 2:
        return "; write y.argmax(axis=1), or give the network as many outputs"
    if not classes and y.ndim == 1 and y.dtype.kind == "i":
        return "; for classes write SoftmaxCrossEntropy() in place of this loss"
    return ""


def _misfit(rows: Array | None, buffer: Array | None) -> str:
    """Return why the rows cannot be copied into the buffer as is, or ""."""
    if rows is None or buffer is None:
        same = rows is buffer
        return "" if same else "sample weights must come with a weighted step, and only then"
    if not isinstance(rows, np.ndarray) or not rows.flags.c_contiguous:
        return "arrays must be in memory and C-contiguous"
    if hides_entries(rows):
        return "arrays must have no masked entries"
    if rows.dtype != buffer.dtype or rows.shape[1:] != buffer.shape[1:]:
        return (
            f"rows must be as the step's buffer {buffer.dtype}{list(buffer.shape)} "
            f"(got {rows.dtype}{list(rows.shape)})"
        )
    return ""
