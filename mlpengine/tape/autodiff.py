"""Eager mode: ops compute at once, and control flow is ordinary Python.

A `Tensor` refers to the op that computed the tensor.  `backward` runs the same steps as a `Program`
in newly allocated memory.  A graph has no reference cycles, so Python frees the graph with its last
tensor.

Example:
    >>> w = from_inner(np.array([1.0, 2.0])).require_grad()
    >>> loss = (w * w).sum()
    >>> backward(loss).grad(w).tolist()
    [2.0, 4.0]
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType
from typing import Any

import numpy as np

from mlpengine.core.buffers import Uncopyable
from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.ops import GradOp
from mlpengine.tape.expression import Expression
from mlpengine.tape.graph import (
    Computation,
    computations_behind,
    leaf_gradients,
    new_value,
    run_forward,
    save_for_backward,
)
from mlpengine.tape.operand import cast_scalars, numeric
from mlpengine.tape.quantized import QuantizedArray
from mlpengine.tape.record import Record, Value, as_tuple, inferred_specs, padded_operands

_tracking: ContextVar[bool] = ContextVar("tracking", default=True)


class Tensor(Expression):
    """An array and, if the tensor is tracked, the op that computed the array.

    `from_inner` makes a tensor.  Tensors have the operators and methods of `Expression`.  Integer,
    bool and quantized tensors are never tracked.  Until the last call of `backward`, do not change
    arrays that tracked ops have read.
    """

    def __init__(
        self, inner: Array | QuantizedArray, value: Value, made_by: Computation | None = None
    ) -> None:
        self._inner: Any = inner
        self._value = value
        self._made_by = made_by

    @property
    def spec(self) -> Spec:  # type: ignore[override]
        """Shape and dtype."""
        return self._value.spec

    @property
    def wants_grad(self) -> bool:  # type: ignore[override]
        """Whether `backward` computes the gradient of this tensor."""
        return self._value.wants_grad

    def __bool__(self) -> bool:
        return bool(self._inner)

    __hash__ = Expression.__hash__

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        raise TapeError(f"tensor: cannot be compared; compare its inner() ({self!r})")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__

    @property
    def is_leaf(self) -> bool:
        """Whether no tracked op computed this tensor."""
        return self._made_by is None

    def inner(self) -> Any:
        """Return the array or quantized array, not a copy."""
        return self._inner

    def require_grad(self) -> "Tensor":
        """Track all later ops on this leaf; return the leaf.

        Raises: TapeError for the result of a tracked op; DtypeError unless the dtype is floating.
        """
        if not self.is_leaf:
            raise TapeError(f"require_grad: must be a leaf, not the result of an op ({self!r})")
        if not self.spec.is_float:
            raise DtypeError(f"require_grad: only float32 and float64 have gradients ({self!r})")
        if not self.wants_grad:
            self._value = new_value(self.spec, "leaf", "input", wants_grad=True)
        return self

    def retain_grad(self) -> "Tensor":
        """Let `backward` return the gradient of this tensor, even if it is not a leaf.

        Raises: TapeError if the tensor is not tracked.
        """
        if not self.wants_grad:
            raise TapeError(f"retain_grad: must be tracked ({self!r})")
        if self._made_by is not None:
            self._made_by.retained.add(self._value.index)
        return self

    def backward(self, *, retain_graph: bool = False) -> "EagerGradients":
        """Return the gradients of this tensor, as `backward` does."""
        return backward(self, retain_graph=retain_graph)

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise TapeError(
                f"tensor: the result of a tracked op cannot be copied; copy its inner() ({self!r})"
            )
        return _leaf, (self._inner, self.wants_grad)

    def __float__(self) -> float:
        return float(self._inner)

    def __repr__(self) -> str:
        return f"Tensor({self.spec}{', tracked' if self.wants_grad else ''})"

    def _apply(self, op: GradOp, *operands: Any) -> Any:
        accepted = Tensor, NoneType
        given = [x if isinstance(x, accepted) else from_inner(self._array(x)) for x in operands]
        tensors: tuple[Tensor | None, ...] = padded_operands(op, cast_scalars(op, given))
        for x in tensors:
            if x is not None and isinstance(x._inner, QuantizedArray):
                raise DtypeError(f"{op.name}: quantized arrays must be dequantized first ({x!r})")
        inferred = inferred_specs(op, tensors)
        arrays = [None if x is None else x._inner for x in tensors]
        outputs, work = run_forward(op, arrays, as_tuple(inferred))
        track = _tracking.get() and any(x is not None and x.wants_grad for x in tensors)
        specs = [Spec.of(y) for y in outputs]
        values = [new_value(s, op.name, "op", wants_grad=track and s.is_float) for s in specs]
        read = [None if x is None else x._value for x in tensors]
        made_by = None
        if track:
            pairs = [*zip(read, arrays, strict=True), *zip(values, outputs, strict=True)]
            parents = (x._made_by for x in tensors if x is not None)
            record = Record(op, tuple(read), tuple(values))
            made_by = save_for_backward(record, pairs, work, parents)
        results = tuple(Tensor(y, v, made_by) for y, v in zip(outputs, values, strict=True))
        return results if isinstance(inferred, tuple) else results[0]


def _leaf(inner: Array | QuantizedArray, wants_grad: bool) -> Tensor:
    leaf = from_inner(inner)
    return leaf.require_grad() if wants_grad else leaf


def from_inner(array: ArrayLike | QuantizedArray) -> Tensor:
    """Return an untracked tensor; copy the array only if it is not contiguous.

    Raises: DtypeError if the array does not hold numbers.
    """
    if isinstance(array, QuantizedArray):
        spec = Spec(array.shape, array.values.dtype)
        return Tensor(array, new_value(spec, "quantized", "input", wants_grad=False))
    inner = np.asarray(numeric(array, "from_inner"), order="C")
    return Tensor(inner, new_value(Spec.of(inner), "leaf", "input", wants_grad=False))


def backward(root: Tensor, *, retain_graph: bool = False) -> "EagerGradients":
    """Return the gradients of the sum of all entries of `root`.

    Unless `retain_graph` is set, the call frees the graph, so that no second call is possible.
    Raises: TapeError if the root is not tracked or an earlier call freed the graph.
    """
    if not isinstance(root, Tensor):
        raise TapeError(
            f"backward: needs a tensor (got {type(root).__name__}). Gradients are plain arrays; "
            f"for gradients of gradients, use Tape.gradient"
        )
    if not root.wants_grad:
        raise TapeError(f"backward: the root must be tracked; see require_grad ({root!r})")
    computations = computations_behind(root._made_by)
    arrays = leaf_gradients(computations, root._value)
    if not retain_graph:
        for computation in computations:
            computation.consume()
    return EagerGradients(arrays)


class EagerGradients(Uncopyable):
    """Gradients of leaves with `require_grad` and of results with `retain_grad`."""

    _instead = "belongs to its tensors; copy the arrays that grad() returns"

    def __init__(self, arrays: dict[int, Array]) -> None:
        self._arrays = arrays

    def grad(self, tensor: Tensor) -> Array | None:
        """Return the gradient of a tensor; None if the root does not depend on the tensor."""
        return self._arrays.get(tensor._value.index)

    def grad_remove(self, tensor: Tensor) -> Array | None:
        """Remove and return the gradient of a tensor; a second call returns None."""
        return self._arrays.pop(tensor._value.index, None)

    def grad_replace(self, tensor: Tensor, gradient: ArrayLike) -> None:
        """Set the gradient of a tensor.

        Raises: ShapeError or DtypeError unless `gradient` has the shape and dtype of the tensor.
        """
        array = numeric(gradient, "grad_replace")
        if array.shape != tensor.shape:
            raise ShapeError(f"grad_replace: must be {tensor.spec} (got {Spec.of(array)})")
        if array.dtype != tensor.dtype:
            raise DtypeError(f"grad_replace: must be {tensor.spec} (got {Spec.of(array)})")
        self._arrays[tensor._value.index] = array

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"EagerGradients({len(self)} arrays)"


class GradientAccumulator(Uncopyable):
    """A sum of gradients over several calls of `backward`, such as the parts of a large batch."""

    _instead = "belongs to its tensors; copy the arrays that grad() returns"

    def __init__(self) -> None:
        self._sums: dict[int, Array] = {}

    def accumulate(self, grads: EagerGradients) -> None:
        """Add the gradients of one call of `backward`, without changing `grads`."""
        for index, gradient in grads._arrays.items():
            if index in self._sums:
                np.add(self._sums[index], gradient, self._sums[index])
            else:
                self._sums[index] = gradient.copy()

    def grads(self) -> EagerGradients:
        """Return the sums, and reset the accumulator."""
        sums, self._sums = self._sums, {}
        return EagerGradients(sums)


@contextmanager
def no_grad() -> Iterator[None]:
    """Disable tracking in the ``with`` block, for the current thread or asyncio task."""
    token = _tracking.set(False)
    try:
        yield
    finally:
        _tracking.reset(token)
