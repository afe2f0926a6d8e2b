"""The vectorized functions of the generated code against a wider type, over all floats."""

import ctypes
from functools import cache
from importlib.resources import files
from itertools import product

import numpy as np
import pytest
from scipy import special

import mlpengine.backends.compiled
from mlpengine.backends.compiled.cache import available_targets, load_library

FUNCTIONS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "expm1_below_0": np.expm1,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "erfc": special.erfc,
}
IN_PLACES = {
    **dict.fromkeys(["exp", "expm1", "expm1_below_0", "log", "tanh"], 0),
    "sigmoid": 1,
}
"""Those with a small relative error, and its units in the last place beyond `promised`."""

TYPES = {
    "f4": ("float", "int32_t", "#define REAL_IS_FLOAT", "float_math"),
    "f8": ("double", "int64_t", "", "double_math"),
}
WIDER = {"f4": np.float64, "f8": np.longdouble}
TARGETS = {target.level: target for target in available_targets()}
LARGEST_ERROR = {"f4": 1.25e-7, "f8": 1e-15}
"""Largest error of the functions with values up to 1."""


def promised(dtype, level, name):
    """Return units in the last place; without a wider type, NumPy's own error is among them."""
    fuses = TARGETS[level].fuses or name != "tanh"
    exact = WIDER[dtype] is np.float64 or np.finfo(np.longdouble).nmant > 60
    return 2.0 if fuses and exact else 3.0


VECTORS = {
    "zero_small": lambda x: np.where(np.abs(x) < x.dtype.type(0.3), 0, x),
    "raise_to": lambda x: np.where(x < x.dtype.type(0.3), x.dtype.type(0.3), x),
}
"""The effect of flushes with 0.3 on a part of a vector."""


@cache
def program(dtype, level):
    real, bits, define, header = TYPES[dtype]
    folder = files(mlpengine.backends.compiled)
    text = [
        f"#include <stdint.h>\ntypedef {real} real;\ntypedef {bits} bits;",
        f"#define BYTES {TARGETS[level].vector_bytes}\n{define}",
        *(
            folder.joinpath(f"{part}.h").read_text()
            for part in ("prelude", header, "rules", "update")
        ),
    ]
    text += (
        f"void apply_{name}(real *x, double y, int64_t first, int64_t last) "
        f"{{ {name}(x, (real)y, first, last); }}"
        for name in VECTORS
    )
    for name in FUNCTIONS:
        text.append(f"void apply_{name}(const real *x, real *y, int64_t count) {{")
        text.append("for (int64_t i = 0; i < count; i += LANES)")
        text.append(f"store(y + i, v_{name}(load(x + i)));")
        text.append("}")
    return load_library("\n".join(text) + "\n", TARGETS[level])


def applied(dtype, level, name, x):
    apply = getattr(program(dtype, level), f"apply_{name}")
    apply.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    padded = np.resize(x, -(-x.size // 16) * 16)
    y = np.empty_like(padded)
    apply(padded.ctypes.data, y.ctypes.data, y.size)
    return y[: x.size]


@cache
def numbers(dtype):
    """Return floats of every size from the smallest normal to the largest, and denser ranges."""
    unsigned, info = {"f4": np.uint32, "f8": np.uint64}[dtype], np.finfo(dtype)
    ends = np.array([info.tiny, info.max], dtype).view(unsigned)
    powers = np.linspace(0, 1, 100_000, endpoint=False)
    positive = (ends[0] + (powers * float(ends[1] - ends[0])).astype(unsigned)).view(dtype)
    rng = np.random.default_rng(0)
    overflow = float(np.log(info.max))
    dense = [rng.uniform(-end, end, 50_000).astype(dtype) for end in (0.7, 4, 50, 1.1 * overflow)]
    edges = np.arange(-200, 200) * np.log(2) / 2  # where the nearest power of two changes
    return np.concatenate(
        [positive, -positive, *dense, edges.astype(dtype), [0, 1, -1, 0.0605222657]], dtype=dtype
    )


def arguments(name, dtype):
    x = numbers(dtype)
    return {"log": np.abs, "erfc": np.abs, "expm1_below_0": lambda x: -np.abs(x)}.get(
        name, np.asarray
    )(x)


def units_apart(ours, exact, dtype):
    """Return the error in units of the last place of the exact value, where it is normal."""
    info = np.finfo(dtype)
    normal = (np.abs(exact) > info.tiny) & (np.abs(exact) < info.max)
    place = np.spacing(np.abs(exact[normal]).astype(dtype))
    return np.abs(ours[normal] - exact[normal]) / place


each_type = pytest.mark.parametrize("dtype", TYPES)


@each_type
def test_units_in_the_last_place(dtype):
    for name, more in IN_PLACES.items():
        x = arguments(name, dtype)
        with np.errstate(all="ignore"):
            exact = FUNCTIONS[name](x.astype(WIDER[dtype]))
        for level in TARGETS:
            errors = units_apart(applied(dtype, level, name, x), exact, dtype)
            assert errors.size > x.size / 4
            assert errors.max() <= promised(dtype, level, name) + more, (name, level)


@each_type
def test_small_errors_of_the_largest_value(dtype):
    for name in ("sin", "cos", "erfc"):
        x = arguments(name, dtype)
        with np.errstate(over="ignore"):
            exact = FUNCTIONS[name](x.astype(np.float64 if name == "erfc" else WIDER[dtype]))
        for level in TARGETS:
            ours, what = applied(dtype, level, name, x), f"{name}, {level}"
            atol = LARGEST_ERROR[dtype]
            np.testing.assert_allclose(ours, exact, rtol=0, atol=atol, err_msg=what)


@each_type
def test_ends_and_nan(dtype):
    info = np.finfo(dtype)
    for name, level in product(FUNCTIONS, TARGETS):
        tiny = [] if name == "log" else [info.smallest_subnormal, -info.smallest_subnormal]
        x = np.array([np.nan, np.inf, 0, -0.0, info.max, *tiny, -np.inf, -info.max], dtype)
        if name == "erfc":
            x = x[:5]
        if name == "expm1_below_0":
            x = np.where(x > 0, 0, x)
        with np.errstate(all="ignore"):
            expected = FUNCTIONS[name](x)
        ours, what = applied(dtype, level, name, x), f"{name}, {level}"
        np.testing.assert_allclose(ours, expected, rtol=4 * info.eps, atol=0, err_msg=what)


@each_type
def test_parts_of_vectors(dtype):
    x = np.random.default_rng(0).standard_normal(70).astype(dtype)
    x[[5, 17, 18, 19, 35]] = np.nan, -0.0, 0.3, -0.3, -np.inf
    parts = [(0, 70), (1, 70), (3, 4), (5, 5), (7, 40), (2, 34), (3, 66)]
    for name, level, (first, last) in product(VECTORS, TARGETS, parts):
        apply = getattr(program(dtype, level), f"apply_{name}")
        apply.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_int64, ctypes.c_int64]
        part = slice(first, last)
        ours, expected = x.copy(), x.copy()
        apply(ours.ctypes.data, 0.3, first, last)
        expected[part] = VECTORS[name](x[part])
        np.testing.assert_array_equal(ours, expected, err_msg=f"{name}, {level}")
