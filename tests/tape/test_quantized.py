"""Quantization to 8 bits against its formula."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mlpengine.core.errors import DtypeError, NumericalError, ShapeError
from mlpengine.tape import quantize

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_scale_and_zero_point_follow_the_formula(axis, dtype):
    x = (RNG.uniform(-1, 1, (5, 4)) * [1, 10, 0.1, 1000] + [0, 0, 0.2, -2000]).astype(dtype)
    q = quantize(x, axis=axis)
    assert q.values.dtype == q.zero_point.dtype == np.int8
    assert q.scale.dtype == dtype
    assert q.nbytes == 20 + q.scale.size * (q.scale.itemsize + 1)
    channels = [...] if axis is None else [np.s_[i : i + 1] for i in range(x.shape[axis])]
    for channel in channels:
        place = channel if axis in (None, 0) else (slice(None), channel)
        part = x[place].astype(np.float64)
        low, high = min(part.min(), 0), max(part.max(), 0)
        scale = (high - low) / 255
        zero = round(-128 - low / scale)
        np.testing.assert_allclose(q.scale[place].ravel(), scale, rtol=1e-6)
        assert q.zero_point[place].ravel().tolist() == [zero]
        expected = np.clip(np.rint(part / scale) + zero, -128, 127)
        assert np.abs(q.values[place] - expected).max() <= (dtype == "float32")


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(
        np.float64,
        arrays.array_shapes(max_dims=3, min_side=0),
        elements=st.floats(-1e6, 1e6),
    ),
    st.booleans(),
)
def test_each_entry_comes_back_to_half_a_step(x, per_channel):
    axis = x.ndim - 1 if per_channel else None
    q = quantize(x, axis=axis)
    assert q.shape == x.shape
    assert np.all(np.abs(q.dequantize() - x) <= q.scale * (0.5 + 1e-6))
    assert np.all(q.dequantize()[x == 0] == 0)  # zero is a step


def test_a_channel_of_its_own_keeps_small_entries():
    x = np.array([[1000.0, 0.001], [-1000.0, -0.002]])
    assert np.isfinite(quantize(x * 1e305).dequantize()).all()
    together, apart = (np.abs(quantize(x, axis=a).dequantize() - x) for a in (None, 1))
    assert together[:, 1].max() > 5e-4
    assert apart[:, 1].max() < 1e-5


@pytest.mark.parametrize(
    ("array", "options", "error", "message"),
    [
        (np.arange(3), {}, DtypeError, "quantize: dtype must be float32 or float64"),
        (np.array([1.0, np.nan]), {}, NumericalError, "every entry must be finite"),
        (np.ones((2, 2)), {"axis": 1.5}, ShapeError, r"no axis 1.5 \(shape \(2, 2\)\)"),
    ],
)
def test_what_cannot_be_quantized(array, options, error, message):
    with pytest.raises(error, match=message):
        quantize(array, **options)
