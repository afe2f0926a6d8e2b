"""The softmax and the cross entropy that losses of logits share."""

from abc import abstractmethod

import numpy as np

from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import constant_like
from mlpengine.ops._check import WIDE
from mlpengine.ops._constant import ones
from mlpengine.ops._softmax import row_max
from mlpengine.ops.loss import VALUE, Loss, total, wide_spec


class SoftmaxLoss(Loss):
    """Base of the losses that are sum(-q log softmax(output)) per row, for some rows q.

    The loss is the sum over the rows, so `target_rows` divides q by the batch size.
    """

    @abstractmethod
    def target_rows(self, target: Array, rows: Array, labels: Array, workspace: Array) -> Calls:
        """Yield the calls that write q into `rows`.

        Workspace: for each row, `labels` has two int64 and `workspace` one float.
        """

    @abstractmethod
    def sums_to_one(self, target: Array) -> bool:
        """Return whether each q is known to sum to 1 / batch."""

    @abstractmethod
    def column_scale(self, rows: Array) -> Array:
        """Return the derivative of a row q by the row of the target, column by column."""

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
        yield from row_max(output, shift, rows)
        yield call(np.subtract, output, shift[:, None], probs)
        yield from self.target_rows(target, rows, labels, loss)
        yield from _losses(probs, rows, vectors, one_sum=self.sums_to_one(target))
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
            scale = self.column_scale(rows).astype(rows.dtype)
            yield call(np.subtract, vectors[0][:, None], output, d_target)
            yield call(np.multiply, d_target, scale, d_target)
            yield from _scaled(d_target, weight, dy, factor)
        if d_weight is not None:
            yield call(np.copyto, d_weight, vectors[4])
            yield from _scaled(d_weight, None, dy, factor)


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
