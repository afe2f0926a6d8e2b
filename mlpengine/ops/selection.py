"""Choosing between operands, entry by entry."""

import numpy as np

from mlpengine.ops._check import need_floats
from mlpengine.ops._constant import constant
from mlpengine.ops._elementwise import Binary, bits, broadcast, chosen, masked
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array, Calls, Slots, Spec, call


class Extremum(Binary):
    """Base of `Maximum` and `Minimum`: the gradient goes to the winner, half each on a tie."""

    in_place = ("forward",)

    def work(self, a: Spec, b: Spec) -> dict[str, Spec]:
        masks = Spec((2, *self.infer(a, b).shape), np.dtype(np.int8))
        return {"wins": masks}

    def shares(self, dy: Array, a: Array, b: Array, out: Slots, wins: Array) -> Calls:
        """Yield the calls that give dy to the first slot where a > b, half where a == b."""
        da, db = out
        above, not_below = wins[0, ...], wins[1, ...]
        yield call(np.greater, a, b, above.view(np.bool_))
        yield call(np.greater_equal, a, b, not_below.view(np.bool_))
        yield call(np.add, above, not_below, above)  # halves of dy that go to a: 0, 1 or 2
        half = constant(0.5, dy)
        if da is not None:
            yield call(np.multiply, above, half, da)
            yield call(np.multiply, da, dy, da)
        if db is not None:
            yield call(np.subtract, np.array(2, np.int8), above, above)
            yield call(np.multiply, above, half, db)
            yield call(np.multiply, db, dy, db)


class Maximum(Extremum, name="maximum"):
    """Larger of the two, y = max(a, b); NaN in either stays NaN.

    Shapes: a and b broadcast to y.
    Backward: dy to the larger, dy / 2 to each on a tie.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.maximum, a, b, out=out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots, wins: Array) -> Calls:
        yield from self.shares(dy, a, b, out, wins)


class Minimum(Extremum, name="minimum"):
    """Smaller of the two, y = min(a, b); NaN in either stays NaN.

    Shapes: a and b broadcast to y.
    Backward: dy to the smaller, dy / 2 to each on a tie.
    Raises: ShapeError if a and b do not broadcast.
    """

    def forward(self, a: Array, b: Array, *, out: Array) -> Calls:
        yield call(np.minimum, a, b, out=out)

    def backward(self, dy: Array, a: Array, b: Array, *, out: Slots, wins: Array) -> Calls:
        da, db = out
        yield from self.shares(dy, a, b, (db, da), wins)


class Where(GradOp, name="where"):
    """Choice, y = a where cond holds and b elsewhere.

    Shapes: cond, a and b broadcast to y.
    Dtype: cond is bool, or a mask of 0 and 1 of any dtype; a and b have the dtype of y.
    Backward: da = dy where cond holds and 0 elsewhere, db the other way round, dcond = 0.
    Raises: ShapeError if the three do not broadcast.
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
        if db is not None:  # dy without the part that goes to a
            yield call(np.bitwise_xor, bits(db), bits(dy), bits(db))
