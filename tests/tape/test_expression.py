"""Operators and methods of nodes and tensors against the same formula in NumPy."""

import numpy as np
import pytest

from mlpengine import ops
from mlpengine import tape as functions
from mlpengine.core.errors import DtypeError, IndexRangeError, MlpEngineError, ShapeError, TapeError
from mlpengine.ops import REGISTRY, RunningStatistics
from mlpengine.tape import Program, Tape
from mlpengine.tape.autodiff import from_inner

OPS = {name for name, op in REGISTRY.items() if op.__module__.startswith("mlpengine.")}
OPS -= {"normal"}  # of a network's tape
"""The ops that have a method; tests/ops lists those that users are promised."""

RNG = np.random.default_rng(3)
A, B = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(0.5, 2, (3, 4))
W, ROW, CUBE = RNG.standard_normal((4, 2)), RNG.standard_normal(4), RNG.standard_normal((2, 4, 3))
KERNEL = np.ones((1, 1, 2, 2), "f4")
INDEX = np.array([2, 0, 2])


def image(a):
    return a.reshape(1, 1, 3, 4)


OPERATORS = {
    "arithmetic": lambda a, b: ((a + b) * a - b / a) / (-a),
    "an array on the left": lambda a, b: (B - a) * B + B @ (a.T @ b),
    "an array on the right": lambda a, b: a @ W,
    "numbers": lambda a, b: 1 - 2 * a + 3 / a - (a - 1.5) / 4,
    "scalars of NumPy": lambda a, b: np.float64(3) * a - np.float32(2),
    "powers": lambda a, b: a**-0.5 + np.float32(2) ** abs(-b) * +(b**2),
    "products": lambda a, b: a @ b.T + (CUBE @ a)[1, :3, :3],
    "broadcasting": lambda a, b: a * ROW + a.sum(axis=1, keepdims=True),
    "slices": lambda a, b: a[1:, ::2] * b[1:][..., None, 1],
    "axes": lambda a, b: a.transpose().reshape(np.int64(12)).reshape(2, -1) + a.reshape((2, 6)),
    "an order of axes": lambda a, b: a.reshape(3, 2, 2).transpose(2, 0, 1) * 2.0,
    "reductions": lambda a, b: (
        a.sum() + a.mean(axis=1) * a.var(axis=1, ddof=1) - a.max(1) / a.min(1)
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_nodes_and_tensors_read_like_numpy(name):
    expected = np.asarray(OPERATORS[name](A, B))
    eager = OPERATORS[name](from_inner(A), from_inner(B))
    tape = Tape()
    a, b = (tape.input(A.shape, "float64", name=name) for name in "ab")
    program = Program(tape, OPERATORS[name](a, b))
    program.inputs["b"][...] = B
    for value in (program.forward(a=A), eager.inner()):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


RUNNING = RunningStatistics(4)
METHODS = [
    (lambda a: a.softmax(0), ops.Softmax(0)),
    (lambda a: a.log_softmax(), ops.LogSoftmax(-1)),
    (lambda a: a.logsumexp(1), ops.LogSumExp(1)),
    (lambda a: a.sum(axis=(0, 1), keepdims=True), ops.Sum((0, 1), True)),
    (lambda a: a.var(0, ddof=1, keepdims=True), ops.Var(0, True, 1)),
    (lambda a: a.maximum(0.5), ops.Maximum()),
    (lambda a: a.clamp(0.8, 1.2), ops.Clamp(0.8, 1.2)),
    (lambda a: a.leaky_relu(0.5), ops.LeakyRelu(0.5)),
    (lambda a: a.gelu("tanh"), ops.Gelu("tanh")),
    (lambda a: a.linear(W.T.astype("f4")), ops.Linear()),
    (lambda a: a.matmul(W.astype("f4")), ops.MatMul()),
    (lambda a: a.batch_matmul(W.astype("f4")), ops.BatchMatMul()),
    (lambda a: a.chunk(2, axis=1), ops.Chunk(2, 1)),
    (lambda a: a.slice(slice(1)), ops.Slice(slice(1))),
    (lambda a: a.gather(INDEX[:, None], axis=1), ops.Gather(1)),
    (lambda a: a.index_select(INDEX), ops.IndexSelect(0)),
    (lambda a: a.embedding([[0, 2]]), ops.Embedding()),
    (lambda a: a.struct_field(1, [1, 2, 1]), ops.StructField(1, (1, 2, 1))),
    (lambda a: a.map_lookup("y", ["x", "y"]), ops.MapLookup("y", ("x", "y"))),
    (lambda a: a.layer_norm(eps=1e-3), ops.LayerNorm(1e-3)),
    (lambda a: a.batch_norm(running=RUNNING), ops.BatchNorm(RUNNING)),
    (lambda a: a.ssm_scan(a, a), ops.SsmScan()),
    (lambda a: image(a).max_pool2d(2, padding=1), ops.MaxPool2d(2, None, 1)),
    (lambda a: image(a).conv2d(KERNEL, stride=2, groups=1), ops.Conv2d(2)),
    (lambda a: a.huber(a, delta=9), ops.Huber(9.0)),
    (
        lambda a: a.softmax_cross_entropy(INDEX, ignore_index=1),
        ops.SoftmaxCrossEntropy(None, 0.0, 1),
    ),
    (lambda a: functions.where(A > 1, a, 0), ops.Where()),
    (lambda a: (a * 0.0).where(a, 1.5), ops.Where()),
    (lambda a: functions.cat([A.astype("f4"), a], axis=1), ops.Cat(1, (4, 4))),
    (lambda a: functions.cat([a, a]), ops.Cat(0)),
]


@pytest.mark.parametrize(("of", "op"), METHODS, ids=lambda x: getattr(x, "name", ""))
def test_a_method_records_its_op(of, op):
    tape = Tape()
    of(tape.input(A.shape, name="a"))
    recorded = tape.records[-1].op
    assert type(recorded) is type(op)
    assert vars(recorded) == vars(op)


def test_every_op_is_a_method():
    x = from_inner(np.ones(3))
    assert OPS - {name for name in OPS if callable(getattr(x, name, None))} == {"cat"}  # of a list


def test_python_numbers_take_the_dtype_and_arrays_keep_theirs():
    x = from_inner(np.ones(3, np.float32))
    for y in (x + 10**99, 2.5 * x, x / 3, 1 - x, x**2, x.maximum(0), np.float64(2) * x):
        assert y.dtype == np.float32
    with pytest.raises(DtypeError, match=r"float32\[3\].*float64\[3\]"):
        x + np.ones(3)


LABELS = np.array([2, 0, 3])
MIXED = {
    "a mean and a loss": (lambda x: (x * x).mean() + x.softmax_cross_entropy(LABELS), "float64"),
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
    ("base", lambda x: (-2) ** x, TapeError, "positive"),
    ("complex", lambda x: x + np.complex64(1j), DtypeError, "numeric"),
    ("axis", lambda x: functions.cat([x, x], axis=None), ShapeError, "axis None"),
    ("equal", lambda x: functions.where(x == 0, x, 1.0), TapeError, "no order|cannot be compared"),
    ("text", lambda x: x + "one", DtypeError, "numeric"),
    ("left out", lambda x: functions.cat([x, None]), ShapeError, "no x1"),
    ("too few", lambda x: functions.apply(REGISTRY["add"](), x), ShapeError, "no b"),
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
    with pytest.raises(TapeError, match="write where"):
        x > 0  # noqa: B015
    with pytest.raises(TapeError, match="on one tape"):
        x + y
    with pytest.raises(DtypeError, match="numeric"):
        x + from_inner(np.ones(2, np.float32))
