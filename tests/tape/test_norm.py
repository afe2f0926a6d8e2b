"""The global norm against exact sums, at every magnitude."""

from itertools import product
from math import fsum, inf, nan, sqrt

import numpy as np
import pytest

from mlpengine.core.errors import ShapeError
from mlpengine.core.spec import Array
from mlpengine.tape.norm import CHUNK, GlobalNorm

SIZES = [1, 13, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 5]
RTOL = {"float32": 2e-7, "float64": 1e-14}
every_size = pytest.mark.parametrize("size", SIZES)
every_float = pytest.mark.parametrize("dtype", list(RTOL))


def exact(vector: Array) -> float:
    """Return the norm in float64, scaled by a power of two and summed without rounding."""
    values = vector.astype(np.float64)
    exponent = int(np.frexp(np.abs(values).max())[1])
    total = fsum(np.ldexp(values, -exponent) ** 2)
    return float(np.ldexp(sqrt(total), exponent))


def vector(size: int, dtype: str, scale: float) -> Array:
    values = np.random.default_rng(size).standard_normal(size)
    return (values * scale).astype(dtype)


SCALES = (1e-37, 1e-30, 1e-20, 1e-10, 1.0, 1e10, 1e20, 1e30, 1e36)
LIMITS = (1e-320, 1e-300, 1e-160, 1e150, 1e160, 1e300)


@every_size
@pytest.mark.parametrize(("dtype", "scales"), [("float32", SCALES), ("float64", SCALES + LIMITS)])
def test_norm_is_right_at_every_magnitude(size: int, dtype: str, scales: tuple[float, ...]) -> None:
    for scale in scales:
        flat = vector(size, dtype, scale)
        assert GlobalNorm(flat)() == pytest.approx(exact(flat), rel=RTOL[dtype], abs=0.0), scale


@every_float
def test_magnitudes_may_differ_within_a_vector(dtype: str) -> None:
    flat = vector(4 * CHUNK, dtype, 1.0)
    for chunk, scale in enumerate((1e-30, 1e25, 1e24, 1.0)):
        flat[chunk * CHUNK : (chunk + 1) * CHUNK] *= np.dtype(dtype).type(scale)
    assert GlobalNorm(flat)() == pytest.approx(exact(flat), rel=RTOL[dtype])


@every_float
def test_zero_is_zero(dtype: str) -> None:
    for size in (0, *SIZES):
        assert GlobalNorm(np.zeros(size, dtype))() == 0.0


@every_size
@every_float
def test_not_finite_stays_not_finite(size: int, dtype: str) -> None:
    for bad, place in product((inf, -inf, nan), {0, size // 2, size - 1}):
        flat = vector(size, dtype, 1.0)
        flat[place] = bad
        assert GlobalNorm(flat)() == pytest.approx(abs(bad), nan_ok=True), (bad, place)


def test_largest_norm_is_infinite_only_if_no_float_holds_it() -> None:
    assert GlobalNorm(np.full(2, np.finfo("f8").max))() == inf
    assert GlobalNorm(np.full(4, np.finfo("f4").max, "f4"))() == pytest.approx(6.80564693277e38)


@every_size
def test_vector_is_read_at_each_call_and_never_written(size: int) -> None:
    flat = np.zeros(size, np.float32)
    norm = GlobalNorm(flat)
    flat[...] = 1e30
    before = flat.tobytes()
    flat.flags.writeable = False
    assert norm() == pytest.approx(1e30 * sqrt(size), rel=1e-6)
    assert flat.tobytes() == before


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros(8)[::2], np.float32(1) * np.ones(())])
def test_vector_must_be_one_contiguous_dimension(array: Array) -> None:
    with pytest.raises(ShapeError, match=r"^global norm: needs one contiguous dimension"):
        GlobalNorm(array)
