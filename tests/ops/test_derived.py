"""Element-wise ops and losses in every target against their formulas; an op is one class."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from bound import Bound
from scipy import special

from mlpengine import Program, Tape
from mlpengine.backends.compiled.cache import chosen_target, load_library
from mlpengine.backends.compiled.executor import FINISHED, compile_program
from mlpengine.backends.compiled.kernel import LossInstruction
from mlpengine.backends.compiled.printing import CTarget, print_statements
from mlpengine.backends.compiled.statements import lets
from mlpengine.backends.numexpr import fused
from mlpengine.core.errors import UsageError
from mlpengine.export._onnx_graph import Graph
from mlpengine.export._onnx_network import scalar, write_activation
from mlpengine.formula import FUNCTIONS, SCALARS, numexpr_text, onnx_node, order, tanh, variable
from mlpengine.ops import (
    REGISTRY,
    Activation,
    BinaryCrossEntropyWithLogits,
    Clamp,
    Elementwise,
    Elu,
    EntryLoss,
    FormulaActivation,
    FormulaLoss,
    Gelu,
    LeakyRelu,
    LogEps,
    Pow,
    Quantile,
    ScalarAdd,
    ScalarMul,
    Survival,
)

INF, NAN = np.inf, np.nan

MEANINGS = {
    "sigmoid": special.expit,
    "softplus": lambda x: -special.log_expit(-x),
    "softplus_tail": lambda x: np.log1p(np.exp(-np.abs(x))),
    "normal_cdf": special.ndtr,
    "expm1_below_0": lambda x, factor: np.expm1(x) * factor,
    "clip": np.clip,
    "where": np.where,
    "pow": np.power,
}
"""Functions by NumPy or SciPy where the table has no ufunc."""

POINTS = [
    *np.random.default_rng(0).normal(0, 3, 40),
    *(
        sign * x
        for x in (0.0, 0.5, 1, 2, 3, 20, 40, 800, 1e7, 1e30, 1e-7, 1e-30)
        for sign in (1, -1)
    ),
    INF,
    -INF,
    NAN,
]

WITH_OPTIONS = [
    Clamp(-1, 2),
    Elu(0.3),
    Gelu("tanh"),
    LeakyRelu(0.2),
    LogEps(0.5),
    *(Pow(n) for n in (0, 1, 2, 3, 4, 0.5, -1, -2.5)),
    ScalarAdd(0.5),
    ScalarMul(-2.5),
    FormulaActivation("where(not x < 0 and (x >= 1 or x <= 0.2), log1p(abs(x)), sign(x) * sin(x))"),
    FormulaActivation("where(x != 0.5, clip(cos(x), -0.5, 2), log2(abs(x) + 2)) + (x > 1) / 2"),
]


def ops():
    """Return every op on one or two operands, made without options where it has a default."""
    made = [type(op) for op in WITH_OPTIONS]
    plain = [
        op() for op in REGISTRY.values() if issubclass(op, Elementwise) and _is_plain(op, made)
    ]
    return [*plain, *WITH_OPTIONS, LeakyRelu(), Elu(), Gelu()]


def losses():
    """Return every loss that is defined by a formula."""
    kinds = [op for op in REGISTRY.values() if issubclass(op, EntryLoss)]
    made = [op() for op in kinds if _is_plain(op, ())]
    return [*made, BinaryCrossEntropyWithLogits(2.5), Quantile((0.1, 0.5)), Survival("lognormal")]


def _is_plain(op, made):
    return (
        op not in made
        and op.__module__.startswith("mlpengine.")
        and op not in (FormulaActivation, FormulaLoss)
    )


def meaning(node, values):
    """Return the value of a node in float64 by functions of NumPy and SciPy."""
    if node not in values:
        if node.number is not None:
            return np.float64(node.number)
        function = MEANINGS.get(node.name) or FUNCTIONS[node.name].numpy
        values[node] = function(*(meaning(a, values) for a in node.args))
    return values[node]


def truth(formulas, given):
    """Return the values of formulas in float64; `given` are the operands by their leaves."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in given.values()))
    values = {leaf: np.asarray(x, "f8") for leaf, x in given.items()}
    return [np.broadcast_to(meaning(f, dict(values)), shape) for f in formulas]


# ---------------------------------------------------------------- the rows
@dataclass(frozen=True)
class Row:
    """An element-wise op or a loss by formula, and how exact it is in each target.

    Attributes:
        units: allowed error, in units in the last place of the exact value.
        value_floor, gradient_floor: a size; smaller values have the units of this size, because
            terms cancel.
        onnx_floor: the same for the value in ONNX Runtime: it approximates some functions to
            absolute instead of relative errors.
    """

    op: object
    units: float = 16
    value_floor: float = 0
    gradient_floor: float = 0
    onnx_floor: float = 0
    is_share: bool = False
    """Whether the last operand lies in 0 to 1."""

    def floor(self, target, output):
        """Return the floor of an output: the value, or a gradient."""
        if output:
            return self.gradient_floor
        return max(self.value_floor, self.onnx_floor if target == "onnx" else 0)

    @property
    def is_loss(self):
        return isinstance(self.op, EntryLoss)

    @property
    def leaves(self):
        f = self.op.formulas
        return [*f.outputs, *f.targets] if self.is_loss else [*f.operands.values()]

    def formulas(self):
        """Return the formulas of the value and of the gradients."""
        f = self.op.formulas
        if self.is_loss:
            return [self.op.formula(*self.leaves), *self.op.gradient(*self.leaves)]
        return [f.y, *f.gradients]

    def data(self, dtype):
        """Return the operands by leaf, and dy, as rows of numbers."""
        x = np.array(POINTS, dtype)
        operands = [np.roll(x, 7 * i) for i in range(len(self.leaves))]
        if self.is_share or (self.is_loss and self.op.has_target_range):
            lowest = 0.125 if self.is_loss and self.op.open_below else 0
            operands[-1] = np.resize(np.array([lowest, 1, 0.5, 0.25], dtype), x.shape)
        dy = np.random.default_rng(1).normal(size=x.shape).astype(dtype)
        dy[::11] = NAN  # of a gradient that is 0 by a condition, it is not seen
        given = dict(zip(self.leaves, operands, strict=True))
        return given, np.ones_like(dy) if self.is_loss else dy


CANCELS = {"value_floor": 1, "gradient_floor": 1}
SLOPE_CANCELS = {"gradient_floor": 1}
EXACTNESS = {
    "bce_with_logits": CANCELS,
    "binary_focal": CANCELS,
    "elu": SLOPE_CANCELS | {"onnx_floor": 1},  # ONNX Runtime has exp(x) - 1
    "formula_activation": {"onnx_floor": 1},  # log(x + 1) there
    "gamma": CANCELS,
    "gaussian_nll": CANCELS,
    "gelu": CANCELS,
    "log_cosh": CANCELS,
    "negative_binomial": CANCELS,
    "ordinal": CANCELS,
    "poisson": CANCELS,
    "selu": SLOPE_CANCELS | {"onnx_floor": 1},
    "sigmoid": SLOPE_CANCELS | {"onnx_floor": 1},  # a rational approximation there
    "silu": SLOPE_CANCELS | {"onnx_floor": 1},
    "slope": SLOPE_CANCELS | {"is_share": True},
    "tanh": SLOPE_CANCELS,
    "survival": CANCELS | {"units": 2048, "onnx_floor": 100},  # of tails, and differences
    "tweedie": CANCELS,
}
"""By op, the fields of its row that are not the defaults."""

ROWS = [Row(op, **EXACTNESS.get(op.name, {})) for op in [*ops(), *losses()]]


def is_expensive(formula):
    """Return whether a formula has a function with C of its own for each dtype."""
    return any(
        node.name in FUNCTIONS and FUNCTIONS[node.name].expensive for node in order([formula])
    )


# ---------------------------------------------------------------- the targets
def by_numpy(rows, dtype):
    return [_loss_by_entry(r, dtype) if r.is_loss else _numpy_op(r, dtype) for r in rows]


def _numpy_op(row, dtype):
    given, dy = row.data(dtype)
    bound = Bound(row.op, tuple(given.values()))
    bound.dy[0][...] = dy
    return [*bound.forward(), *bound.backward()]


def _loss_by_entry(row, dtype):
    """Return the loss of each entry, the mean over a batch of one, and the gradients."""
    operands = np.stack([*row.data(dtype)[0].values()], 1)
    output, target = np.split(operands, [row.op.columns], axis=1)
    bound = Bound(row.op, (output[:1], target[:1]))
    entries = []
    for o, t in zip(output, target, strict=True):
        bound.operands[0][...], bound.operands[1][...] = o, t
        (value,) = bound.forward()
        entries.append([value.item(), *(x for g in bound.backward() for x in g.ravel().tolist())])
    return [np.array(column) for column in zip(*entries, strict=True)]


def _programs(rows, dtype):
    """Return a program for each op, after a run, with its value and gradients."""
    made = []
    for row in rows:
        given, dy = row.data(dtype)
        tape, operands = Tape(), {f"x{i}": x[None] for i, x in enumerate(given.values())}
        nodes = [
            tape.input(x.shape, dtype, name=name, wants_grad=True) for name, x in operands.items()
        ]
        program = Program(tape, tape.apply(row.op, *nodes))
        y = program.forward(**operands)
        program.backward(dy[None])
        made.append((program, [y, *(program.grad(node) for node in nodes)]))
    return made


def by_numexpr(rows, dtype):
    """Return what the text of each formula gives, alone."""
    made = []
    for row in rows:
        given, dy = row.data(dtype)
        outputs = [np.full_like(dy, 12345) for _ in row.formulas()]
        for formula, out in zip(row.formulas(), outputs, strict=True):
            for run in fused(formula, out, given | {variable("dy"): dy}):
                run()
        made.append(outputs)
    return made


def by_compiled(rows, dtype):
    """Return what one compiled program of all ops, and one of each loss, give."""
    programs = iter(_programs([r for r in rows if not r.is_loss], dtype))
    made = [_compiled_loss(r, dtype) if r.is_loss else next(programs) for r in rows]
    of_ops = [pair for row, pair in zip(rows, made, strict=True) if not row.is_loss]
    if of_ops:
        instructions = [i for program, _ in of_ops for i in program.instructions]
        executor = compile_program(instructions, dtype=np.dtype(dtype), batch=1)
        for _, arrays in of_ops:
            for array in arrays:
                array.fill(12345)
        assert executor.step() == FINISHED
    return [
        pair if row.is_loss else [a[0] for a in pair[1]]
        for row, pair in zip(rows, made, strict=True)
    ]


def _compiled_loss(row, dtype):
    given = np.split(np.stack([*row.data(dtype)[0].values()], 1), [row.op.columns], axis=1)
    output, slot = (np.zeros((1, row.op.columns), dtype) for _ in range(2))
    target = np.zeros((1, row.op.target_columns), dtype)
    bound = LossInstruction(row.op, (output, target, None), (slot, np.zeros(())))
    executor = compile_program([bound], dtype=np.dtype(dtype), batch=1)
    entries = []
    for output[...], target[...] in zip(*given, strict=True):
        executor.step()
        entries.append((executor.call.loss, *slot[0].tolist()))
    return [np.array(column) for column in zip(*entries, strict=True)]


SCALAR_FILE = """\
#include <math.h>
typedef {real} real;
#define M(name) name{suffix}
{functions}
"""

SCALAR_FUNCTION = """\
void row_{number}(const real **in, real **out, long count) {{
  for (long i = 0; i < count; i++) {{
    {body}
  }}
}}
"""


def by_scalar_c(rows, dtype):
    """Return what the C of numbers gives, all rows in one file."""
    single = dtype == "float32"
    real, suffix = ("float", "##f") if single else ("double", "")
    parts = [SCALAR_FILE.format(real=real, suffix=suffix, functions=SCALARS)]
    for number, row in enumerate(rows):
        leaves = [*row.leaves, variable("dy")]
        outputs = {f"y{k}": formula for k, formula in enumerate(row.formulas())}
        body = [
            *(f"const real x{k} = in[{k}][i]; (void)x{k};" for k in range(len(leaves))),
            *print_statements(
                lets(outputs, {x: f"x{k}" for k, x in enumerate(leaves)}),
                CTarget("real", "size_t", 4 if single else 8),
            ),
            *(f"out[{k}][i] = {name};" for k, name in enumerate(outputs)),
        ]
        parts.append(SCALAR_FUNCTION.format(number=number, body="\n    ".join(body)))
    library = load_library("\n".join(parts), chosen_target())
    made = []
    for number, row in enumerate(rows):
        given, dy = row.data(dtype)
        operands = [*given.values(), dy]
        outputs = [np.full_like(dy, 12345) for _ in row.formulas()]
        tables = [
            (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
            for arrays in (operands, outputs)
        ]
        getattr(library, f"row_{number}")(*tables, ctypes.c_long(dy.size))
        made.append(outputs)
    return made


def by_onnx(rows, dtype):
    """Return the values that ONNX Runtime gives, of one model with an output for each row."""
    graph, feed = Graph(()), {}
    for k, row in enumerate(rows):
        given = {}
        for leaf, x in row.data(dtype)[0].items():
            given[leaf] = graph.input(f"x{len(feed)}", dtype, 1)
            feed[given[leaf]] = x[:, None]
        if isinstance(row.op, Activation):
            (x,) = given.values()
            y = write_activation(graph, row.op, x)
        else:
            y = onnx_node(row.formulas()[0], given, graph.node, lambda v: scalar(graph, v))
        graph.output(y, f"y{k}", dtype, 1)
    session = onnxruntime.InferenceSession(graph.build("", {}))
    return [[y[:, 0]] for y in session.run(None, feed)]


@dataclass(frozen=True)
class Target:
    """A way to run formulas: for the rows that `takes` accepts, in its dtypes."""

    run: Callable
    takes: Callable
    dtypes: tuple[str, ...] = ("float32", "float64")


TARGETS = {
    "numpy": Target(by_numpy, lambda row: True),
    "numexpr": Target(by_numexpr, lambda row: all(numexpr_text(f, {}) for f in row.formulas())),
    "compiled": Target(by_compiled, lambda row: True),
    "scalar C": Target(by_scalar_c, lambda row: True),
    "onnx": Target(by_onnx, lambda row: row.formulas()[0].number is None, ("float32",)),
}


def compare(row, answer, target, dtype):
    """Raise AssertionError where an answer differs from the formula."""
    given, dy = row.data(dtype)
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        expected = truth(row.formulas(), given | {variable("dy"): dy})
        for k, (a, exact) in enumerate(zip(answer, expected, strict=False)):
            rounded = exact.astype(dtype)
            unit = info.eps * np.maximum(np.abs(exact), max(row.floor(target, k), info.tiny))
            near = np.abs(a.astype("f8") - exact) <= row.units * unit
            same = (a == rounded) | (np.isnan(a) & np.isnan(rounded)) | near
            shown = [[x[~same] for x in given.values()], a[~same], exact[~same]]
            assert same.all(), f"{row.op}, {target}, {dtype}, output {k}: {shown}"


@pytest.mark.parametrize(
    ("target", "dtype"), [(n, d) for n, t in TARGETS.items() for d in t.dtypes]
)
def test_every_target_keeps_to_the_formula(target, dtype):
    """All rows in one test: their programs are compiled together, once."""
    rows, wrong = [row for row in ROWS if TARGETS[target].takes(row)], []
    if (target, dtype) == ("compiled", "float64"):  # arithmetic is compiled in float32 alone
        rows = [row for row in rows if any(is_expensive(f) for f in row.formulas())]
    with np.errstate(all="ignore"):
        answers = TARGETS[target].run(rows, dtype)
    for row, answer in zip(rows, answers, strict=True):
        try:
            compare(row, answer, target, dtype)
        except AssertionError as error:
            wrong.append(str(error))
    assert wrong == []


def test_options_that_are_no_fields_are_refused():
    """Of two of them the second would compute what the first does."""

    class Steep(Activation):
        name = "steep"  # not in the registry

        def __init__(self, slope=1.0):
            self.slope = slope

        def formula(self, x):
            return tanh(x) * self.slope

    @dataclass(frozen=True)
    class Listed(Activation):
        name = "listed"
        slopes: list[float]

        def formula(self, x):
            return tanh(x) * self.slopes[0]

    for op, message in (
        (Steep(3.0), r"fields of a @dataclass\(frozen=True\) \(got the attribute 'slope'\)"),
        (Listed([3.0]), r"slopes must be hashable, as a tuple is \(got \[3.0\]\)"),
    ):
        with pytest.raises(UsageError, match=message):
            _ = op.formulas
