"""Cross entropy of logits and class indices or rows of probabilities."""

from dataclasses import dataclass

import numpy as np

from mlpengine.errors import DtypeError, IndexRangeError, ShapeError, UsageError
from mlpengine.ops._check import WIDE, listing, need_floats
from mlpengine.ops._constant import constant, ones
from mlpengine.ops._loss import VALUE, Loss, need_row_weights, total, wide_spec
from mlpengine.ops._softmax import row_max
from mlpengine.spec import Array, Calls, Slots, Spec, call

TABLE_CLASSES = 256
"""Up to here the target's row is taken from a table of one row per class, 0.25 MB of float32."""


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss, name="softmax_cross_entropy"):
    """Cross entropy of softmax(output) and the target, in nats, divided by the batch size.

    By nothing else: rows of small weight, and rows with the ignored index, count as rows.

    Shapes: output (batch, classes), target (batch,) class indices of int64 or (batch, classes)
    probabilities, weight (batch,).
    With q = ((1 - label_smoothing) target + label_smoothing / classes) class_weights, a row's
    loss is the sum of -q log softmax(output).  The outputs must be finite.
    Backward: d_output = dy * weight * (sum(q) softmax(output) - q) / batch.
    Raises: IndexRangeError, when replayed, naming row and index of a class out of range.
    Source: label smoothing as in Szegedy et al. 2016, section 7.
    """

    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing <= 1:
            raise UsageError(
                f"{self.name}: label_smoothing must lie in 0 to 1 ({self.label_smoothing})"
            )

    def target_spec(self, output: Spec, target: Spec | None = None) -> Spec:
        return _target_spec(self, output, target)

    def infer(self, output: Spec, target: Spec, weight: Spec | None = None) -> Spec:
        _check_operands(self, output, target, weight)
        return VALUE

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        batch = output.shape[:1]
        return {
            "probs": output,
            "rows": output,
            "vectors": Spec((5, *batch), output.dtype),
            "flat": Spec(batch, WIDE),
            "valid": Spec(batch, np.dtype(np.bool_)),
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
        flat: Array,
        valid: Array,
        wide: Array,
        weighted: Array,
    ) -> Calls:
        shift, *_, loss = vectors
        yield from row_max(output, shift, rows)
        yield call(np.subtract, output, shift[:, None], probs)
        if target.ndim == 1:
            yield from _rows_of_indices(self, target, rows, valid, flat, loss)
        else:
            yield from _rows_of_probabilities(self, target, rows)
        yield from _losses(probs, rows, vectors, one_sum=_sums_to_one(self) and target.ndim == 1)
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
        if d_target is not None:  # minus the log of the probabilities
            scale = (1 - self.label_smoothing) * _column_scale(self, rows)
            yield call(np.subtract, vectors[0][:, None], output, d_target)
            yield call(np.multiply, d_target, scale.astype(rows.dtype), d_target)
            yield from _scaled(d_target, weight, dy, factor)
        if d_weight is not None:
            yield call(np.copyto, d_weight, vectors[4])
            yield from _scaled(d_weight, None, dy, factor)


def _target_spec(loss: SoftmaxCrossEntropy, output: Spec, target: Spec | None) -> Spec:
    """Return the spec that a target of this kind must have; raise if there is none."""
    indices = Spec(output.shape[:1], WIDE)
    if target is None or np.issubdtype(target.dtype, np.integer):
        found = indices
    elif target.is_float and loss.ignore_index is None:
        found = output
    else:
        raise DtypeError(
            f"{loss.name}: target must be class indices or, without ignore_index, probabilities "
            f"({listing(target=target)})"
        )
    if target is not None and target.shape != found.shape:
        raise ShapeError(
            f"{loss.name}: target needs one index, or one row of probabilities, per row of output "
            f"({listing(output=output, target=target)})"
        )
    return found


def _check_operands(
    loss: SoftmaxCrossEntropy, output: Spec, target: Spec, weight: Spec | None
) -> None:
    need_floats(loss.name, output=output, weight=weight)
    if len(output.shape) != 2 or not output.shape[1]:
        raise ShapeError(f"{loss.name}: output must be (batch, classes) ({listing(output=output)})")
    if target.dtype != _target_spec(loss, output, target).dtype:
        raise DtypeError(
            f"{loss.name}: target must be int64 indices, or probabilities of the output's dtype "
            f"({listing(output=output, target=target)})"
        )
    weights = loss.class_weights
    if weights is not None and len(weights) != output.shape[1]:
        raise ShapeError(
            f"{loss.name}: needs one class weight per class "
            f"({listing(output=output)}, {len(weights)} class weights)"
        )
    need_row_weights(loss.name, output, weight)


def _sums_to_one(loss: SoftmaxCrossEntropy) -> bool:
    """Return whether q of a class index always sums to one."""
    return loss.class_weights is None and loss.ignore_index is None


def _column_scale(loss: SoftmaxCrossEntropy, rows: Array) -> Array:
    """Return the class weights, or ones, divided by the batch size, in float64."""
    weights = np.ones(rows.shape[1]) if loss.class_weights is None else np.array(loss.class_weights)
    return weights / max(len(rows), 1)


def _rows_of_probabilities(loss: SoftmaxCrossEntropy, target: Array, rows: Array) -> Calls:
    """Yield the calls that write q / batch into `rows`."""
    scale = _column_scale(loss, rows)
    yield call(np.multiply, target, ((1 - loss.label_smoothing) * scale).astype(rows.dtype), rows)
    if loss.label_smoothing:
        rest = loss.label_smoothing / rows.shape[1] * scale
        yield call(np.add, rows, rest.astype(rows.dtype), rows)


def _rows_of_indices(
    loss: SoftmaxCrossEntropy, target: Array, rows: Array, valid: Array, flat: Array, room: Array
) -> Calls:
    """Yield the calls that write q / batch into `rows`; `valid`, `flat`, `room` are one per row."""
    (batch, classes), labels = rows.shape, target
    if loss.ignore_index is not None:
        labels = flat
        yield call(np.not_equal, target, np.array(loss.ignore_index), valid)
        yield call(np.multiply, target, valid, labels)  # an ignored row takes class 0 ...
    yield call(_check_labels, loss.name, labels.view(np.uint64), classes)
    scale = _column_scale(loss, rows)
    rest = loss.label_smoothing / classes * scale
    peak = (1 - loss.label_smoothing) * scale + rest
    if classes <= TABLE_CLASSES:
        table = np.where(np.eye(classes, dtype=bool), peak, rest).astype(rows.dtype)
        yield call(table.take, labels, 0, rows, "clip")
    else:
        yield call(peak.astype(rows.dtype).take, labels, 0, room, "clip")
        yield call(np.add, labels, np.arange(batch) * classes, flat)
        yield call(np.copyto, rows, rest.astype(rows.dtype))
        yield call(rows.reshape(-1).put, flat, room, "clip")
    if loss.ignore_index is not None:
        yield call(np.multiply, rows, valid[:, None], rows)  # ... and then weighs nothing


def _check_labels(where: str, labels: Array, classes: int) -> None:
    """Raise IndexRangeError unless all labels, read as unsigned numbers, are classes.

    The largest by `argmax` costs 0.4 us, half of what a reduction does.
    """
    if labels.size and labels.item(labels.argmax()) >= classes:
        row = int(np.flatnonzero(labels >= classes)[0])
        raise IndexRangeError(
            f"{where}: a class index must lie in 0 to {classes - 1} "
            f"(row {row} has {labels.view(np.int64)[row]})"
        )


def _losses(probs: Array, rows: Array, vectors: Array, *, one_sum: bool) -> Calls:
    """Yield the calls that turn `probs` from shifted logits into sum(q) softmax / batch.

    The last of `vectors` becomes each row's loss / batch, the first the log of its partition sum.
    """
    shift, total, mass, logs, loss = vectors
    columns = ones(probs.shape[1], probs.dtype)
    yield call(np.vecdot, rows, probs, loss)
    yield call(np.exp, probs, probs)
    yield call(np.dot, probs, columns, total)
    yield call(np.log, total, logs)
    if one_sum:
        mass = constant(1 / max(len(rows), 1), rows)
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
