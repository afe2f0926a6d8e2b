"""Element-wise choice between two operands."""

import numpy as np

from mlpengine.core.spec import Array, Calls, Slots, Spec, call
from mlpengine.formula.numpy_functions import bits, chosen, masked
from mlpengine.ops._check import need_floats
from mlpengine.ops.elementwise_op import broadcast
from mlpengine.ops.op import GradOp


class Where(GradOp, name="where"):
    """Choice, y = a where cond is true, else b.

    Shapes: cond, a and b broadcast to y.
    Dtype: cond is bool, or numbers with 0 for false; a and b have the dtype of y.
    Backward: da = dy where cond is true, else 0; db = dy - da; dcond = 0.
    Raises: ShapeError if the operands do not broadcast.
    """

    broadcasts = True

    def infer(self, cond: Spec, a: Spec, b: Spec) -> Spec:
        need_floats(self.name, a=a, b=b)
        return Spec(broadcast(self.name, cond=cond, a=a, b=b), a.dtype)

    def work(self, cond: Spec, a: Spec, b: Spec) -> dict[str, Spec]:
        is_mask = cond.dtype == np.bool_
        return {"mask": Spec((0,) if is_mask else cond.shape, np.dtype(np.bool_))}

    def forward(self, cond: Array, a: Array, b: Array, *, out: Array, mask: Array) -> Calls:
        if cond.dtype != np.bool_:
            yield call(np.not_equal, cond, np.zeros((), cond.dtype), mask)
            cond = mask
        yield from chosen(cond, a, b, out)

    def backward(self, dy: Array, cond: Array, *, out: Slots, mask: Array) -> Calls:
        dcond, da, db = out
        kept = cond if cond.dtype == np.bool_ else mask
        if dcond is not None:
            yield call(dcond.fill, 0)
        for slot in (da, db):
            if slot is not None:
                yield from masked(dy, kept, slot)
        if db is not None:  # db = dy - da
            yield call(np.bitwise_xor, bits(db), bits(dy), bits(db))
