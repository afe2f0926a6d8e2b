"""Linear algebra, reductions, shapes, indexing, normalization, sequences and losses.

Each applies one op, by its name in the registry, to nodes or tensors; the op's docstring describes
shapes and edge cases.  Optional operands may be left out or None.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from mlpengine import ops
from mlpengine.core.spec import DTypeLike, floating
from mlpengine.tape.operand import X, apply, unary

Axes = int | tuple[int, ...] | None
IntOrPair = int | tuple[int, int]


def matmul(a: Any, b: Any) -> Any:
    """Return the product of two matrices."""
    return apply(ops.MatMul(), a, b)


def batch_matmul(a: Any, b: Any) -> Any:
    """Return the products of matrices over leading axes, broadcast."""
    return apply(ops.BatchMatMul(), a, b)


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """Return x @ w.T + b: a dense layer, w being (out_dim, in_dim)."""
    return apply(ops.Linear(), x, w, b)


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: IntOrPair = 1,
    padding: IntOrPair = 0,
    dilation: IntOrPair = 1,
    groups: int = 1,
) -> Any:
    """Return the images x correlated with the kernels w (out, in / groups, height, width)."""
    return apply(ops.Conv2d(stride, padding, dilation, groups), x, w, b)


def max_pool2d(
    x: X, kernel: IntOrPair, *, stride: IntOrPair | None = None, padding: IntOrPair = 0
) -> X:
    """Return the largest entry under each window; the stride is the kernel's size by default."""
    return unary(ops.MaxPool2d(kernel, stride, padding), x)


def transpose(x: X, *axes: Any) -> X:
    """Return x with its axes permuted, given one by one or as a tuple; by default reversed."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return unary(ops.Transpose(tuple(order) if order else None), x)


def sum(x: X, axis: Axes = None, *, keepdims: bool = False) -> X:
    """Return the sum over all axes, one or several."""
    return unary(ops.Sum(axis, keepdims), x)


def mean(x: X, axis: Axes = None, *, keepdims: bool = False) -> X:
    """Return the mean over all axes, one or several."""
    return unary(ops.Mean(axis, keepdims), x)


def var(x: X, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> X:
    """Return the variance over all axes, one or several: squares summed, over n - ddof."""
    return unary(ops.Var(axis, keepdims, ddof), x)


def max(x: X, axis: Axes = None, *, keepdims: bool = False) -> X:
    """Return the largest entry over all axes, one or several; the first gets the gradient."""
    return unary(ops.Max(axis, keepdims), x)


def min(x: X, axis: Axes = None, *, keepdims: bool = False) -> X:
    """Return the smallest entry over all axes, one or several; the first gets the gradient."""
    return unary(ops.Min(axis, keepdims), x)


def logsumexp(x: X, axis: Axes = None, *, keepdims: bool = False) -> X:
    """Return log(sum(e**x)) over all axes, one or several."""
    return unary(ops.LogSumExp(axis, keepdims), x)


def reshape(x: X, *shape: Any) -> X:
    """Return x in another shape, given number by number or as a tuple; one may be -1."""
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return unary(ops.Reshape(tuple(sizes)), x)


def cast(x: X, dtype: DTypeLike) -> X:
    """Return x in another floating dtype."""
    return unary(ops.Cast(floating(dtype, "cast").name), x)


def detach(x: X) -> X:
    """Return x, through which no gradient flows."""
    return unary(ops.Detach(), x)


def cat(values: Sequence[Any], axis: int = 0) -> Any:
    """Return the values joined along an existing axis."""
    shapes = [np.shape(v) for v in values]
    constant = [i for i, v in enumerate(values) if not getattr(v, "wants_grad", False)]
    scattered = bool(constant) and constant[-1] - constant[0] >= len(constant)
    fits = all(-len(s) <= axis < len(s) for s in shapes)
    fixed = fits and any(axis % len(s) for s in shapes)  # the batch may have another length
    sizes = tuple(s[axis] for s in shapes) if fixed or (fits and scattered) else None
    return apply(ops.Cat(axis, sizes), *values)


def chunk(x: X, parts: int, axis: int = 0) -> tuple[X, ...]:
    """Return equal parts along an axis, as a tuple."""
    pieces: tuple[X, ...] = apply(ops.Chunk(parts, axis), x)
    return pieces


def slice(x: X, key: Any) -> X:
    """Return x[key], the key being made of integers, slices, an ellipsis and None."""
    return unary(ops.Slice(key), x)


def gather(x: Any, index: Any, axis: int) -> Any:
    """Return entries along an axis by an integer array of the same rank."""
    return apply(ops.Gather(axis), x, index)


def index_select(x: Any, index: Any, axis: int = 0) -> Any:
    """Return slices along an axis by a 1-D integer array."""
    return apply(ops.IndexSelect(axis), x, index)


def embedding(weight: Any, index: Any) -> Any:
    """Return rows of a weight by an integer array of any shape."""
    return apply(ops.Embedding(), weight, index)


def struct_field(x: X, field: int, fields: int | Sequence[int], axis: int = -1) -> X:
    """Return one field of a record stored as a concatenation of `fields` (or of those sizes)."""
    return unary(
        ops.StructField(field, fields if isinstance(fields, int) else tuple(fields), axis), x
    )


def map_lookup(
    x: X,
    key: Hashable,
    keys: int | Sequence[Hashable],
    *,
    sizes: Sequence[int] | None = None,
    axis: int = -1,
) -> X:
    """Return one value of an ordered mapping stored as a concatenation of its values."""
    known = keys if isinstance(keys, int) else tuple(keys)
    return unary(ops.MapLookup(key, known, None if sizes is None else tuple(sizes), axis), x)


def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Return x normalized over its last axis, times scale, plus bias."""
    return apply(ops.LayerNorm(eps), x, scale, bias)


def batch_norm(
    x: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    running: ops.RunningStatistics | None = None,
    training: bool = True,
    eps: float = 1e-5,
) -> Any:
    """Return x normalized per feature over the batch, times scale, plus bias."""
    return apply(ops.BatchNorm(running, training, eps), x, scale, bias)


def dropout(x: X, rate: float, rng: np.random.Generator) -> X:
    """Return x with entries dropped at a rate and the others scaled up; for training only."""
    return unary(ops.Dropout(rate, ops.Philox.drawn(rng)), x)


def ssm_scan(a: Any, b: Any, x: Any, h0: Any = None) -> Any:
    """Return every state of h_t = a_t * h_(t-1) + b_t * x_t, over (..., time, channels)."""
    return apply(ops.SsmScan(), a, b, x, h0)


def softmax_cross_entropy(
    output: Any,
    target: Any,
    weight: Any = None,
    *,
    class_weights: Sequence[float] | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Any:
    """Return the mean of -log softmax(output)[target], in nats."""
    weights = None if class_weights is None else tuple(class_weights)
    op = ops.SoftmaxCrossEntropy(weights, label_smoothing, ignore_index)
    return apply(op, output, target, weight)
