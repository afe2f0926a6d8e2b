"""Losses that are means over entries."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from mlpengine.errors import ShapeError
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops._loss import VALUE, Loss, need_rows, total, wide_spec
from mlpengine.spec import Array, Calls, Slots, Spec, call


class EntryLoss(Loss):
    """Base of the losses that are a mean over entries: target and output have one shape.

    Shapes: output (batch, ...), target as output, weight (batch,).
    An entry's loss is ``value_scale * entry`` and its derivative ``slope_scale * slope``, with
    what `entries` writes.  A weight multiplies its row's losses; the mean divides by the number of
    entries, not by the sum of the weights.
    """

    value_scale: ClassVar[float] = 1.0
    slope_scale: ClassVar[float] = 1.0

    def room(self, output: Spec) -> Spec:
        """Return the spec of the buffer that `entries` may use besides."""
        return Spec((0,), output.dtype)

    @abstractmethod
    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        """Yield what writes each entry's loss, and into `slope` what `derivative` reads."""

    def derivative(self, slope: Array, factor: Array, out: Array) -> Calls:
        """Yield factor times the derivative by the output, from what `entries` left in `slope`."""
        yield call(np.multiply, slope, factor, out)

    def target_spec(self, output: Spec, target: Spec | None = None) -> Spec:
        if target is not None and target.shape != output.shape:
            raise ShapeError(
                f"{self.name}: target must have the shape of output "
                f"({listing(output=output, target=target)})"
            )
        return output

    def infer(self, output: Spec, target: Spec, weight: Spec | None = None) -> Spec:
        need_floats(self.name, output=output, target=target, weight=weight)
        self.target_spec(output, target)
        need_rows(self.name, output, weight)
        return VALUE

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        return {
            "entry": output,
            "slope": output,
            "room": self.room(output),
            "wide": wide_spec(output),
            "rows": Spec((2, 0) if weight is None else (2, *weight.shape), VALUE.dtype),
            "factor": Spec((), output.dtype),
        }

    def forward(
        self,
        output: Array,
        target: Array,
        weight: Array | None,
        *,
        out: Array,
        entry: Array,
        slope: Array,
        room: Array,
        wide: Array,
        rows: Array,
    ) -> Calls:
        yield from self.entries(output, target, entry, slope, room)
        share = self.value_scale / entry.size
        if weight is None:
            yield from total(entry.reshape(-1), share, wide, out)
        else:
            yield call(np.add.reduce, by_row(entry), 1, np.float64, rows[0])
            yield call(np.multiply, weight, np.array(share), rows[1])
            yield call(np.dot, rows[0], rows[1], out)

    def gradients(
        self,
        dy: Array | None,
        weight: Array | None,
        out: Slots,
        slope: Array,
        rows: Array,
        factor: Array,
    ) -> Calls:
        """Yield the calls for d_output and d_weight; `factor` becomes dy / entries, scaled."""
        d_output, _, d_weight = out
        share = 1 / slope.size
        yield from scaled_dy(dy, self.slope_scale * share, factor)
        if d_output is not None:
            yield from self.derivative(slope, factor, d_output)
            yield from weighted(d_output, weight)
        if d_weight is not None:
            yield call(np.multiply, rows[0], np.array(self.value_scale * share), rows[1])
            yield call(np.multiply, rows[1], np.array(1.0) if dy is None else dy, d_weight)


class DistanceLoss(EntryLoss):
    """Base of the losses of output - target: d_target is the negative of d_output."""

    def backward(
        self,
        dy: Array | None,
        weight: Array | None,
        *,
        out: Slots,
        slope: Array,
        rows: Array,
        factor: Array,
    ) -> Calls:
        yield from self.gradients(dy, weight, out, slope, rows, factor)
        d_target = out[1]
        if d_target is not None:
            yield from self.derivative(slope, factor, d_target)
            yield from weighted(d_target, weight)
            yield call(np.negative, d_target, d_target)


def by_row(x: Array) -> Array:
    """Return `x` as a matrix with one line per row of the batch."""
    return x.reshape(len(x), -1)


def weighted(slot: Array, weight: Array | None) -> Calls:
    """Yield the call that multiplies each row of a gradient by its weight, where there are any."""
    if weight is not None:
        yield call(np.multiply, by_row(slot), weight[:, None], by_row(slot))


def scaled_dy(dy: Array | None, scale: float, factor: Array) -> Calls:
    """Yield the call that writes ``dy * scale`` into `factor`, or write it now where dy is 1."""
    if dy is None:
        factor[...] = scale
    else:
        yield call(np.multiply, dy, np.array(scale), factor)
