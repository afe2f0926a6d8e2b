"""Promises beyond the op table: errors, ties, padding, state, and gradients nobody wants."""

import numpy as np
import pytest

from mlpengine import ops
from mlpengine.core.errors import DtypeError, IndexRangeError, ShapeError, TapeError, UsageError
from mlpengine.tape import Node, Program, Tape


def floats(*shape):
    return np.zeros(shape)


def singles(*shape):
    return np.zeros(shape, np.float32)


def longs(*shape):
    return np.zeros(shape, np.int64)


WRONG = [
    (
        ops.Add(),
        [floats(2), floats(3)],
        ShapeError,
        r"broadcast \(a float64\[2\], b float64\[3\]\)",
    ),
    (ops.Mul(), [floats(2), singles(2)], DtypeError, r"dtype \(a float64\[2\], b float32\[2\]\)"),
    (ops.Div(), [longs(2), longs(2)], DtypeError, ""),
    (
        ops.Where(),
        [longs(2), floats(3), floats()],
        ShapeError,
        r"cond int64\[2\], a .*, b float64\[\]",
    ),
    (ops.Where(), [longs(2), floats(2), singles(2)], DtypeError, ""),
    (ops.Exp(), [longs(2)], DtypeError, r"\(x int64\[2\]\)"),
    (ops.Softmax(2), [floats(2, 3)], ShapeError, r"\(axis 2, x float64\[2, 3\]\)"),
    (ops.Softmax(), [floats(2, 0)], ShapeError, "needs entries along axis -1"),
    (ops.Sum((0, -2)), [floats(2, 3)], ShapeError, "axes must differ"),
    (ops.Max(0), [floats(0, 3)], ShapeError, "x needs an entry"),
    (ops.LogSumExp(1), [floats(2, 0)], ShapeError, "x needs an entry"),
    (
        ops.SoftmaxCrossEntropy(),
        [floats(2, 3), singles(2, 3)],
        DtypeError,
        "int64 indices, or prob",
    ),
    (ops.SoftmaxCrossEntropy((1.0,)), [floats(2, 3), longs(2)], ShapeError, r"1 class weight\)"),
    (ops.SoftmaxCrossEntropy(), [floats(2, 3), longs(2).astype("i4")], DtypeError, "int64 indices"),
    (ops.Linear(), [floats(4), floats(2, 4)], ShapeError, r"x float64\[4\], w float64\[2, 4\]"),
    (ops.Linear(), [floats(3, 4), floats(2, 5)], ShapeError, r"columns .*x float64\[3, 4\]"),
    (ops.Linear(), [floats(3, 4), floats(2, 4), floats(3)], ShapeError, r"b float64\[3\]"),
    (ops.Linear(), [floats(3, 4), singles(2, 4)], DtypeError, "one floating dtype"),
    (ops.MatMul(), [floats(2, 3), floats(2, 3)], ShapeError, r"a float64\[2, 3\], b float64"),
    (ops.MatMul(), [floats(1, 2, 3), floats(3, 3)], ShapeError, "must be a matrix"),
    (ops.BatchMatMul(), [floats(3), floats(3, 3)], ShapeError, "must fit"),
    (ops.BatchMatMul(), [floats(2, 1, 3), floats(4, 3, 1)], ShapeError, "broadcast"),
    (ops.Transpose((0, 0)), [floats(2, 3)], ShapeError, r"each axis of x once \(axes \(0, 0\)"),
    (ops.Conv2d(), [floats(2, 3, 4), floats(1, 3, 1, 1)], ShapeError, "batch, channels, height"),
    (ops.Conv2d(), [floats(1, 3, 4, 4), floats(3, 1, 1)], ShapeError, "out, in / groups"),
    (ops.Conv2d(), [floats(1, 3, 4, 4), floats(1, 2, 1, 1)], ShapeError, "groups 1"),
    (ops.Conv2d(groups=2), [floats(1, 4, 4, 4), floats(3, 2, 1, 1)], ShapeError, "groups 2"),
    (ops.Conv2d(), [floats(1, 1, 4, 4), floats(2, 1, 1, 1), floats(1)], ShapeError, "b needs"),
    (ops.Conv2d(dilation=2), [floats(1, 1, 4, 4), floats(1, 1, 3, 3)], ShapeError, "spans 5 x 5"),
    (ops.Conv2d(stride=0), [floats(1, 1, 4, 4), floats(1, 1, 3, 3)], UsageError, "stride"),
    (ops.Conv2d(groups=0), [floats(1, 1, 4, 4), floats(1, 1, 3, 3)], UsageError, "groups"),
    (ops.MaxPool2d(2), [floats(3, 4, 4)], ShapeError, "batch, channels, height"),
    (ops.MaxPool2d(5), [floats(1, 1, 4, 4)], ShapeError, "spans 5 x 5"),
    (ops.MaxPool2d(3, padding=2), [floats(1, 1, 4, 4)], UsageError, "at most half"),
    (ops.Reshape((4, 2)), [floats(2, 3)], ShapeError, r"x float64\[2, 3\]"),
    (ops.Transpose(("a", 0)), [floats(2, 3)], ShapeError, "the operand must have the axis"),
    (ops.Reshape((-2, 3)), [floats(2, 3)], ShapeError, "as many values"),
    (ops.Cat(), [], ShapeError, "at least one"),
    (ops.Cat(1), [floats(2, 3), floats(3, 3)], ShapeError, r"all but axis 1 \(x0 .*, x1"),
    (ops.Slice(slice("a")), [floats(2, 3)], IndexRangeError, "integers"),
    (ops.Cat(0, (2, 2)), [floats(2), floats(1)], ShapeError, r"\(2, 1\) \(got \(2, 2\)\)"),
    (ops.Chunk(2, 1), [floats(2, 3)], ShapeError, "evenly into 2 parts"),
    (ops.Slice((0, 0, 0)), [floats(2, 3)], IndexRangeError, "too many indices"),
    (ops.Slice(2), [floats(2, 3)], IndexRangeError, "index 2 is out of bounds"),
    (ops.Slice([0, 1]), [floats(2, 3)], TapeError, "use gather or"),
    (ops.Slice(slice(None, None, 0)), [floats(2, 3)], IndexRangeError, "step"),
    (ops.Gather(0), [floats(2, 3), floats(2, 3)], DtypeError, "must have an integer dtype"),
    (ops.Gather(1), [floats(2, 3), longs(3, 3)], ShapeError, r"index int64\[3, 3\]"),
    (ops.Gather(1), [floats(2, 3), longs(3)], ShapeError, "rank of x"),
    (ops.IndexSelect(0), [floats(2, 3), longs(1, 1)], ShapeError, "1-D"),
    (ops.Embedding(), [floats(2, 3, 4), longs(1)], ShapeError, "must be a matrix"),
    (ops.StructField(3, 3), [floats(2, 6)], IndexRangeError, "from 0 to 2"),
    (ops.StructField(0, 4), [floats(2, 6)], ShapeError, "must fill the axis"),
    (ops.MapLookup("c", ("a", "b")), [floats(2)], IndexRangeError, "must be one of 'a', 'b' .*'c'"),
    (ops.LayerNorm(), [floats()], ShapeError, "x needs a feature"),
    (ops.LayerNorm(), [floats(2, 3), floats(2)], ShapeError, r"scale float64\[2\]"),
    (ops.BatchNorm(), [floats(2, 3), floats(3), floats(2)], ShapeError, r"bias float64\[2\]"),
    (ops.BatchNorm(), [floats(1, 3)], ShapeError, "two rows or more"),
    (ops.BatchNorm(training=False), [floats(2, 3)], ShapeError, "needs running statistics"),
    (ops.BatchNorm(ops.RunningStatistics(3)), [floats(2, 3)], ShapeError, r"float32\[3\]"),
    (ops.SsmScan(), [floats(1, 2, 3), floats(1, 2, 3), floats(1, 2, 1)], ShapeError, "one shape"),
    (ops.SsmScan(), [floats(1, 0, 3)] * 3, ShapeError, "a step or more"),
    (ops.SsmScan(), [*[floats(1, 2, 3)] * 3, floats(2, 3)], ShapeError, "without its time axis"),
]


@pytest.mark.parametrize(("op", "operands", "error", "message"), WRONG)
def test_what_does_not_fit_is_an_error_where_it_is_recorded(op, operands, error, message):
    tape = Tape()
    nodes = [tape.input(a.shape, a.dtype, name=f"x{i}") for i, a in enumerate(operands)]
    with pytest.raises(error, match=f"^{op.name}: .*{message}"):
        tape.apply(op, *nodes)


@pytest.mark.parametrize(
    ("rate", "message"), [(-0.1, "rate -0.1"), (1.0, "rate 1.0"), (float("nan"), "rate nan")]
)
def test_a_dropout_rate_must_leave_something(rate, message):
    with pytest.raises(UsageError, match=message):
        ops.Dropout(rate, ops.Philox(0))


PICKS = [
    ("gather", lambda x, i: x.gather(i, 1), (2, 5), [[0, 4], [1, -6]], r"-6 at \(1, 1\)"),
    ("gather", lambda x, i: x.gather(i, 0), (2, 2), [[0, 2]], r"along axis 0 .* 2 at \(0, 1\)"),
    ("index_select", Node.index_select, (3, 2), [0, -3, 3], r"-3 to 2 \(index 3 at \(2,\)\)"),
    ("embedding", Node.embedding, (3, 2), [[0, 1], [7, 8]], r"-3 to 2 \(index 7 at \(1, 0\)\)"),
    ("embedding", Node.embedding, (3, 2), 3, r"\(index 3 at \(\)\)"),
    ("embedding", Node.embedding, (0, 2), [0], "index 0 at"),
]


@pytest.mark.parametrize(("name", "function", "shape", "index", "message"), PICKS)
@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_an_index_out_of_range_is_named_when_replayed(name, function, shape, index, message, dtype):
    tape, index = Tape(), np.array(index, dtype)
    x, i = tape.input(shape, name="x"), tape.input(index.shape, dtype, name="i")
    program = Program(tape, function(x, i))
    if shape[0]:
        program.forward(x=np.zeros(shape), i=np.zeros_like(index))  # which is in range
    with pytest.raises(IndexRangeError, match=f"^{name}: .*{message}"):
        program.forward(x=np.zeros(shape), i=index)


def run(function, *arrays, seed=None):
    """Return the value and the gradients of the floating operands."""
    tape = Tape()
    leaves = [
        tape.input(a.shape, a.dtype, name=f"x{i}", wants_grad=a.dtype.kind == "f")
        for i, a in enumerate(arrays)
    ]
    program = Program(tape, function(*leaves))
    value = program.forward(**{f"x{i}": a for i, a in enumerate(arrays)})
    program.backward(seed)
    return value, [program.grad(leaf) for leaf in leaves if leaf.wants_grad]


def test_the_first_of_equal_entries_wins_a_pool():
    x = np.array([[1.0, 3.0, 3.0], [3.0, 2.0, 3.0]])[None, None]
    value, (dx,) = run(lambda x: x.max_pool2d((2, 3)), x)
    np.testing.assert_array_equal(value, [[[[3.0]]]])
    np.testing.assert_array_equal(dx[0, 0], [[0, 1, 0], [0, 0, 0]])


def test_padding_never_wins_a_pool():
    x = np.full((1, 1, 2, 2), -np.inf)
    value, (dx,) = run(lambda x: x.max_pool2d(2, stride=1, padding=1), x)
    np.testing.assert_array_equal(value, np.full((1, 1, 3, 3), -np.inf))
    assert dx.sum() == 9  # each window sends its gradient to an entry that is there
    np.testing.assert_array_equal(dx[0, 0], [[4, 2], [2, 1]])


def test_running_statistics_follow_the_batches():
    running = ops.RunningStatistics(3, "float64", momentum=0.25)
    tape = Tape()
    x = tape.input((6, 3), "float64", name="x")
    program = Program(tape, x.batch_norm(running=running))
    rng, mean, variance = np.random.default_rng(0), np.zeros(3), np.ones(3)
    for _ in range(5):
        batch = rng.standard_normal((6, 3)) * 3 + 1
        program.forward(x=batch)
        mean = 0.75 * mean + 0.25 * batch.mean(axis=0)
        variance = 0.75 * variance + 0.25 * batch.var(axis=0, ddof=1)
    np.testing.assert_allclose(running.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(running.variance, variance, rtol=1e-13)


def test_evaluation_leaves_the_running_statistics_alone():
    running = ops.RunningStatistics(2, "float64")
    value, _ = run(
        lambda x: x.batch_norm(running=running, training=False, eps=0.0), np.full((1, 2), 3.0)
    )
    np.testing.assert_array_equal(value, [[3, 3]])
    np.testing.assert_array_equal([running.mean, running.variance], [[0, 0], [1, 1]])


def gradients_of_cat(sizes, wanted, given):
    """Apply the gradient rule of cat with slots for the `wanted` operands only."""
    dy = np.arange(2.0 * sum(sizes)).reshape(2, -1)
    slots = [np.full((2, n), np.nan) if i in wanted else None for i, n in enumerate(sizes)]
    for bound in ops.Cat(1, sizes if given else None).backward(dy, out=slots):
        bound()
    ends = np.cumsum([0, *sizes])
    for i in wanted:
        np.testing.assert_array_equal(slots[i], dy[:, ends[i] : ends[i + 1]])


@pytest.mark.parametrize("wanted", [{0}, {3}, {0, 3}, {2, 3}, {0, 1, 3}])
def test_cat_finds_the_sizes_by_itself_where_it_can(wanted):
    gradients_of_cat((1, 3, 2, 4), wanted, given=False)


def test_cat_says_when_it_needs_the_sizes():
    with pytest.raises(TapeError, match=r"sizes must be given .*\(operands \[0, 2, 3\] of 4\)"):
        gradients_of_cat((1, 3, 2, 4), {1}, given=False)
