"""The operators and methods of nodes and eager tensors."""

from collections.abc import Hashable, Sequence
from math import log
from types import MethodType
from typing import Any

import numpy as np

from mlpengine import ops
from mlpengine.core.errors import DtypeError, TapeError
from mlpengine.core.spec import DTypeLike, floating
from mlpengine.tape import elementwise, functions
from mlpengine.tape.operand import Operand

Axes = int | tuple[int, ...] | None
IntOrPair = int | tuple[int, int]


class Expression(Operand):
    """Python operators and NumPy-like methods: ``((x @ w + b).tanh() ** 2).mean(axis=1)``.

    Every op is a method with the registry name of the op; only `cat` is a function, because it
    takes a list.  In the docstrings of the methods, x is the object itself.

    A Python number takes the dtype of the expression.  Arrays become constants and keep their
    dtype.  In element-wise ops, 0-d operands such as losses (float64) take the dtype of the other
    operands, or the widest dtype if all are 0-d.  Other dtypes must be equal; `cast` converts them.
    """

    def __neg__(self) -> Any:
        return self._apply(ops.Neg(), self)

    def __add__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarAdd(+other), self)  # True is 1
        return self._apply(ops.Add(), self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other if _is_number(other) else self._apply(ops.Add(), other, self)

    def __sub__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarAdd(-other), self)
        return self._apply(ops.Sub(), self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply(ops.Sub(), other, self)

    def __mul__(self, other: Any) -> Any:
        if _is_number(other):
            return self._apply(ops.ScalarMul(+other), self)
        return self._apply(ops.Mul(), self, other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if _is_number(other) else self._apply(ops.Mul(), other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._apply(ops.Div(), self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply(ops.Div(), other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._apply(_product(self, other), self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._apply(_product(other, self), other, self)

    def __pow__(self, exponent: Any) -> Any:
        if _is_number(exponent):
            return self._apply(ops.Pow(exponent), self)
        raise TapeError(
            f"pow: the exponent must be a number (got {exponent!r}); for a positive base write "
            "(base.log() * exponent).exp()"
        )

    def __rpow__(self, base: Any) -> Any:
        if _is_number(base) and base > 0:
            return (self * log(base)).exp()
        raise TapeError(f"pow: the base must be a positive number (got {base!r})")

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._apply(ops.Abs(), self)

    def __getitem__(self, key: Any) -> Any:
        return self._apply(ops.Slice(key), self)

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The transpose of x: its axes reversed."""
        return self._apply(ops.Transpose(), self)

    def __getattr__(self, name: str) -> Any:
        """Return the method of an element-wise op."""
        if name not in elementwise.names():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return MethodType(elementwise.method(name), self)

    def softmax(self, axis: int = -1) -> Any:
        """Return exp(x) / sum(exp(x)) along an axis."""
        return self._apply(ops.Softmax(axis), self)

    def log_softmax(self, axis: int = -1) -> Any:
        """Return the logarithm of softmax along an axis."""
        return self._apply(ops.LogSoftmax(axis), self)

    def where(self, a: Any, b: Any) -> Any:
        """Return `a` where x is true or not 0, and `b` elsewhere; all three broadcast."""
        return functions.where(self, a, b)

    def matmul(self, b: Any) -> Any:
        """Return the product of two matrices."""
        return self._apply(ops.MatMul(), self, b)

    def batch_matmul(self, b: Any) -> Any:
        """Return the matrix products over the leading axes, which broadcast."""
        return self._apply(ops.BatchMatMul(), self, b)

    def linear(self, w: Any, b: Any = None) -> Any:
        """Return x @ w.T + b, a dense layer; the shape of `w` is (out_dim, in_dim)."""
        return self._apply(ops.Linear(), self, w, b)

    def conv2d(
        self,
        w: Any,
        b: Any = None,
        *,
        stride: IntOrPair = 1,
        padding: IntOrPair = 0,
        dilation: IntOrPair = 1,
        groups: int = 1,
    ) -> Any:
        """Return the cross-correlation of images x and kernels `w` (shapes: `ops.Conv2d`)."""
        return self._apply(ops.Conv2d(stride, padding, dilation, groups), self, w, b)

    def max_pool2d(
        self, kernel: IntOrPair, *, stride: IntOrPair | None = None, padding: IntOrPair = 0
    ) -> Any:
        """Return the largest entry under each window; the default stride is the kernel size."""
        return self._apply(ops.MaxPool2d(kernel, stride, padding), self)

    def transpose(self, *axes: Any) -> Any:
        """Return x with its axes in another order, by default reversed: ``x.transpose(1, 0)``."""
        order = axes[0] if len(axes) == 1 and np.iterable(axes[0]) else axes
        return self._apply(ops.Transpose(tuple(order) if order else None), self)

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Return the sum over `axis`; None means all axes."""
        return self._apply(ops.Sum(axis, keepdims), self)

    def mean(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Return the mean over `axis`; None means all axes."""
        return self._apply(ops.Mean(axis, keepdims), self)

    def var(self, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
        """Return the variance over `axis`, sum((x - mean)**2) / (n - ddof)."""
        return self._apply(ops.Var(axis, keepdims, ddof), self)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Return the maximum over `axis`; the first of equal entries gets the gradient."""
        return self._apply(ops.Max(axis, keepdims), self)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Return the minimum over `axis`; the first of equal entries gets the gradient."""
        return self._apply(ops.Min(axis, keepdims), self)

    def logsumexp(self, axis: Axes = None, *, keepdims: bool = False) -> Any:
        """Return log(sum(exp(x))) over `axis`; None means all axes."""
        return self._apply(ops.LogSumExp(axis, keepdims), self)

    def reshape(self, *shape: Any) -> Any:
        """Return x in another shape, as in ``x.reshape(2, -1)``; one length may be -1."""
        sizes = shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape
        return self._apply(ops.Reshape(tuple(sizes)), self)

    def cast(self, dtype: DTypeLike) -> Any:
        """Return x in another floating dtype."""
        try:
            kind = floating(dtype, "cast")
        except DtypeError as error:
            advice = "in a network, declare integer inputs as inputs={'tokens': ('int64', 16)}"
            raise DtypeError(f"{error}; {advice}") from None
        return self._apply(ops.Cast(kind.name), self)

    def detach(self) -> Any:
        """Return x as a value that no gradient flows through."""
        return self._apply(ops.Detach(), self)

    def chunk(self, parts: int, axis: int = 0) -> Any:
        """Return a tuple of equal parts along an axis."""
        return self._apply(ops.Chunk(parts, axis), self)

    def slice(self, key: Any) -> Any:
        """Return x[key]; the key may have integers, slices, an ellipsis and None."""
        return self._apply(ops.Slice(key), self)

    def gather(self, index: Any, axis: int) -> Any:
        """Return the entries of x at `index` along an axis, as in `numpy.take_along_axis`."""
        return self._apply(ops.Gather(axis), self, index)

    def index_select(self, index: Any, axis: int = 0) -> Any:
        """Return the slices of x at a 1-D `index` along an axis, as in `numpy.take`."""
        return self._apply(ops.IndexSelect(axis), self, index)

    def embedding(self, index: Any) -> Any:
        """Return x[index]: x is a matrix, and `index` is an integer array of any shape."""
        return self._apply(ops.Embedding(), self, index)

    def struct_field(self, field: int, fields: int | Sequence[int], axis: int = -1) -> Any:
        """Return field number `field` of x; `fields` is the number of fields, or their sizes."""
        sizes = fields if isinstance(fields, int) else tuple(fields)
        return self._apply(ops.StructField(field, sizes, axis), self)

    def map_lookup(
        self,
        key: Hashable,
        keys: int | Sequence[Hashable],
        *,
        sizes: Sequence[int] | None = None,
        axis: int = -1,
    ) -> Any:
        """Return the value for `key`; x is the concatenation of the values for all `keys`."""
        known = keys if isinstance(keys, int) else tuple(keys)
        lengths = None if sizes is None else tuple(sizes)
        return self._apply(ops.MapLookup(key, known, lengths, axis), self)

    def layer_norm(self, scale: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
        """Return x, normalized over its last axis, times `scale`, plus `bias`."""
        return self._apply(ops.LayerNorm(eps), self, scale, bias)

    def batch_norm(
        self,
        scale: Any = None,
        bias: Any = None,
        *,
        running: ops.RunningStatistics | None = None,
        training: bool = True,
        eps: float = 1e-5,
    ) -> Any:
        """Return x, normalized per feature over the batch, times `scale`, plus `bias`."""
        return self._apply(ops.BatchNorm(running, training, eps), self, scale, bias)

    def dropout(self, rate: float, rng: np.random.Generator) -> Any:
        """Return x with entries set to 0 at random; the others are multiplied by 1 / (1 - rate)."""
        return self._apply(ops.Dropout(rate, ops.Philox.drawn(rng)), self)

    def ssm_scan(self, b: Any, x: Any, h0: Any = None) -> Any:
        """Return all h_t = self_t * h_(t-1) + b_t * x_t, with shapes (..., time, channels)."""
        return self._apply(ops.SsmScan(), self, b, x, h0)

    def softmax_cross_entropy(
        self,
        target: Any,
        weight: Any = None,
        *,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int | None = None,
    ) -> Any:
        """Return the mean of -log(softmax(x)[target]), in nats."""
        weights = None if class_weights is None else tuple(class_weights)
        op = ops.SoftmaxCrossEntropy(weights, label_smoothing, ignore_index)
        return self._apply(op, self, target, weight)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.floating | np.integer)


def _product(a: Any, b: Any) -> ops.GradOp:
    return ops.MatMul() if np.ndim(a) == np.ndim(b) == 2 else ops.BatchMatMul()
