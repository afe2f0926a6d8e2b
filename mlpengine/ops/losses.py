"""Losses that are means over entries, each an op and a callable (see `Loss`)."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import IndexRangeError, UsageError
from mlpengine.formula.pieces import bounded, constant, log1p_exp_of_minus_abs
from mlpengine.ops._entry_loss import DistanceLoss, EntryLoss, weighted
from mlpengine.spec import Array, Calls, Slots, Spec, call


class MeanSquaredError(DistanceLoss, name="mse"):
    """Mean over all entries of (output - target)**2.

    Backward: d_output = dy * 2 (output - target) / entries, d_target its negative.
    """

    slope_scale = 2.0

    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        yield call(np.subtract, output, target, slope)
        yield call(np.square, slope, entry)


class MeanAbsoluteError(DistanceLoss, name="mae"):
    """Mean over all entries of abs(output - target).

    Backward: d_output = dy * sign(output - target) / entries, 0 where they are equal; d_target
    its negative.
    """

    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        yield call(np.subtract, output, target, slope)
        yield call(np.abs, slope, entry)

    def derivative(self, slope: Array, factor: Array, out: Array) -> Calls:
        yield call(np.sign, slope, out)  # not in place, which is ten times as slow
        yield call(np.multiply, out, factor, out)


@dataclass(frozen=True)
class Huber(DistanceLoss, name="huber"):
    """Mean over all entries of d**2 / 2 within delta, delta (abs(d) - delta / 2) beyond it.

    d is output - target; with c the d clipped to delta, both are c (2 d - c) / 2.
    Backward: d_output = dy * c / entries, d_target its negative.
    Raises: UsageError unless delta is positive.
    Source: Huber 1964, section 1.
    """

    delta: float = 1.0

    value_scale = 0.5

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise UsageError(f"huber: delta must be positive (delta {self.delta})")

    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        yield call(np.subtract, output, target, entry)
        yield call(entry.clip, constant(-self.delta, entry), constant(self.delta, entry), slope)
        yield call(np.add, entry, entry, entry)
        yield call(np.subtract, entry, slope, entry)
        yield call(np.multiply, entry, slope, entry)


_UNSIGNED = {4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class BinaryCrossEntropyWithLogits(EntryLoss, name="bce_with_logits"):
    """Mean over all entries of -(1 - t) log(1 - p) - positive_weight t log(p), p = sigmoid(output).

    t is the target, 0, 1 or a probability.  Both logs come from log(1 + exp(-abs(x))), which
    neither overflows nor cancels; without a weight it is max(x, 0) - x t + log(1 + exp(-abs(x))).
    Backward: d_output = dy * (p - t + (positive_weight - 1) (p - 1) t) / entries;
    d_target = -dy * (output + (positive_weight - 1) log(p)) / entries.
    Raises: UsageError unless positive_weight is positive; IndexRangeError, when replayed, naming
    row and value of a target outside 0 to 1.
    """

    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.positive_weight > 0:
            raise UsageError(f"{self.name}: positive_weight must be positive ({self})")

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        aside = Spec((2, *output.shape) if self.positive_weight != 1 else (0,), output.dtype)
        return {**super().work(output, target, weight), "room": output, "aside": aside}

    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        unsigned = _UNSIGNED[target.itemsize]
        one = int(np.ones(1, target.dtype).view(unsigned)[0])
        yield call(_check_probabilities, self.name, target, target.view(unsigned), one)
        yield from log1p_exp_of_minus_abs(output, entry, slope, room)
        yield from bounded(np.minimum, output, 0.0, room)
        yield call(np.subtract, room, entry, room)  # log(p)
        yield from bounded(np.maximum, output, 0.0, slope)
        yield call(np.add, slope, entry, slope)  # -log(1 - p)
        yield from _binary_terms(target, self.positive_weight, entry, slope, room)

    def backward(
        self,
        dy: Array | None,
        output: Array,
        weight: Array | None,
        *,
        out: Slots,
        slope: Array,
        rows: Array,
        factor: Array,
        aside: Array,
    ) -> Calls:
        yield from self.gradients(dy, weight, out, slope, rows, factor)
        if out[1] is not None:
            yield from _target_slope(output, self.positive_weight, out[1], aside)
            yield call(np.multiply, out[1], factor, out[1])
            yield from weighted(out[1], weight)


def _check_probabilities(where: str, target: Array, bits: Array, one: int) -> None:
    """Raise IndexRangeError unless all targets lie in 0 to 1; NaN is for the check of the loss.

    As unsigned integers the `bits` of 0 to 1 are at most those of 1, and all others are larger: one
    `argmax`, 0.4 us for a small batch, where two comparisons cost 2 us.
    """
    if target.size and bits.item(bits.argmax()) > one:
        outside = (target < 0) | (target > 1)
        if outside.any():
            place = tuple(int(i[0]) for i in outside.nonzero())
            raise IndexRangeError(
                f"{where}: a target must lie in 0 to 1 "
                f"(row {place[0] if place else 0} has {target[place]:g})"
            )


def _target_slope(output: Array, positive_weight: float, out: Array, aside: Array) -> Calls:
    """Yield the calls that write -(output + (positive_weight - 1) log(p)) into `out`."""
    if positive_weight == 1:
        yield call(np.negative, output, out)
        return
    log_p, room = aside[0, ...], aside[1, ...]
    yield from log1p_exp_of_minus_abs(output, log_p, room, out)
    yield from bounded(np.minimum, output, 0.0, room)
    yield call(np.subtract, log_p, room, log_p)  # -log(p)
    yield call(np.multiply, log_p, constant(positive_weight - 1, log_p), log_p)
    yield call(np.subtract, log_p, output, out)


def _binary_terms(
    target: Array, positive_weight: float, entry: Array, slope: Array, room: Array
) -> Calls:
    """Yield the entry (1 - t) slope - positive_weight t room, and its derivative into `slope`.

    `slope` holds -log(1 - p) and `room` log(p) before.
    """
    one, extra = constant(1.0, target), positive_weight - 1
    yield call(np.subtract, one, target, entry)
    yield call(np.multiply, entry, slope, entry)
    yield call(np.multiply, target, room, slope)
    if extra:
        yield call(np.multiply, slope, constant(positive_weight, slope), slope)
    yield call(np.subtract, entry, slope, entry)
    yield call(np.exp, room, room)  # p
    yield call(np.subtract, room, target, slope)
    if extra:
        yield call(np.subtract, room, one, room)
        yield call(np.multiply, room, target, room)
        yield call(np.multiply, room, constant(extra, room), room)
        yield call(np.add, slope, room, slope)
