"""Formulas against SciPy and differences in float64, in every target, and text that is hostile."""

import copy
import pickle

import numpy as np
import pytest
from scipy import special

from mlpengine.core.errors import FormulaError
from mlpengine.formula import (
    constant,
    evaluate,
    gradients,
    in_steps,
    make,
    numexpr_text,
    order,
    parse,
    plan,
    variable,
    variables,
    where,
)

x, y, dy = variable("x"), variable("y"), variable("dy")
INF, NAN = np.inf, np.nan

TRUTHS = {
    "abs(x)": lambda x, y: np.abs(x),
    "sign(x)": lambda x, y: np.sign(x),
    "clip(x, -1, 2)": lambda x, y: np.clip(x, -1, 2),
    "sqrt(abs(x) + 1)": lambda x, y: (np.abs(x) + 1) ** 0.5,
    "exp(x)": lambda x, y: np.exp(x),
    "expm1(x)": lambda x, y: np.expm1(x),
    "expm1(min(x, 0))": lambda x, y: np.expm1(np.minimum(x, 0)),
    "log(x * x + 1)": lambda x, y: np.log(x * x + 1),
    "log1p(x ** 2)": lambda x, y: np.log1p(x * x),
    "log2(abs(x) + 1)": lambda x, y: np.log2(np.abs(x) + 1),
    "sin(x) + cos(y)": lambda x, y: np.sin(x) + np.cos(y),
    "tanh(x)": lambda x, y: np.tanh(x),
    "sigmoid(x)": lambda x, y: special.expit(x),
    "softplus(x)": lambda x, y: -special.log_expit(-x),
    "normal_cdf(x)": lambda x, y: special.ndtr(x),
    "where(x > y, x, 2 * y)": lambda x, y: np.where(x > y, x, 2 * y),
    "where(x > 0, 3, -0.5)": lambda x, y: np.where(x > 0, 3, -0.5),
    "where(x <= y, 0, x)": lambda x, y: np.where(x <= y, 0, x),
    "where(not x < 0 and (y > 0 or x == y), x, 0)": lambda x, y: np.where((x >= 0) & (y > 0), x, 0),
    "where(-1 < x < 1, x ** 3, 1)": lambda x, y: np.where(np.abs(x) < 1, x**3, 1),
    "x * (y > 0) + (x >= y) / 2": lambda x, y: x * (y > 0) + (x >= y) / 2,
    "max(x, y, 1) - min(x, y)": lambda x, y: np.maximum(np.maximum(x, y), 1) - np.minimum(x, y),
    "x - y / (x * x + pi)": lambda x, y: x - y / (x * x + np.pi),
    "-x ** 2 * y": lambda x, y: -(x**2) * y,
    "abs(x - y) ** 1.5 + 1 / (2 + x ** 4)": lambda x, y: np.abs(x - y) ** 1.5 + 1 / (2 + x**4),
    "(abs(x) + 1) ** -0.5 - (abs(y) + 2) ** -1": lambda x, y: (
        (np.abs(x) + 1) ** -0.5 - 1 / (np.abs(y) + 2)
    ),
    "x * tanh(softplus(x))": lambda x, y: x * np.tanh(np.logaddexp(0, x)),
}
every_formula = pytest.mark.parametrize("text", TRUTHS)


def draw(dtype="float64", shape=(7, 9)):
    rng = np.random.default_rng(3)
    return {n: (3 * rng.standard_normal(shape)).astype(dtype) for n in ("x", "y")}


def run(outputs, given, arrays, floats_like):
    """Return the outputs by the NumPy target, every buffer full of garbage before."""
    planned = plan(outputs, given)
    out = [np.full_like(floats_like, NAN) for _ in outputs]
    floats = [np.full_like(floats_like, NAN) for _ in range(planned.floats)]
    masks = [np.ones(floats_like.shape, bool) for _ in range(planned.masks)]
    with np.errstate(all="ignore"):
        for call in planned.calls(arrays, out, floats, masks):
            call()
    return out


@every_formula
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6)])
def test_values_are_those_of_scipy(text, dtype, tolerance):
    arrays = draw(dtype)
    value = evaluate(parse(text, arrays), arrays)
    expected = TRUTHS[text](*(a.astype(float) for a in arrays.values()))
    assert value.dtype == dtype
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


@every_formula
def test_gradients_are_the_differences_of_values(text):
    arrays, step = draw(), 1e-6
    seed = np.random.default_rng(5).standard_normal((7, 9))
    formula = parse(text, ["x", "y"])
    slopes = gradients(formula, dy, [x, y])
    found = run(slopes, [dy, x, y], [seed, arrays["x"], arrays["y"]], seed)
    for name, slope in zip(arrays, found, strict=True):
        up, down = ({**arrays, name: arrays[name] + s} for s in (step, -step))
        difference = (evaluate(formula, up) - evaluate(formula, down)) / (2 * step)
        np.testing.assert_allclose(slope, seed * difference, rtol=1e-6, atol=2e-8)


def test_plans_are_thrifty():
    def needs(text, *names):
        given = [variable(n) for n in names]
        planned = plan([parse(text, names)], given)
        return planned.floats, planned.masks, planned.in_place, len(planned.steps)

    assert needs("max(x, 0)", "x") == (0, 0, True, 1)
    assert needs("tanh(x)", "x") == (0, 0, True, 1)
    assert needs("x * sigmoid(x)", "x") == (1, 0, False, 2)
    assert needs("dy * (1 - y * y)", "dy", "y") == (0, 0, False, 3)
    assert needs("where(y != 0, dy, 0)", "dy", "y") == (0, 1, True, 2)
    assert needs("x", "x") == (0, 0, True, 0)
    # the argument that needs more buffers is computed first
    assert needs("exp(x) * softplus(x)", "x") == (2, 0, False, 3)


def test_a_chain_of_values_is_computed_in_the_buffer_of_its_output():
    a, b, dy = (variable(n) for n in ("a", "b", "dy"))
    da, db = dy / b, -(a / b * dy)
    planned = plan([da, db], [dy, a, b])
    assert [step.out for step in planned.steps] == [("out", 1)] * 3 + [("out", 0)]


OVERWRITING = {
    "in order": {"y": y * 0.5 + x, "x": x - dy * (y * 0.5 + x)},
    "an old value is read later": {"x": x + y, "y": y - x},
    "old values move on": {"dy": dy - y, "y": x, "x": x + 1},
    "masks": {"x": where(x > dy, 1.0, y), "y": y * 2.0},
    "a number": {"y": x + y, "x": constant(2)},
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_outputs_may_overwrite_their_old_values(name):
    new = OVERWRITING[name]
    arrays = {n: np.linspace(-1, 1, 5) + i for i, n in enumerate(("x", "y", "dy"))}
    expected = {n: evaluate(f, arrays) if variables(f) else f.number for n, f in new.items()}
    outputs = dict(reversed(new.items()))
    given = [n for n in arrays if n not in new]
    planned = plan(
        [*outputs.values()], [variable(n) for n in given], overwritten=[*map(variable, outputs)]
    )
    work = [np.full(5, NAN) for _ in range(planned.floats)]
    masks = [np.zeros(5, bool) for _ in range(planned.masks)]
    out = [arrays[n] for n in outputs]
    for run in planned.calls([arrays[n] for n in given], out, work, masks):
        run()
    for n, value in expected.items():
        np.testing.assert_array_equal(arrays[n], value, err_msg=n)


def test_outputs_that_exchange_their_buffers_are_refused():
    planned = plan([x, y], [], overwritten=[y, x])
    with pytest.raises(FormulaError, match="must not exchange"):
        list(planned.calls([], [np.ones(2), np.ones(2)]))


# ---------------------------------------------------------------- simplification
EDGES = np.array([0.0, -0.0, 1.0, -2.5, INF, -INF, NAN, 1e300, 5e-324])

with np.errstate(all="ignore"):
    REWRITES = [
        (x - 0.0, "x", EDGES - 0.0),
        (make("add", x, -0.0), "x", EDGES + -0.0),
        (x * 1, "x", EDGES * 1),
        (1 * x, "x", 1 * EDGES),
        (x / 1, "x", EDGES / 1),
        (x**1, "x", EDGES**1),
        (x**0, "1.0", EDGES**0),
        (x**2, "mul(x, x)", np.square(EDGES)),
        (x**0.5, "sqrt(x)", np.sqrt(EDGES)),
        (x**-0.5, "div(1.0, sqrt(x))", 1 / np.sqrt(EDGES)),
        (x**-2, "div(1.0, mul(x, x))", EDGES**-2.0),
        (x**4, "mul(mul(x, x), mul(x, x))", np.square(np.square(EDGES))),
        (make("neg", -x), "x", EDGES),
        (x * -1, "neg(x)", EDGES * -1),
        (where(x > 0, y, y), "y", EDGES),
        (
            parse("expm1(min(x, 0))", ["x"]),
            "expm1_below_0(minimum(x, 0.0), 1.0)",
            np.expm1(np.minimum(EDGES, 0)),
        ),
        (x + 0, "add(x, 0.0)", EDGES + 0),
        (0 + x, "add(x, 0.0)", 0 + EDGES),
        (0 * x, "mul(x, 0.0)", 0 * EDGES),
        (0 / x, "div(0.0, x)", 0 / EDGES),
        (x - x, "sub(x, x)", EDGES - EDGES),
        (x / x, "div(x, x)", EDGES / EDGES),
        (0 - x, "sub(0.0, x)", 0 - EDGES),
    ]
"""An expression, its node, and its values: the last rows stay as they are."""


@pytest.mark.parametrize(("node", "written", "expected"), REWRITES, ids=range(len(REWRITES)))
def test_simplifying_changes_no_value(node, written, expected):
    assert repr(node) == written
    found = np.broadcast_to(evaluate(node, {"x": EDGES, "y": EDGES}), EDGES.shape)
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_constants_are_folded_in_float64():
    assert parse("2 * 3 + sqrt(16) - sigmoid(0)", []).number == 9.5
    assert constant(0.0) is not constant(-0.0)


def test_equal_subexpressions_are_one_object():
    a = parse("x * tanh(softplus(x))", ["x"])
    assert parse("x*tanh( softplus((x)) )", ["x"]) is a
    assert copy.deepcopy(a) is a
    assert copy.copy(a) is a
    assert pickle.loads(pickle.dumps(a)) is a
    assert len(order(gradients(a, dy, [x]))) < 15


# ---------------------------------------------------------------- text
def test_names_that_are_no_identifiers_stand_between_backticks():
    names = ["body mass", "x", "Größe"]
    formula = parse("`body mass` / x ** 2 + Größe", names)
    assert variables(formula) == ["body mass", "x", "Größe"]


MISTAKES = {
    "prise * 2": (0, "no name is called 'prise'; did you mean 'price'"),
    "2 + lgo(price)": (4, "no function is called 'lgo'; did you mean 'log'"),
    "price +": (7, "cannot be read"),
    "(price": (0, "cannot be read"),
    "": (0, "cannot be read"),
    "price[0]": (0, "names, numbers, arithmetic"),
    "'a' + price": (0, "numbers, not texts"),
    "1 + True": (4, "names, numbers, arithmetic"),
    "log(price, 2)": (0, "takes 1 arguments"),
    "`__import__`('os')": (0, "no function is called '__import__'"),
    "price // 2": (0, "names, numbers, arithmetic"),
    "price ** price": (0, "exponent must be a number"),
    "where(price, 1, 2)": (0, "must be a comparison"),
    "not price": (0, "must be a comparison"),
    "1 > 0": (0, r"must compare a variable \(got 1 and 0\)"),
    "where(1 > 0, price, 2)": (6, "must compare a variable"),
    "10 ** 10 ** 10 * price": (0, "must be finite"),
    "9" * 900: (0, "must be finite"),
    "(" * 900: (50, "nest at most"),
    "-" * 900 + "price": (0, "nest at most"),
    "price" + "+1" * 400: (0, "nest at most"),
    "(" * 500_000 + ")" * 500_000: (1000, "at most 1000 characters"),
    "price + " * 131_072: (1000, "at most 1000 characters"),
    "price\0": (5, "cannot be read"),
    "price # comment": (6, "cannot be read"),
    "Größe * price": (0, "no name is called 'Größe'"),
    "`a b + price": (0, "cannot be read"),
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda t: t[:20])
def test_mistakes_and_attacks_are_refused_at_their_character(text):
    position, says = MISTAKES[text]
    with pytest.raises(FormulaError, match=says) as caught:
        parse(text, ["price", *(f"column {k}" for k in range(99))])
    assert caught.value.position == position
    assert len(str(caught.value)) < 500


def test_shared_powers_do_not_explode():
    text = "x"
    for _ in range(40):
        text = f"({text}) ** 2"
    formula = parse(text, ["x"])
    assert numexpr_text(formula, {}) is None
    assert len(repr(formula)) < 200
    assert evaluate(formula, {"x": np.ones(3)}).tolist() == [1, 1, 1]
    assert len(in_steps({"y": formula}, {x: "x"})) == 40
    for _ in range(3000):
        formula = abs(formula) + y  # deep, but not refused
    assert len(gradients(formula, dy, [y])) == 1


ALIKE = {"\ufb01": "fi", "\u00b5": "\u03bc", "\u212b": "\u00c5", "x\u00b2": "x2"}
"""Names that are one to Python, and two to a table."""


@pytest.mark.parametrize("name", ALIKE, ids=ascii)
def test_names_that_look_alike_are_told_apart_in_formulas(name):
    names = {name: np.array([3.0]), ALIKE[name]: np.array([5.0])}
    for own, values in names.items():
        for text in (f"2 * {own}", f"2 * `{own}`"):
            assert evaluate(parse(text, names), names)[0] == 2 * values[0]
    assert evaluate(parse(f"{name} - {ALIKE[name]} * 1e1", names), names)[0] == 3 - 50
