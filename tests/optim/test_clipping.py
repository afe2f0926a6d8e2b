"""Clipping rules against formulas, NumPy's percentile and PyTorch; what all of them promise."""

from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from traced import least_peak

from mlpengine.core.errors import CheckpointError, ShapeError, UsageError
from mlpengine.core.spec import Array
from mlpengine.optim import AdaptiveClip, NormClip, PercentileClip
from mlpengine.tape.flat import Flat

SHAPES = {"0.weight": (6, 4), "0.bias": (6,), "2.weight": (2, 6), "2.bias": (2,), "scale": ()}
RULES = [lambda: NormClip(1.0), lambda: PercentileClip(50), lambda: AdaptiveClip(0.01)]
every_rule = pytest.mark.parametrize("make", RULES)


def make_flat(seed: int, dtype: str = "float64", scale: float = 1.0) -> Flat:
    rng = np.random.default_rng(seed)
    arrays = {n: np.asarray(rng.standard_normal(s) * scale, dtype) for n, s in SHAPES.items()}
    return Flat.pack(arrays)


# By norm


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_norm_clip_equals_the_formula(scale: float) -> None:
    params, grads = make_flat(0), make_flat(1, scale=scale)
    given, norm = grads.flat.copy(), float(np.linalg.norm(grads.flat))
    before, after = NormClip(2.0).bind(params, grads)()
    expected = given * min(1.0, 2.0 / (norm + 1e-6))
    np.testing.assert_allclose(grads.flat, expected, rtol=1e-14)
    assert before == pytest.approx(norm, rel=1e-14)
    assert after == pytest.approx(np.linalg.norm(expected), rel=1e-14)


@pytest.mark.torch
def test_norm_clip_equals_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: formula only")
    grads = make_flat(1)
    parameter = torch.nn.Parameter(torch.zeros(len(grads), dtype=torch.float64))
    parameter.grad = torch.tensor(grads.flat)
    theirs = float(torch.nn.utils.clip_grad_norm_([parameter], 0.3))
    before, _ = NormClip(0.3).bind(make_flat(0), grads)()
    assert before == pytest.approx(theirs, rel=1e-14)
    np.testing.assert_allclose(grads.flat, parameter.grad.numpy(), rtol=1e-14)


# By percentile


@pytest.mark.parametrize("percentile", [0, 10, 37.5, 90, 100])
@pytest.mark.parametrize("history", [1, 7, 1000])
def test_percentile_clip_equals_numpy(percentile: float, history: int) -> None:
    grads, norms = make_flat(1), []
    apply = PercentileClip(percentile, history=history).bind(make_flat(0), grads)
    for seed in range(60):
        given = make_flat(seed, scale=10.0 ** (seed % 5)).flat
        grads.flat[...] = given
        before, after = apply()
        norms.append(before)
        limit = np.percentile(norms[-history:], percentile)
        assert after == pytest.approx(min(before, limit), rel=1e-13)
        np.testing.assert_allclose(grads.flat, given * min(1.0, limit / before), rtol=1e-12)


def test_percentile_clip_takes_equal_norms() -> None:
    grads = make_flat(1)
    apply = PercentileClip(90, history=3).bind(make_flat(0), grads)
    for _ in range(10):
        assert apply()[0] == apply()[1]


def test_percentile_clip_resumes() -> None:
    grads, params = make_flat(1), make_flat(0)
    whole, first, second = (PercentileClip(60, history=20) for _ in range(3))

    def run(clip: PercentileClip, seeds: range) -> list[tuple[float, float]]:
        seen = []
        for seed in seeds:
            grads.flat[...] = make_flat(seed).flat
            seen.append(clip.bind(params, grads)())
        return seen

    expected = run(whole, range(50))
    assert run(first, range(25)) == expected[:25]
    state = first.state_dict()
    run(first, range(3))  # a state is a copy
    second.load_state_dict(state)
    assert run(second, range(25, 50)) == expected[25:]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, r"missing \['norms'\]"),
        ({"norms": np.ones(2), "more": 1}, r"unknown \['more'\]"),
        ({"norms": [1.0]}, r"'norms' must be float64\[0\] \(got \[1.0\]\)"),
        ({"norms": np.ones(2, "f4")}, r"must be float64\[2\] \(got float32\[2\]\)"),
        ({"norms": np.ones((2, 2))}, "must be float64"),
        ({"norms": np.array(1.0)}, "must be float64"),
        ({"norms": np.ones(6)}, r"at most 5 finite numbers .*\(got 6 numbers\)"),
        ({"norms": np.array([1.0, nan])}, "finite numbers"),
        ({"norms": np.array([-1.0])}, "finite numbers"),
    ],
)
def test_percentile_clip_refuses_a_wrong_state(state: dict[str, Any], message: str) -> None:
    clip = PercentileClip(history=5)
    with pytest.raises(CheckpointError, match=rf"^PercentileClip: .*{message}"):
        clip.load_state_dict(state)
    assert clip.state_dict()["norms"].size == 0


# By unit


def clip_units(weights: Array, grads: Array, ratio: float, eps: float = 1e-3) -> Array:
    """Equation 3 of the paper, one unit after another, in float64."""
    out = grads.astype(np.float64).reshape(len(grads) if grads.ndim > 1 else 1, -1).copy()
    rows = weights.astype(np.float64).reshape(out.shape)
    for row, grad in zip(rows, out, strict=True):
        allowed, scale = ratio * max(float(np.linalg.norm(row)), eps), float(np.abs(grad).max())
        norm = scale * float(np.linalg.norm(grad / scale)) if scale else 0.0
        grad *= allowed / norm if norm > allowed else 1.0
    return out.reshape(grads.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e-2, 1.0, 1e10, 1e25, 1e36])
def test_adaptive_clip_equals_the_formula(dtype: str, scale: float) -> None:
    params, grads = make_flat(0, dtype), make_flat(1, dtype, scale)
    params.views["2.weight"][1] = 0.0  # the floor of the weights' norm
    grads.views["0.weight"][2] = 0.0
    grads.views["0.weight"][3] *= np.dtype(dtype).type(1e-3)  # a unit that stays as it is
    given = {name: view.copy() for name, view in grads.views.items()}
    before, after = AdaptiveClip(0.02).bind(params, grads)()
    rtol = 1e-5 if dtype == "float32" else 1e-13
    for name, view in grads.views.items():
        expected = clip_units(params.views[name], given[name], 0.02)
        np.testing.assert_allclose(view, expected, rtol=rtol, atol=0.0)
    total = np.concatenate([g.astype(np.float64).reshape(-1) / scale for g in given.values()])
    assert before == pytest.approx(np.linalg.norm(total) * scale, rel=rtol, abs=0.0)
    assert after <= before
    assert after == pytest.approx(np.linalg.norm(grads.flat.astype(np.float64)), rel=rtol)


def test_adaptive_clip_leaves_small_gradients_alone() -> None:
    params, grads = make_flat(0), make_flat(1, scale=1e-6)
    given = grads.flat.tobytes()
    before, after = AdaptiveClip(0.01).bind(params, grads)()
    assert before == after
    assert grads.flat.tobytes() == given


def test_adaptive_clip_needs_matching_shapes() -> None:
    grads = Flat.pack({name: np.zeros((3, 3)) for name in SHAPES})
    with pytest.raises(
        ShapeError, match=r"^AdaptiveClip: gradients must have the parameters' views"
    ):
        AdaptiveClip().bind(make_flat(0), grads)


# All rules


@every_rule
@pytest.mark.parametrize("bad", [inf, nan])
def test_gradients_that_are_not_finite_stay(make: Any, bad: float) -> None:
    params, grads = make_flat(0), make_flat(1)
    grads.flat[3] = bad
    given, clip = grads.flat.tobytes(), make()
    before, after = clip.bind(params, grads)()
    assert (before, after) == pytest.approx((bad, bad), nan_ok=True)
    assert grads.flat.tobytes() == given
    assert all(np.size(value) == 0 for value in clip.state_dict().values())


@every_rule
def test_parameters_are_only_read(make: Any) -> None:
    params, grads = make_flat(0), make_flat(1, scale=100.0)
    given = params.flat.tobytes()
    before, after = make().bind(params, grads)()
    assert after <= before
    assert params.flat.tobytes() == given


@pytest.mark.parametrize("make", [lambda: NormClip(1.0), AdaptiveClip])
def test_rules_without_memory_have_no_state(make: Any) -> None:
    make().load_state_dict({})
    with pytest.raises(CheckpointError, match=r"unknown \['norms'\]"):
        make().load_state_dict({"norms": 1})


@every_rule
def test_nothing_is_allocated_that_grows(make: Any) -> None:
    peaks = []
    for width in (100, 800):
        params = Flat.pack({"w": np.ones((100, width), np.float32)})
        grads = SimpleNamespace(flat=params.flat * 9, views=None)
        grads.views = {"w": grads.flat.reshape(100, width)}
        apply = make().bind(params, grads)

        def clip(apply: Any = apply, flat: Any = grads.flat) -> None:
            flat[...] = 9.0
            apply()

        clip()
        peaks.append(least_peak(clip))
    assert peaks[1] - peaks[0] < 1024


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: NormClip(0.0),
            r"NormClip: max_norm must be a finite number, above zero \(got 0.0\)",
        ),
        (lambda: NormClip(inf), "NormClip: max_norm must be a finite number"),
        (
            lambda: PercentileClip(101),
            "percentile must be a finite number, at least 0 and at most 100",
        ),
        (lambda: PercentileClip(history=0), "PercentileClip: history must be a whole number"),
        (lambda: AdaptiveClip(-1.0), "AdaptiveClip: ratio must"),
        (lambda: AdaptiveClip(eps=0.0), "AdaptiveClip: eps must be .* above zero"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
