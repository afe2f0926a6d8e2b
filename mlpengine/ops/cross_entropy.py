"""Cross entropy of logits; the targets are class indices or rows of probabilities."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from mlpengine.core.errors import DtypeError, IndexRangeError, ShapeError
from mlpengine.core.fields import Given, Limits, NonNegative, Share
from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.core.wording import plural
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import WIDE, listing, need_floats
from mlpengine.ops._constant import ones
from mlpengine.ops.broadcast import largest
from mlpengine.ops.loss import VALUE, Loss, need_rows, total, wide_spec

PROBABILITY_TOLERANCE = 1e-3
"""Tolerance for rows that do not sum to 1, and for negative probabilities."""

SMALLEST_SHARE = 1e-6
"""Lower bound of a class's share in the best constant prediction, to keep its logarithm finite."""

TABLE_CLASSES = 256
"""Maximum number of classes for a table with the target row of each class (0.25 MB of float32)."""


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss, name="softmax_cross_entropy"):
    """Cross-entropy between the target and softmax(output), in nats.

    The value is the weighted sum of the rows' losses, divided by the batch size.  The batch size
    includes rows with weight 0 and rows with the ignored index.

    Shapes: output (batch, classes), target (batch,) class indices of int64 or (batch, classes)
    probabilities, weight (batch,).
    The loss of a row is the sum of -q log softmax(output) over the classes, with
    q = ((1 - label_smoothing) target + label_smoothing / classes) class_weights.  The outputs must
    be finite.
    Backward: d_output = dy * weight * (sum(q) softmax(output) - q) / batch
    (in C `mlpengine/backends/compiled/loss_rows.py`).
    Raises: IndexRangeError in forward for a class index out of range, with the row and the index.
        Calls of the loss or of a step also raise IndexRangeError for probabilities that do not sum
        to 1.

    Source: label smoothing as in Szegedy et al. 2016, section 7.
    """

    tasks = ("classification",)
    training_options = ("class_weights", "label_smoothing", "ignore_index")

    class_weights: Annotated[tuple[NonNegative, ...] | None, Given, "One for each class."] = None
    label_smoothing: Annotated[Share, "Share of each target that is spread over all classes."] = 0.0
    ignore_index: Annotated[
        Annotated[int, Limits(whole=True)] | None, Given, "Rows of this class have no loss."
    ] = None

    def target_spec(self, output: Spec, target: Spec | None = None) -> Spec:
        indices = Spec(output.shape[:1], WIDE)
        if target is None or np.issubdtype(target.dtype, np.integer):
            expected = indices
        elif target.is_float and self.ignore_index is None:
            expected = output
        else:
            raise DtypeError(
                f"{self.name}: target must be class indices or, without ignore_index, "
                f"probabilities ({listing(target=target)})"
            )
        if target is not None and target.shape != expected.shape:
            raise ShapeError(
                f"{self.name}: target needs one index, or one row of probabilities, per row of "
                f"output ({listing(output=output, target=target)})"
            )
        return expected

    def check_target(self, target: Array) -> None:
        if target.ndim == 2 and target.dtype.kind == "f":
            _check_probabilities(self.name, target)

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the logarithms of the classes' shares."""
        if target.ndim == 1:
            if self.ignore_index is not None:
                known = target != self.ignore_index
                target, weights = target[known], None if weights is None else weights[known]
            shares = np.bincount(target, weights, minlength=outputs).astype(np.float64)
        else:
            shares = np.average(target.astype(np.float64), 0, weights)
        return self._logits(shares / max(shares.sum(), SMALLEST_SHARE), SMALLEST_SHARE)

    def _logits(self, shares: Array, smallest: float) -> Array:
        """Return the constant logits with the lowest loss if the classes have these shares."""
        shares = (1 - self.label_smoothing) * shares + self.label_smoothing / shares.shape[-1]
        shares *= 1.0 if self.class_weights is None else np.array(self.class_weights)
        logits: Array = np.log(np.maximum(shares, smallest))
        return logits

    def infer(self, output: Spec, target: Spec, weight: Spec | None = None) -> Spec:
        need_floats(self.name, output=output, weight=weight)
        if len(output.shape) != 2 or output.shape[1] < 2:
            raise ShapeError(
                f"{self.name}: output must be (batch, classes) with two classes or more "
                f"({listing(output=output)}); one output takes bce_with_logits"
            )
        if target.dtype != self.target_spec(output, target).dtype:
            raise DtypeError(
                f"{self.name}: target must be int64 indices, or probabilities of the output's "
                f"dtype ({listing(output=output, target=target)})"
            )
        weights = self.class_weights
        if weights is not None and len(weights) != output.shape[1]:
            raise ShapeError(
                f"{self.name}: needs one class weight per class "
                f"({listing(output=output)}, {plural(len(weights), 'class weight')})"
            )
        need_rows(self.name, output, weight)
        return VALUE

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        batch = output.shape[:1]
        return {
            "probs": output,
            "rows": output,
            "vectors": Spec((5, *batch), output.dtype),
            "labels": Spec((2, *batch), WIDE),
            "wide": wide_spec(Spec(batch, output.dtype)),
            "weighted": Spec((2, *batch) if weight else (2, 0), VALUE.dtype),
            "factor": Spec((), output.dtype),
        }

    def forward(
        self,
        output: Array,
        target: Array,
        weight: Array | None,
        *,
        out: Array,
        probs: Array,
        rows: Array,
        vectors: Array,
        labels: Array,
        wide: Array,
        weighted: Array,
    ) -> Calls:
        shift, *_, loss = vectors
        one_sum = target.ndim == 1 and self.class_weights is None and self.ignore_index is None
        yield from largest(output, shift[:, None], rows)
        yield call(np.subtract, output, shift[:, None], probs)
        if target.ndim == 1:
            yield from _rows_of_indices(self, target, rows, labels, loss)
        else:
            yield from _rows_of_probabilities(self, target, rows)
        yield from _losses(probs, rows, vectors, one_sum=one_sum)
        if weight is None:
            yield from total(loss, 1.0, wide, out)
        else:
            yield call(np.copyto, weighted[0], loss)
            yield call(np.copyto, weighted[1], weight)
            yield call(np.dot, weighted[0], weighted[1], out)

    def backward(
        self,
        dy: Array | None,
        output: Array,
        weight: Array | None,
        *,
        out: Slots,
        probs: Array,
        rows: Array,
        vectors: Array,
        factor: Array,
    ) -> Calls:
        d_output, d_target, d_weight = out
        if dy is not None:
            yield call(np.copyto, factor, dy)
        if d_output is not None:
            yield call(np.subtract, probs, rows, d_output)
            yield from _scaled(d_output, weight, dy, factor)
        if d_target is not None:  # -log(softmax(output)), scaled
            scale = ((1 - self.label_smoothing) * _column_scale(self, rows)).astype(rows.dtype)
            yield call(np.subtract, vectors[0][:, None], output, d_target)
            yield call(np.multiply, d_target, scale, d_target)
            yield from _scaled(d_target, weight, dy, factor)
        if d_weight is not None:
            yield call(np.copyto, d_weight, vectors[4])
            yield from _scaled(d_weight, None, dy, factor)


def _column_scale(loss: SoftmaxCrossEntropy, rows: Array) -> Array:
    """Return the class weights, or ones, divided by the batch size, in float64."""
    weights = np.ones(rows.shape[1]) if loss.class_weights is None else np.array(loss.class_weights)
    return weights / len(rows)


def _rows_of_probabilities(loss: SoftmaxCrossEntropy, target: Array, rows: Array) -> Calls:
    """Yield the calls that write q / batch into `rows` (see `SoftmaxCrossEntropy` for q)."""
    scale = _column_scale(loss, rows)
    yield call(np.multiply, target, ((1 - loss.label_smoothing) * scale).astype(rows.dtype), rows)
    if loss.label_smoothing:
        smoothing = loss.label_smoothing / rows.shape[1] * scale
        yield call(np.add, rows, smoothing.astype(rows.dtype), rows)


def _check_probabilities(where: str, target: Array) -> None:
    """Raise IndexRangeError for a finite row that does not sum to 1 or has a negative entry."""
    with np.errstate(all="ignore"):
        off = target.dot(ones(target.shape[1], target.dtype)) - 1
        if off.dot(off) <= PROBABILITY_TOLERANCE**2 and target.min() >= 0:
            return
        sums, lowest = target.sum(axis=1), target.min(axis=1)
        wrong = (np.abs(sums - 1) > PROBABILITY_TOLERANCE) | (lowest < -PROBABILITY_TOLERANCE)
        rows = np.flatnonzero(wrong & np.isfinite(sums))
    if rows.size:
        row = rows[0]
        has = f", with {lowest[row]:g} in it" if lowest[row] < 0 else ""
        raise IndexRangeError(
            f"{where}: the probabilities of a row must be at least 0 and sum to 1 (row {row} sums "
            f"to {sums[row]:g}{has}); for several labels a row write BinaryCrossEntropyWithLogits()"
        )


def _rows_of_indices(
    loss: SoftmaxCrossEntropy, target: Array, rows: Array, labels: Array, workspace: Array
) -> Calls:
    """Yield the calls that write q / batch into `rows`, for class indices."""
    (batch, classes), (used, valid) = rows.shape, labels
    if loss.ignore_index is None:
        used = target
    else:
        yield call(np.not_equal, target, np.array(loss.ignore_index), valid)
        yield call(np.multiply, target, valid, used)  # an ignored row has class 0 ...
    yield call(_check_labels, loss.name, used.view(np.uint64), classes)
    scale = _column_scale(loss, rows)
    smoothing = loss.label_smoothing / classes * scale
    peak = (1 - loss.label_smoothing) * scale + smoothing
    if classes <= TABLE_CLASSES:
        table = np.where(np.eye(classes, dtype=bool), peak, smoothing).astype(rows.dtype)
        yield call(table.take, used, 0, rows, "clip")
    else:
        yield call(peak.astype(rows.dtype).take, used, 0, workspace, "clip")
        yield call(np.add, used, np.arange(batch) * classes, labels[0])
        yield call(np.copyto, rows, smoothing.astype(rows.dtype))
        yield call(rows.reshape(-1).put, labels[0], workspace, "clip")
    if loss.ignore_index is not None:
        yield call(np.copyto, workspace, valid)
        yield call(np.multiply, rows, workspace[:, None], rows)  # ... with weight 0


def _check_labels(where: str, labels: Array, classes: int) -> None:
    """Raise IndexRangeError for a label out of range; unsigned, a negative label is huge."""
    if labels.item(labels.argmax()) >= classes:
        row = int(np.flatnonzero(labels >= classes)[0])
        label = int(labels.view(np.int64)[row])
        hint = f"count classes from 0, or give the network {plural(label + 1, 'output')}"
        if label < 0:
            hint = f"ignore_index={label} leaves such rows out"
        raise IndexRangeError(
            f"{where}: a class index must lie in 0 to {classes - 1} (row {row} has {label}); {hint}"
        )


def _losses(probs: Array, rows: Array, vectors: Array, *, one_sum: bool) -> Calls:
    """Yield the calls that turn `probs` from shifted logits into sum(q) softmax / batch.

    The calls also write loss / batch of each row into the last of `vectors`.  Unless `one_sum`
    tells that sum(q) is 1, they write the log of the row's sum of exponentials into the first.
    """
    shift, total, mass, logs, loss = vectors
    columns = ones(probs.shape[1], probs.dtype)
    yield call(np.vecdot, rows, probs, loss)
    yield call(np.exp, probs, probs)
    yield call(np.dot, probs, columns, total)
    yield call(np.log, total, logs)
    if one_sum:
        mass = constant_like(1 / len(rows), rows)
    else:
        yield call(np.dot, rows, columns, mass)
        yield call(np.add, shift, logs, shift)
    yield call(np.divide, mass, total, total)
    yield call(np.multiply, probs, total[:, None], probs)
    yield call(np.multiply, logs, mass, logs)
    yield call(np.subtract, logs, loss, loss)


def _scaled(slot: Array, weight: Array | None, dy: Array | None, factor: Array) -> Calls:
    """Yield the calls that multiply `slot` by the rows' weights and by dy."""
    if weight is not None:
        yield call(np.multiply, slot, weight[:, None], slot)
    if dy is not None:
        yield call(np.multiply, slot, factor, slot)
