"""Operators and methods of nodes and tensors against the same formula in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
import pytest

from mlpengine import tape as functions
from mlpengine.core.errors import DtypeError, IndexRangeError, MlpEngineError, ShapeError, TapeError
from mlpengine.core.spec import Array
from mlpengine.ops import REGISTRY, RunningStatistics
from mlpengine.tape import Program, Tape
from mlpengine.tape.autodiff import Tensor, from_inner

OPS = {name for name, op in REGISTRY.items() if op.__module__.startswith("mlpengine.")}
OPS -= {"periodic_embedding", "normal"}  # an input layer's own, and one of a network's tape
"""The ops that have a method; tests/ops lists those that users are promised."""

RNG = np.random.default_rng(3)
A, B = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(0.5, 2, (3, 4))
W, ROW, CUBE = RNG.standard_normal((4, 2)), RNG.standard_normal(4), RNG.standard_normal((2, 4, 3))
IMAGE, KERNEL = RNG.standard_normal((2, 3, 6, 6)), RNG.standard_normal((4, 3, 3, 3))
INDEX = np.array([2, 0, 2])


@dataclass(frozen=True)
class Formula:
    """An expression of operands that are nodes, tensors or plain arrays alike."""

    id: str
    of: Callable[..., Any]
    operands: tuple[Array, ...] = (A, B)
    expect: Callable[..., Any] | None = None
    """The same in NumPy, where NumPy writes it otherwise."""

    def in_numpy(self) -> Any:
        return (self.expect or self.of)(*self.operands)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def gelu(x: Array) -> Array:
    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def gelu_by_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


def normalized(x: Array, axes: tuple[int, ...]) -> Array:
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + 1e-5)


def scanned(a: Array, b: Array, x: Array) -> Array:
    h, rows = np.zeros(x.shape[-1]), []
    for t in range(len(x)):
        h = a[t] * h + b[t] * x[t]
        rows.append(h)
    return np.stack(rows)


def cross_entropy(logits: Array) -> float:
    p = softmax(logits, 1)
    return float(-np.mean(np.log(p[np.arange(3), INDEX])))


F = Formula
FORMULAS = [
    F("a+b", lambda a, b: a + b),
    F("a-b", lambda a, b: a - b),
    F("a*b", lambda a, b: a * b),
    F("a/b", lambda a, b: a / b),
    F("-a", lambda a, b: -a),
    F("array-a", lambda a, b: B - a),
    F("array*a", lambda a, b: B * a),
    F("array@a", lambda a: B.T @ a, (A,)),
    F("a@array", lambda a: a @ W, (A,)),
    F("numpy scalar", lambda a, b: np.float64(3) * a - np.float32(2)),
    F("1-a", lambda a, b: 1 - a),
    F("a-1", lambda a, b: a - 1.5),
    F("2*a", lambda a, b: 2 * a),
    F("3/a", lambda a, b: 3 / a),
    F("a**-0.5", lambda a, b: a**-0.5),
    F("a@w", lambda a, w: a @ w, (A, W)),
    F("cube@matrix", lambda c, m: c @ m, (CUBE, A)),
    F("slices", lambda a, b: a[1:, ::2]),
    F("ellipsis", lambda c: c[..., None, 1], (CUBE,)),
    F("T", lambda c: c.T, (CUBE,)),
    F("transpose one by one", lambda c: c.transpose(2, 0, 1), (CUBE,)),
    F("transpose", lambda c: c.transpose(), (CUBE,)),
    F("reshape", lambda a, b: a.reshape(2, -1)),
    F("sum axis", lambda c: c.sum(axis=(0, 2), keepdims=True), (CUBE,)),
    F("mean", lambda a, b: a.mean(axis=1)),
    F("var", lambda a, b: a.var(axis=1, ddof=1)),
    F("max", lambda a, b: a.max(axis=0)),
    F("min", lambda a, b: a.min(1)),
    F("formula", lambda a, b: ((a * b + 1).sum(axis=1, keepdims=True) / b) ** 2),
    F(
        "where",
        lambda a, b: functions.where(A > 1, a, b),
        expect=lambda a, b: np.where(A > 1, a, b),
    ),
    F(
        "where number",
        lambda a: functions.where(A > 1, a, 0),
        (A,),
        lambda a: np.where(A > 1, a, 0),
    ),
    F("mask.where", lambda m, a: m.where(a, 1.5), (A > 1, A), lambda m, a: np.where(m, a, 1.5)),
    F("maximum", lambda a, b: a.maximum(b), expect=np.maximum),
    F("minimum", lambda a, b: a.minimum(1.0), expect=lambda a, b: np.minimum(a, 1)),
    F("clamp", lambda a, b: a.clamp(0.8, 1.2), expect=lambda a, b: np.clip(a, 0.8, 1.2)),
    F(
        "cat",
        lambda a, b: functions.cat([a, b, A], axis=1),
        expect=lambda a, b: np.hstack([a, b, A]),
    ),
    F("cat between", lambda b: functions.cat([A, b, A]), (B,), lambda b: np.vstack([A, b, A])),
    F("chunk", lambda a, b: a.chunk(2, axis=1)[1], expect=lambda a, b: a[:, 2:]),
    F("linear", lambda a, w: a.linear(w.T), (A, W), lambda a, w: a @ w),
    F("softmax", lambda c: c.softmax(axis=1), (CUBE,), lambda c: softmax(c, 1)),
    F("log_softmax", lambda a, b: a.log_softmax().exp(), expect=lambda a, b: softmax(a, 1)),
    F("logsumexp", lambda a, b: a.logsumexp(1), expect=lambda a, b: np.log(np.exp(a).sum(1))),
    F("functions", lambda a, b: a.exp().log().sqrt().rsqrt(), expect=lambda a, b: a**-0.25),
    F("relu", lambda w: w.relu() - w.leaky_relu(0.5), (W,), lambda w: np.where(w < 0, -0.5 * w, 0)),
    F("gelu", lambda w: w.gelu("tanh") - w.gelu(), (W,), lambda w: gelu_by_tanh(w) - gelu(w)),
    F(
        "gather",
        lambda a: a.gather(INDEX[:, None], axis=1),
        (A,),
        lambda a: np.take_along_axis(a, INDEX[:, None], 1),
    ),
    F("index_select", lambda a: a.index_select(INDEX), (A,), lambda a: a[INDEX]),
    F("embedding", lambda a: a.embedding([[0, 2]]), (A,), lambda a: a[[[0, 2]]]),
    F("struct_field", lambda a, b: a.struct_field(1, [1, 2, 1]), expect=lambda a, b: a[:, 1:3]),
    F("map_lookup", lambda a, b: a.map_lookup("y", ["x", "y"]), expect=lambda a, b: a[:, 2:]),
    F(
        "layer_norm",
        lambda a, r: a.layer_norm(r, r),
        (A, ROW),
        lambda a, r: normalized(a, (1,)) * r + r,
    ),
    F(
        "batch_norm",
        lambda i: i.batch_norm(running=RunningStatistics(3, "float64")),
        (IMAGE,),
        lambda i: normalized(i, (0, 2, 3)),
    ),
    F(
        "ssm_scan",
        lambda a, b: a.ssm_scan(b, a * b),
        expect=lambda a, b: scanned(a, b, a * b),
    ),
    F(
        "max_pool2d",
        lambda i: i.max_pool2d(2),
        (IMAGE,),
        lambda i: i.reshape(2, 3, 3, 2, 3, 2).max((3, 5)),
    ),
    F(
        "conv2d",
        lambda i, k: i.conv2d(k, stride=3),
        (IMAGE, KERNEL),
        lambda i, k: np.einsum("nihakb,oiab->nohk", i.reshape(2, 3, 2, 3, 2, 3), k),
    ),
    F("mse", lambda a, b: a.mse(b), expect=lambda a, b: np.mean((a - b) ** 2)),
    F("huber", lambda a, b: a.huber(b, delta=9), expect=lambda a, b: np.mean((a - b) ** 2) / 2),
    F("cross entropy", lambda a: a.softmax_cross_entropy(INDEX), (A,), cross_entropy),
]
every_formula = pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.id)


def recorded(formula: Formula) -> Array:
    tape = Tape()
    nodes = [tape.input(x.shape, x.dtype, name=f"x{i}") for i, x in enumerate(formula.operands)]
    program = Program(tape, formula.of(*nodes))
    return program.forward(**{n.name: x for n, x in zip(nodes, formula.operands, strict=True)})


@every_formula
def test_nodes_and_tensors_read_like_numpy(formula):
    expected = np.asarray(formula.in_numpy())
    eager = formula.of(*(from_inner(x) for x in formula.operands))
    assert isinstance(eager, Tensor)
    for value in (recorded(formula), eager.inner()):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


def test_every_op_is_a_method():
    x = from_inner(np.ones(3))
    assert OPS - {name for name in OPS if callable(getattr(x, name, None))} == {"cat"}  # of a list


def test_python_numbers_take_the_dtype_and_arrays_keep_theirs():
    x = from_inner(np.ones(3, np.float32))
    for y in (x + 1, 2.5 * x, x / 3, 1 - x, x**2, x.maximum(0), np.float64(2) * x):
        assert y.dtype == np.float32
    with pytest.raises(DtypeError, match=r"float32\[3\].*float64\[3\]"):
        x + np.ones(3)


LABELS = np.array([2, 0, 3])
MIXED = {
    "a mean and a loss": (lambda x: (x * x).mean() + x.softmax_cross_entropy(LABELS), "float64"),
    "a loss and a mean": (lambda x: x.softmax_cross_entropy(LABELS) - x.sum(), "float64"),
    "an array and a loss": (lambda x: x * x.softmax_cross_entropy(LABELS), "float32"),
    "a loss and an array": (lambda x: x.softmax_cross_entropy(LABELS) / x, "float32"),
    "a choice": (
        lambda x: functions.where(np.array([1.0]), x.mean(), x.softmax_cross_entropy(LABELS)),
        "float64",
    ),
    "a loss, cast": (lambda x: x.softmax_cross_entropy(LABELS).cast("float32"), "float32"),
}
"""Expressions in which scalars of two dtypes meet, and the dtype of the result."""


@pytest.mark.parametrize(("of", "dtype"), MIXED.values(), ids=MIXED)
def test_scalars_of_two_dtypes_have_the_value_and_gradient_of_float64(of, dtype):
    narrow, wide = (from_inner(A.astype(d)).require_grad() for d in ("float32", "float64"))
    single, double = of(narrow), of(wide)
    assert single.dtype == dtype
    np.testing.assert_allclose(single.inner(), double.inner(), rtol=1e-6)
    gradient = functions.backward(single).grad(narrow)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, functions.backward(double).grad(wide), rtol=1e-5)
    x = Tape().input(A.shape, "float32", name="x", wants_grad=True)
    program = Program(x.tape, of(x))
    assert (program.forward(x=A.astype("float32")) == single.inner()).all()
    program.backward()
    assert (program.grad(x) == gradient).all()


def test_a_cast_converts_arrays_and_refuses_other_dtypes():
    x = from_inner(np.ones(3, np.float32))
    assert (x.cast("float64") + np.ones(3)).dtype == np.float64
    assert (from_inner(np.arange(3) > 1).cast(np.float32) * x).dtype == np.float32
    with pytest.raises(DtypeError, match=r"cast: dtype must be float32 or float64 .*int8"):
        x.cast("int8")


WRONG = [
    ("shapes", lambda x: x + np.ones(5), ShapeError, r"float64\[3, 4\].*float64\[5\]"),
    ("matmul", lambda x: x @ x, ShapeError, r"float64\[3, 4\].*float64\[3, 4\]"),
    ("index", lambda x: x[7], IndexRangeError, "7"),
    ("array index", lambda x: x[np.array([1])], TapeError, "gather or index_select"),
    ("exponent", lambda x: x**x, TapeError, "must be a number"),
    ("text", lambda x: x + "one", DtypeError, "numeric"),
    (
        "nothing",
        lambda x: functions.apply(REGISTRY["add"](), np.ones(2), 1),
        TapeError,
        "needs a node or a tensor",
    ),
    ("too few", lambda x: functions.apply(REGISTRY["add"](), x), ShapeError, "operands a, b"),
    ("too many", lambda x: functions.apply(REGISTRY["tanh"](), x, x), ShapeError, "operands x"),
    (
        "left out",
        lambda x: functions.apply(REGISTRY["add"](), x, None),
        ShapeError,
        "operands a, b",
    ),
]


@pytest.mark.parametrize(
    ("of", "error", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
@pytest.mark.parametrize("face", ["node", "tensor"])
def test_errors_come_where_the_op_is_written(face, of, error, message):
    x = from_inner(A) if face == "tensor" else Tape().input(A.shape, "float64", name="x")
    with pytest.raises(error, match=message) as caught:
        of(x)
    assert isinstance(caught.value, MlpEngineError)


def test_nodes_of_two_tapes_and_tensors_do_not_mix():
    x, y = Tape().input((2,), name="x"), Tape().input((2,), name="y")
    with pytest.raises(TapeError, match="on one tape"):
        x + y
    with pytest.raises(DtypeError, match="numeric"):
        x + from_inner(np.ones(2, np.float32))
