"""Clipping by the global norm, against the formula and PyTorch."""

from math import inf, nan

import numpy as np
import pytest

from mlpengine import MeanSquaredError, Mlp, Sgd, TrainingStep
from mlpengine.core.errors import UsageError
from mlpengine.tape.norm import bind_clip


def gradients(dtype: str = "float64", scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal(50) * scale).astype(dtype)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gradients_are_scaled_as_by_the_formula(scale: float) -> None:
    grads = gradients(scale=scale)
    given, norm = grads.copy(), float(np.linalg.norm(grads))
    before, after = bind_clip(grads)(2.0)
    expected = given * min(1.0, 2.0 / (norm + 1e-6))
    np.testing.assert_allclose(grads, expected, rtol=1e-14)
    assert before == pytest.approx(norm, rel=1e-14)
    assert after == pytest.approx(np.linalg.norm(expected), rel=1e-14)


@pytest.mark.parametrize(
    ("limit", "value"),
    [(0.1, nan), (0.1, inf), (0.1, 0.0), (None, 1e3), (1e9, 1.0)],
)
def test_gradients_are_left_as_they_are(limit: float | None, value: float) -> None:
    """Without a limit, below it, and where the norm is not finite."""
    grads = gradients(scale=0.0 if value == 0.0 else 1.0)
    grads[3] = value
    given = grads.tobytes()
    before, after = bind_clip(grads)(limit)
    assert grads.tobytes() == given
    assert np.array_equal(before, after, equal_nan=True)


@pytest.mark.parametrize("limit", [0, -1.0, nan, inf, "1", True])
def test_a_limit_that_is_no_number_above_zero_is_refused(limit: object) -> None:
    mlp = Mlp([2, 1])
    with pytest.raises(UsageError, match="clip_norm"):
        TrainingStep(mlp, MeanSquaredError(), Sgd(mlp), 4, clip_norm=limit)
    with pytest.raises(UsageError, match="max_norm must be at least 0"):
        mlp.gradients(2).clip_global_norm_params(str(limit))
