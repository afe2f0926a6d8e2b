"""The vectorized functions of the generated code against float64, over all the range of floats."""

import ctypes
from importlib.resources import files

import numpy as np
import pytest
from scipy import special

import mlpengine.backends.compiled
from mlpengine.backends.compiled import native_target
from mlpengine.backends.compiled.cache import load

PROGRAM = """
typedef float real;
typedef int32_t bits;
#define REAL_IS_FLOAT
#define BYTES {size}
{headers}
void apply(const float *x, float *y, long count) {{
  for (long i = 0; i < count; i += LANES) store(y + i, {function}(load(x + i)));
}}
"""

FUNCTIONS = {
    "v_exp": (np.exp, 2.0),
    "v_expm1": (np.expm1, 2.0),
    "v_log": (np.log, 2.0),
    "v_tanh": (np.tanh, 2.0),
}
"""The function in float64, and the units in the last place that are promised."""


def compiled(function):
    folder = files(mlpengine.backends.compiled)
    headers = [folder.joinpath(f"{part}.h").read_text() for part in ("prelude", "float_math")]
    text = PROGRAM.format(
        size=native_target().vector_bytes, headers="\n".join(headers), function=function
    )
    apply = load("#include <stdint.h>\n" + text, native_target()).apply
    apply.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]

    def run(x):
        y = np.empty_like(x)
        apply(x.ctypes.data, y.ctypes.data, x.size)
        return y

    return run


def every(step):
    """Return each `step`th float from the smallest normal to the largest number, of both signs."""
    positive = np.arange(0x00800000, 0x7F800000, step, dtype=np.uint32).view("f4")
    both = np.concatenate([positive, -positive, np.zeros(2, "f4")])
    return np.resize(both, -(-both.size // 64) * 64)


def units_apart(ours, exact):
    """Return the error in units of the last place of the exact value, where it is normal."""
    with np.errstate(over="ignore", invalid="ignore"):
        place = np.spacing(np.abs(exact).astype("f4")).astype("f8")
        errors = np.abs(ours.astype("f8") - exact) / place
    return errors[(np.abs(exact) > np.finfo("f4").tiny) & (np.abs(exact) < np.finfo("f4").max)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_units_in_the_last_place(name):
    exact, promised = FUNCTIONS[name]
    x = every(997)
    if name == "v_log":
        x = np.abs(x)
    with np.errstate(all="ignore"):
        expected = exact(x.astype("f8"))
    errors = units_apart(compiled(name)(x), expected)
    assert errors.size > x.size / 20
    assert errors.max() <= promised


def test_a_worse_function_would_be_noticed():
    x = every(9973)
    with np.errstate(all="ignore"):
        rough = np.tanh(x.astype("f8")) * (1 + 4e-7)
    assert units_apart(rough.astype("f4"), np.tanh(x.astype("f8"))).max() > 2


def test_erfc_to_one_in_ten_million():
    x = np.linspace(0, 4, 64 * 2000).astype("f4")
    np.testing.assert_allclose(compiled("v_erfc")(x), special.erfc(x.astype("f8")), atol=1e-7)


@pytest.mark.parametrize("name", ["v_exp", "v_expm1", "v_log", "v_tanh"])
def test_ends_and_nan(name):
    x = np.resize(np.array([np.nan, np.inf, -np.inf, 0, -0.0], "f4"), 320)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name][0](x)
    np.testing.assert_array_equal(compiled(name)(x), expected)
