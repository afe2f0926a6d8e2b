"""Every element-wise op in every target against its formula; an op of one's own is one class."""

import inspect
from pathlib import Path

import numpy as np
import pytest
from bound import Bound
from scipy import special

import mlpengine
from mlpengine import Mlp, Program, Tape, tape
from mlpengine.backends.compiled import compile_program
from mlpengine.backends.compiled.rules import find_rule
from mlpengine.config.schema import ModelSection
from mlpengine.estimators import MlpRegressor
from mlpengine.export import export
from mlpengine.formula import FUNCTIONS, tanh, variable
from mlpengine.formula.pieces import constant
from mlpengine.nn import ACTIVATIONS
from mlpengine.nn.export_c import export_c
from mlpengine.ops import (
    REGISTRY,
    Activation,
    Clamp,
    Elementwise,
    Elu,
    Gelu,
    LeakyRelu,
    LogEps,
    Pow,
    ScalarAdd,
    ScalarMul,
)
from mlpengine.ops import _elementwise as elementwise
from mlpengine.spec import call

INF, NAN = np.inf, np.nan

MEANINGS = {
    "sigmoid": special.expit,
    "softplus": lambda x: -special.log_expit(-x),
    "softplus_tail": lambda x: np.log1p(np.exp(-np.abs(x))),
    "normal_cdf": special.ndtr,
    "expm1_below_0": np.expm1,
    "clip": np.clip,
    "where": np.where,
    "pow": np.power,
}
"""What functions mean where the table has no ufunc for them."""

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
]


def ops():
    """Return every op on one or two operands, made without options where it has a default."""
    made = [type(op) for op in WITH_OPTIONS]
    plain = [
        op() for op in REGISTRY.values() if issubclass(op, Elementwise) and _is_plain(op, made)
    ]
    return [*plain, *WITH_OPTIONS, LeakyRelu(), Elu(), Gelu()]


def _is_plain(op, made):
    return (
        op not in made
        and op.__module__.startswith("mlpengine.")
        and op.name != "formula_activation"
    )


def meaning(node, values):
    """Return the value of a node in float64 by functions of NumPy and SciPy."""
    if node not in values:
        if node.number is not None:
            return np.float64(node.number)
        function = MEANINGS.get(node.name) or FUNCTIONS[node.name].numpy
        values[node] = function(*(meaning(a, values) for a in node.args))
    return values[node]


def truth(op, operands, dy):
    """Return value and gradients as the formulas say."""
    f = op.formulas
    given = dict(zip(f.operands.values(), operands, strict=True)) | {variable("dy"): dy}
    return [np.broadcast_to(meaning(e, dict(given)), dy.shape) for e in (f.y, *f.gradients)]


def by_numpy(op, operands, dy):
    bound = Bound(op, operands)
    bound.dy[0][...] = dy
    return [*bound.forward(), *bound.backward()]


def by_program(backend):
    def run(op, operands, dy):
        recorded = Tape()
        shape = dy.shape
        nodes = [
            recorded.input(shape, "float64", name=f"x{i}", wants_grad=True)
            for i in range(len(operands))
        ]
        rules = "numpy" if backend == "compiled" else backend
        program = Program(recorded, recorded.apply(op, *nodes), backend=rules)
        y = program.forward(**{f"x{i}": x for i, x in enumerate(operands)})
        program.backward(dy)
        slopes = [program.grad(node) for node in nodes]
        if backend == "compiled":
            for array in (y, *slopes):
                array.fill(12345)
            assert compile_program(program.instructions, dtype=dy.dtype, batch=1).step() == 0
        return [y, *slopes]

    return run


TARGETS = {"numpy": by_numpy, "numexpr": by_program("numexpr"), "compiled": by_program("compiled")}


def check(op, target):
    count = len(op.signature.operands)
    x = np.array([POINTS])
    operands = (x, np.roll(x, 7))[:count]
    dy = np.random.default_rng(1).normal(size=x.shape)
    with np.errstate(all="ignore"):
        found, expected = TARGETS[target](op, operands, dy), truth(op, operands, dy)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=2e-13)


COMPILED = [op for op in ops() if isinstance(op, Activation)]


def title(op):
    """Return the name of an op with its options, the same in every process."""
    return " ".join([op.name, *map(str, vars(op).values())])


@pytest.mark.parametrize("op", ops(), ids=title)
@pytest.mark.parametrize("target", ["numpy", "numexpr"])
def test_every_target_keeps_to_the_formula(op, target):
    check(op, target)


@pytest.mark.parametrize("op", COMPILED, ids=title)
def test_compiled_code_keeps_to_the_formula(op):
    check(op, "compiled")


def test_a_wrong_tuned_entry_is_found(monkeypatch):
    def wrong(x, y, slope, room):
        yield from right.rule(x, y, slope, room)
        yield call(np.multiply, slope, constant(1 + 1e-9, x), slope)

    right = elementwise.TUNED["gelu", "none"]
    monkeypatch.setitem(elementwise.TUNED, ("gelu", "none"), elementwise.Tuned(wrong, floats=1))
    elementwise._derived.cache_clear()
    with pytest.raises(AssertionError):
        check(Gelu(), "numpy")
    elementwise._derived.cache_clear()


def test_every_tuned_entry_stands_for_an_op():
    assert {name for name, *_ in elementwise.TUNED} <= set(REGISTRY)


# ---------------------------------------------------------------- one class, every place
@pytest.fixture
def toy():
    class Toy(Activation, name="toy"):
        """Scaled hyperbolic tangent, y = 1.5 * tanh(x / 2)."""

        def formula(self, x):
            return tanh(x * 0.5) * 1.5

    yield Toy
    del REGISTRY["toy"]


def test_an_activation_is_one_class_in_every_place(toy, tmp_path):
    assert len(inspect.getsource(toy).splitlines()) < 15
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("f4")
    mlp = Mlp([3, 4, 2], activation="toy", seed=1)
    hidden = 1.5 * np.tanh((x @ mlp.weights[0].T + mlp.biases[0]) / 2)
    expected = hidden @ mlp.weights[1].T + mlp.biases[1]
    np.testing.assert_allclose(mlp.predict(x), expected, rtol=1e-5, atol=1e-6)
    assert "toy" in ACTIVATIONS
    assert ModelSection(hidden=[4], activation="toy").activation == ["toy"]
    assert tape.toy(tape.from_inner(x)).inner().shape == x.shape
    assert find_rule(toy(), "backward").writes == ("dx",)
    assert mlp.compile(5)(x) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert "v_tanh" in export_c(mlp)
    check(toy(), "numpy")
    check(toy(), "numexpr")
    assert MlpRegressor(activation="toy", epochs=1).fit(x, x[:, 0]).predict(x).shape == (5,)
    export(mlp, tmp_path / "toy.onnx")


def test_the_package_names_an_activation_in_one_file_and_its_list_of_exports():
    package = Path(mlpengine.__file__).parent
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "hardswish" in path.read_text(encoding="utf-8").lower()
    }
    assert naming == {"ops/activations.py", "ops/__init__.py"}
