"""One op bound straight to arrays, without tape, plan or program: the contract and no more."""

from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Call, Spec
from mlpengine.ops import GradOp

ALIGNMENT = 64
"""Bytes, as in the memory of programs: two buffers a few bytes apart modulo a page copy slowly."""


def room(spec: Spec) -> Array:
    """Return an aligned array, uninitialized."""
    raw = np.empty(spec.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + spec.nbytes].view(spec.dtype).reshape(spec.shape)


def copied(x: Array) -> Array:
    """Return an aligned copy."""
    y = room(Spec.of(x))
    y[...] = x
    return y


def garbage(spec: Spec) -> Array:
    """Return an array full of what no rule may take for a number: NaN, or an extreme integer."""
    fills = {"f": np.nan, "b": True}
    fill = fills[spec.dtype.kind] if spec.dtype.kind in fills else np.iinfo(spec.dtype).max
    array = room(spec)
    array.fill(fill)
    return array


class Bound:
    """An op bound to copies of its operands.

    `y` are the values, `slots` the gradients, `dy` what flows in (ones until it is written).
    `wanted` says which gradients are asked for; `aliased` makes out the buffer of the first operand
    (forward) or of dy (backward), as `in_place` allows.
    """

    def __init__(
        self,
        op: GradOp,
        operands: tuple[Array | None, ...],
        *,
        wanted: tuple[bool, ...] | None = None,
        aliased: str = "",
    ) -> None:
        self.op = op
        missing = 0 if op.signature.is_variadic else len(op.signature.operands) - len(operands)
        self.operands = [None if x is None else copied(x) for x in (*operands, *(None,) * missing)]
        specs = [None if x is None else Spec.of(x) for x in self.operands]
        inferred = op.infer(*specs)
        outputs = inferred if isinstance(inferred, tuple) else (inferred,)
        self.y = tuple(garbage(s) for s in outputs)
        if aliased == "forward":
            self.y = (self.operands[0].reshape(self.y[0].shape), *self.y[1:])
        self.dy = tuple(copied(np.ones(s.shape, s.dtype)) for s in outputs)
        self.work = {name: garbage(s) for name, s in op.work(*specs).items()}
        self.slots = self._slots(wanted, aliased)
        self.forward_calls = self._bind_forward()
        self.backward_calls = self._bind_backward()

    def forward(self) -> tuple[Array, ...]:
        """Run forward and return the values."""
        for step in self.forward_calls:
            step()
        return self.y

    def backward(self) -> list[Array]:
        """Run backward and return the gradients that are asked for."""
        for step in self.backward_calls:
            step()
        return [g for g in self.slots if g is not None]

    def random_dy(self) -> "Bound":
        """Fill dy with normal numbers, always the same, and return self."""
        rng = np.random.default_rng(5)
        for dy in self.dy:
            dy[...] = rng.standard_normal(dy.shape)
        return self

    def _slots(self, wanted: tuple[bool, ...] | None, aliased: str) -> list[Array | None]:
        slots: list[Array | None] = []
        for i, x in enumerate(self.operands):
            if x is None or x.dtype.kind != "f" or (wanted is not None and not wanted[i]):
                slots.append(None)
                continue
            shape = self.y[0].shape if self.op.broadcasts else x.shape
            slots.append(garbage(Spec(shape, x.dtype)))
        if aliased == "backward":
            slots[0] = self.dy[0].reshape(slots[0].shape)
        return slots

    def _bind_forward(self) -> tuple[Call, ...]:
        work = {n: self.work[n] for n in self.op.signature.work["forward"]}
        out = self.y if len(self.y) > 1 else self.y[0]
        return tuple(self.op.forward(*self.operands, out=out, **work))

    def _bind_backward(self) -> tuple[Call, ...]:
        named: dict[str, Any] = {
            "y": self.y if len(self.y) > 1 else self.y[0],
            "dy": self.dy if len(self.dy) > 1 else self.dy[0],
        }
        names = self.op.signature.operands
        if self.op.signature.is_variadic:
            named[names[0]] = tuple(self.operands)
        else:
            named |= dict(zip(names, self.operands, strict=True))
        residuals = [named[n] for n in self.op.signature.residuals]
        work = {n: self.work[n] for n in self.op.signature.work["backward"]}
        return tuple(self.op.backward(*residuals, out=tuple(self.slots), **work))
