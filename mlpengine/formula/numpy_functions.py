"""NumPy calls for constants, masks, and functions that are missing or slow in NumPy.

A function with a parameter `out` yields bound calls that write its value into `out`.  `out` may be
the first array argument, unless the docstring forbids it, but must not overlap another argument.
"""

from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from mlpengine.core.buffers import address_of
from mlpengine.core.spec import Array, Calls, call

CONSTANT_LENGTH = 16384
"""Maximum number of entries of an array filled with a constant: 64 kB of float32 fit into cache.

Much shorter arrays are slower, because NumPy then runs one short loop for each of many rows."""


def constant_like(value: float, like: Array) -> Array:
    """Return `value` as a 0-d array with the dtype of `like`; ufuncs are slower with a float."""
    with np.errstate(over="ignore"):
        return np.array(value, like.dtype)


def bounded(extremum: np.ufunc, x: Array, bound: float, out: Array) -> Calls:
    """Compute np.maximum or np.minimum (`extremum`) of `x` and `bound`; NaN stays NaN.

    For float32, the bound is passed as an array, because NumPy does not vectorize a 0-d bound.
    """
    n = _row_length(x.size)
    plain = x.flags.c_contiguous and out.flags.c_contiguous and x.shape == out.shape
    if x.dtype == np.float32 and n and plain:
        shape = (n,) if n == x.size else (x.size // n, n)
        yield call(extremum, x.reshape(shape), _row(bound, n), out=out.reshape(shape))
    else:
        yield call(extremum, x, constant_like(bound, x), out=out)


def _row_length(size: int) -> int:
    """Return the largest divisor of `size` up to `CONSTANT_LENGTH`; 0 if it would be too small."""
    if size <= CONSTANT_LENGTH:
        return size
    return next(
        (n for n in range(CONSTANT_LENGTH, CONSTANT_LENGTH // 16 - 1, -1) if size % n == 0), 0
    )


@lru_cache(maxsize=64)
def _row(value: float, n: int) -> Array:
    row = np.full(n, value, np.float32)
    row.flags.writeable = False
    return row


def copied(source: Array, out: Array) -> Calls:
    """Copy `source` into `out`, unless both are the same buffer."""
    if address_of(source) != address_of(out):
        yield call(np.copyto, out, source)


_BITS: dict[int, np.dtype[np.integer[Any]]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def bits(x: Array) -> Array:
    """Return a view of floats as integers of the same size."""
    return x.view(_BITS[x.dtype.itemsize])


def masked(x: Array, mask: Array, out: Array) -> Calls:
    """Compute x where the bool `mask` is true, and 0 elsewhere, even for infinities and NaN.

    The bits of x are multiplied by the mask as integers, because the float 0 * inf would be NaN.
    np.where and np.copyto(where=) are much slower, because they branch at every entry.
    """
    yield call(np.multiply, bits(x), mask, bits(out))


def chosen(mask: Array, a: Array, b: Array, out: Array) -> Calls:
    """Compute `a` where the bool `mask` is true, and `b` elsewhere.

    The bits b ^ ((a ^ b) * mask) are much faster than np.where.  `out` may be `a`, but not `b`.
    """
    y = bits(out)
    yield call(np.bitwise_xor, bits(a), bits(b), y)
    yield call(np.multiply, y, mask, y)
    yield call(np.bitwise_xor, y, bits(b), y)


def select(mask: Array, a: Array | float, b: Array | float, out: Array) -> Calls:
    """Compute `a` where `mask` is true, and `b` elsewhere; `out` may be `a`, but not `b`."""
    if isinstance(a, float) and isinstance(b, float) and isfinite(a - b):
        yield call(np.multiply, mask, constant_like(a - b, out), out)
        if b:
            yield call(np.add, out, constant_like(b, out), out)
    elif isinstance(a, np.ndarray) and isinstance(b, float) and repr(b) == "0.0":
        yield from masked(a, mask, out)
    else:
        arrays = [constant_like(x, out) if isinstance(x, float) else x for x in (a, b)]
        yield from chosen(mask, arrays[0], arrays[1], out)


def clip(x: Array, low: float, high: float, out: Array) -> Calls:
    """Compute min(max(x, low), high); NaN stays NaN."""
    yield call(x.clip, constant_like(low, x), constant_like(high, x), out)


def logistic(x: Array, out: Array, workspace: Array) -> Calls:
    """Compute 1 / (1 + exp(-x)) as e / (1 + e), with e = exp(min(x, bound)) to keep e finite."""
    limit = float(np.floor(np.log(np.finfo(x.dtype).max)))
    yield from bounded(np.minimum, x, limit, out)
    yield call(np.exp, out, out)
    yield call(np.add, out, constant_like(1.0, x), workspace)
    yield call(np.divide, out, workspace, out)


def softplus(x: Array, out: Array, workspace: Array, more: Array) -> Calls:
    """Compute log(1 + exp(x)) = max(x, 0) + log(1 + exp(-abs(x))); `out` must not be `x`."""
    yield from log1p_exp_of_minus_abs(x, out, workspace, more)
    yield from bounded(np.maximum, x, 0.0, workspace)
    yield call(np.add, out, workspace, out)


def log1p_exp_of_minus_abs(x: Array, out: Array, workspace: Array, more: Array) -> Calls:
    """Compute log(1 + exp(-abs(x))) with a small relative error; `out` must not be `x`.

    With e = exp(-abs(x)) and the rounded sum u = 1 + e, the value is log(u) + (e - (u - 1)) / u.
    The second term corrects the rounding of u.  In float32, these eight calls are faster than
    np.log1p, because NumPy does not vectorize np.log1p.
    Source: the correction c / u of FreeBSD's s_log1p.c (Sun Microsystems 1993).
    """
    one = constant_like(1.0, x)
    integers = bits(x)
    sign = np.array(np.iinfo(integers.dtype).min, integers.dtype)
    yield call(np.bitwise_or, integers, sign, bits(workspace))  # -abs(x)
    yield call(np.exp, workspace, workspace)  # e
    yield call(np.add, workspace, one, out)  # u
    yield call(np.subtract, out, one, more)
    yield call(np.subtract, workspace, more, workspace)
    yield call(np.divide, workspace, out, workspace)  # (e - (u - 1)) / u
    yield call(np.log, out, out)
    yield call(np.add, out, workspace, out)


def expm1_below_0(x: Array, factor: float, out: Array, workspace: Array) -> Calls:
    """Compute factor * (exp(x) - 1) for x <= 0.

    In float32, exp(x) - 1 is computed as 2 t / (1 - t) with t = tanh(x / 2).  This loses no digits
    near 0, and is faster than np.expm1, because NumPy does not vectorize np.expm1.
    """
    if x.dtype == np.float32:
        yield call(np.multiply, x, constant_like(0.5, x), out)
        yield call(np.tanh, out, out)
        yield call(np.subtract, constant_like(1.0, x), out, workspace)
        yield call(np.divide, out, workspace, out)
        factor *= 2
    else:
        yield call(np.expm1, x, out)
    if factor != 1:
        yield call(np.multiply, out, constant_like(factor, x), out)


# NumPy has no erf.  For z >= 0, the normal distribution function is approximated by
# Phi(-z) = exp(-z**2 / 2) P(u) with u = (z - 4) / (z + 4).  Remez' algorithm with 40 digits gave
# the polynomial P with the smallest maximal error of Phi(-z) for 0 <= z <= 9.  This error is 2e-17
# (float64) or 6e-10 (float32).  For larger z the exponential dominates.  The substitution u is from
# Shepherd and Laframboise 1981, Mathematics of Computation 36, p. 249.
_CENTER = 4.0
TAIL_SINGLE = (
    0.000517948884, -0.0005045072227, -0.01008151466, 0.02960110124, -0.07228264662,
    0.1242295895, -0.1704180492, 0.09440955432,
)  # fmt: skip
TAIL_DOUBLE = (
    -2.937582190108851e-07, -2.1702928440787017e-06, -4.53476373343744e-06,
    6.719493309597361e-06, 3.2466482329984035e-05, -4.181450784089393e-05,
    -0.00018477121180645199, 0.0006398940389323332, 0.0005078998182259286,
    -0.0084920233526665, 0.030864814028916717, -0.0717074065740202, 0.12437925535760685,
    -0.17039772154963587, 0.09441064130191382,
)  # fmt: skip
"""Coefficients of P, highest power first."""

TAIL_END = {4: 14.5, 8: 39.0}
"""A z for which exp(-z**2 / 2) is 0 in float32 (4 bytes) or float64 (8 bytes)."""


def normal_tail(z: Array, out: Array, u: Array) -> Calls:
    """Write Phi(-z) into `out` and exp(-z**2 / 2) into `u`; the arrays must not overlap.

    All z must be from 0 to `TAIL_END`.
    """
    yield call(np.add, z, constant_like(_CENTER, z), u)
    yield call(np.divide, constant_like(2 * _CENTER, z), u, u)
    yield call(np.subtract, constant_like(1.0, z), u, u)
    first, second, *others = TAIL_SINGLE if z.dtype == np.float32 else TAIL_DOUBLE
    yield call(np.multiply, u, constant_like(first, z), out)
    yield call(np.add, out, constant_like(second, z), out)
    for coefficient in others:
        yield call(np.multiply, out, u, out)
        yield call(np.add, out, constant_like(coefficient, z), out)
    yield call(np.square, z, u)
    yield call(np.multiply, u, constant_like(-0.5, z), u)
    yield call(np.exp, u, u)
    yield call(np.multiply, out, u, out)


def normal_cdf(x: Array, out: Array, workspace: Array, more: Array, mask: Array) -> Calls:
    """Compute Phi(x) as Phi(-z) for x < 0, else 1 - Phi(-z), z = abs(x); `out` must not be `x`."""
    z, tail = out, more
    yield call(np.abs, x, z)
    yield from bounded(np.minimum, z, TAIL_END[x.itemsize], z)
    yield from normal_tail(z, tail, workspace)
    yield call(np.greater, x, constant_like(0.0, x), mask)
    yield call(np.subtract, constant_like(1.0, x), tail, out)
    yield from chosen(mask, out, tail, out)


def power(x: Array, exponent: float | Array, out: Array) -> Calls:
    """Compute x**exponent; x**3 is two products, because np.power is slower."""
    if isinstance(exponent, np.ndarray):
        yield call(np.power, x, exponent, out)
    elif exponent == 3:
        yield call(np.square, x, out)
        yield call(np.multiply, out, x, out)
    else:
        yield call(np.power, x, constant_like(exponent, x), out)
