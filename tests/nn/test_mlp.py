"""The network: its shapes, its values, its weights in and out, and its errors."""

import numpy as np
import pytest

from mlpengine import Mlp
from mlpengine.core.errors import CheckpointError, DtypeError, ShapeError, TapeError, UsageError
from mlpengine.nn import INITIALIZERS


def by_formula(mlp: Mlp, x: np.ndarray, activation=np.tanh) -> np.ndarray:
    """The output straight from the definition, in float64."""
    h = x.astype("f8")
    for i, (w, b) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        h = h @ w.T.astype("f8") + b
        if i < len(mlp.weights) - 1:
            h = activation(h)
    return h


def rows(n: int, width: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, width)).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
def test_forward_is_the_formula(dtype, tolerance):
    mlp = Mlp([5, 8, 6, 3], activation="tanh", dtype=dtype, seed=3)
    for bias in mlp.biases:
        bias[...] = rows(1, len(bias))[0]
    x = rows(7, 5, dtype)
    scratch = mlp.scratch(7)
    out = mlp.forward(x, scratch)
    assert out is scratch.output
    assert out.dtype == dtype
    np.testing.assert_allclose(out, by_formula(mlp, x), rtol=tolerance, atol=tolerance)


def test_backward_is_the_chain_rule():
    mlp = Mlp([4, 6, 2], activation="tanh", dtype="float64")
    x, d_output = rows(5, 4), rows(5, 2) * 3
    scratch, grads = mlp.scratch(5), mlp.gradients(5, input_gradient=True)
    grads.flat.fill(np.nan)  # overwritten, not added to
    mlp.forward(x, scratch)
    grads.d_output[...] = d_output
    mlp.backward(scratch, grads)
    h = np.tanh(x @ mlp.weights[0].T + mlp.biases[0])
    dz = d_output @ mlp.weights[1] * (1 - h**2)
    expected = {
        "0.weight": dz.T @ x,
        "0.bias": dz.sum(0),
        "2.weight": d_output.T @ h,
        "2.bias": d_output.sum(0),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(grads.views[name], value, rtol=1e-12, atol=1e-14)
    parts = [*zip(grads.d_weights, grads.d_biases, strict=True)]
    flat = np.concatenate([part.ravel() for pair in parts for part in pair])
    np.testing.assert_array_equal(flat, grads.flat)
    np.testing.assert_allclose(grads.d_input, dz @ mlp.weights[0], rtol=1e-12)
    np.testing.assert_allclose(grads.d_hidden[0], dz, rtol=1e-12)
    views = (mlp.weights, mlp.biases, grads.d_weights, grads.d_biases)
    assert {type(one) for one in views} == {tuple}  # an assignment to one[0] would change nothing
    assert grads.d_hidden[1] is grads.d_output


@pytest.mark.parametrize("name", INITIALIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_weights_have_the_variance_of_the_paper(name, dtype):
    mlp = Mlp([400, 300, 1], initializer=name, dtype=dtype, seed=5)
    expected = {"he": 2 / 400, "glorot": 2 / 700, "lecun": 1 / 400, "unit": 1, "zeros": 0}
    weight = mlp.weights[0].astype("f8")
    assert weight.var() == pytest.approx(expected[name.split("_")[0]], rel=0.02)
    assert abs(weight.mean()) < 4 * weight.std() / np.sqrt(weight.size) + 1e-12
    if name.endswith("uniform"):
        assert np.abs(weight).max() <= np.sqrt(3 * expected[name.split("_")[0]]) + 1e-7
    assert not any(bias.any() for bias in mlp.biases)


def test_seed_decides_everything():
    one, same, other = (Mlp([3, 4, 2], seed=s, dropout=0.5) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.params.flat, same.params.flat)
    assert (one.params.flat != other.params.flat).any()
    x = rows(4, 3, "float32")
    outs = [m.forward(x, m.scratch(4)) for m in (one, same)]
    np.testing.assert_array_equal(*outs)


def test_dropout_only_in_training_and_right_on_average():
    mlp = Mlp([3, 200, 1], activation="identity", dropout=0.4, dtype="float64", seed=0)
    x = rows(400, 3)
    clean = mlp.forward(x, mlp.scratch(400, training=False)).copy()
    np.testing.assert_allclose(clean, by_formula(mlp, x, lambda h: h), rtol=1e-12)
    scratch = mlp.scratch(400)
    draws = np.stack([mlp.forward(x, scratch).copy() for _ in range(200)])
    assert draws.std(0).max() > 0
    error = np.abs(draws.mean(0) - clean) / (draws.std(0) / np.sqrt(200))
    assert np.median(error) < 1.5
    hidden = scratch.activations[0]
    assert np.mean(hidden == 0) == pytest.approx(0.4, abs=0.02)


def test_each_layer_drops_its_own_share():
    rates = [0.0, 0.5, 0.25]
    mlp = Mlp([3, 200, 300, 400, 1], activation="identity", dropout=rates, seed=0)
    scratch = mlp.scratch(100)
    mlp.forward(rows(100, 3, "float32"), scratch)
    for hidden, rate in zip(scratch.activations, rates, strict=False):
        assert np.mean(hidden == 0) == pytest.approx(rate, abs=0.02)
    assert mlp.like(seed=1).dropout == (0.0, 0.5, 0.25)
    assert Mlp([3, 4, 4, 1], dropout=[0.2, 0.2]).dropout == 0.2


def test_weights_move_in_and_out():
    mlp, twin = Mlp([3, 4, 2], seed=1), Mlp([3, 4, 2], seed=2)
    state = mlp.state_dict()
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert not np.shares_memory(state["0.weight"], mlp.params.flat)
    twin.load_state_dict(state)
    np.testing.assert_array_equal(twin.params.flat, mlp.params.flat)
    assert list(Mlp([3, 4, 2], dropout=0.1).state_dict())[2] == "3.weight"
    with pytest.raises(CheckpointError, match=r"removeprefix\('module.'\)"):
        twin.load_state_dict({f"module.{name}": value for name, value in state.items()})


def test_load_state_dict_lists_every_problem_and_changes_nothing():
    mlp = Mlp([3, 4, 2])
    before = mlp.params.flat.copy()
    state = mlp.state_dict()
    state["0.weight"] = np.zeros((9, 9))
    with pytest.raises(CheckpointError, match="bias must fit into float32"):
        mlp.load_state_dict(mlp.state_dict() | {"0.bias": np.full(4, 1e300)})
    state["extra"] = state.pop("2.bias")
    with pytest.raises(CheckpointError) as caught:
        mlp.load_state_dict(state)
    for words in ("2.bias is missing", "extra is unknown", "0.weight must be (4, 3) (got (9, 9))"):
        assert words in str(caught.value)
    np.testing.assert_array_equal(mlp.params.flat, before)


def test_predict_takes_any_number_of_rows():
    mlp = Mlp([3, 4, 2], dtype="float64")
    for n in (0, 1, 255, 256, 600):
        x = rows(n, 3)
        np.testing.assert_allclose(
            mlp.predict(x), by_formula(mlp, x, lambda h: np.maximum(h, 0)), rtol=1e-12, atol=1e-14
        )
    np.testing.assert_allclose(mlp.compile(3)(x[:3]), mlp.predict(x[:3]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Mlp([3]), UsageError, "two or more whole numbers"),
        (lambda: Mlp([3, 0, 1]), UsageError, "from 1"),
        (lambda: Mlp([3, 2.5, 1]), UsageError, "whole numbers"),
        (lambda: Mlp([3, 4, 1], activation="rulu"), UsageError, "rulu"),
        (lambda: Mlp([3, 4, 1], activation=["relu", "relu"]), UsageError, "got 2 for 1"),
        (lambda: Mlp([3, 4, 1], activation=[1]), UsageError, "got 1"),
        (lambda: Mlp([3, 4, 1], dropout="0.1"), UsageError, "write dropout=0.1"),
        (lambda: Mlp([3, 4, 1], dropout=[0.1, 0.2]), UsageError, "got 2 for 1"),
        (lambda: Mlp([3, 4, 4, 1], dropout=[0.1, -0.2]), UsageError, r"than 1 \(got -0.2\)"),
        (lambda: Mlp([3, 4, 1], initializer="xavier_normal"), UsageError, "mean 'glorot_normal'"),
        (lambda: Mlp([3, 4, 1], dtype="int32"), DtypeError, "float32 or float64"),
        (lambda: Mlp([3, 4, 1], dtype="bf16"), DtypeError, "float64 .got 'bf16'."),
        (lambda: Mlp([3, 4, 1], dtype=None), DtypeError, "float64 .got None."),
    ],
)
def test_a_network_that_cannot_be_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_misuse_is_named():
    mlp, other = Mlp([3, 4, 2]), Mlp([3, 4, 2])
    scratch, grads = mlp.scratch(5), mlp.gradients(5)
    with pytest.raises(ShapeError, match=r"x: shape must be \(5, 3\) \(got \(3,\)\)"):
        mlp.forward(np.zeros(3, "f4"), scratch)  # would broadcast
    with pytest.raises(DtypeError, match="float32"):
        mlp.forward(np.zeros((5, 3), complex), scratch)
    with pytest.raises(TapeError, match="of this network"):
        other.forward(np.zeros((5, 3), "f4"), scratch)
    with pytest.raises(TapeError, match="of one network"):
        other.backward(scratch, other.gradients(5))
    with pytest.raises(TapeError, match="training=False"):
        mlp.backward(mlp.scratch(5, training=False), grads)
    with pytest.raises(ShapeError, match="scratch 4, gradients 5"):
        mlp.backward(mlp.scratch(4), grads)
    with pytest.raises(ShapeError, match="up to 5 rows"):
        scratch.for_rows(6)
    with pytest.raises(ShapeError, match="a whole number from 0"):
        mlp.compile("a")
    with pytest.raises(ShapeError, match=r"\(rows, 3\)"):
        mlp.predict(np.zeros((2, 4)))
    with pytest.raises(TapeError, match="read after a backward"):
        _ = grads.d_hidden
