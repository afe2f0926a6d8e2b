"""Statements as C and as JavaScript: Node computes what C does, number by number."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    If,
    Let,
    Memory,
    Return,
    Scope,
    Switch,
    Variable,
    Whole,
    called,
    element,
    floor,
    is_nan,
    not_finite,
    vselect,
    whole,
)
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.backends.scalar.definitions import Constants, ScalarFunction, c_definitions
from mlpengine.backends.scalar.javascript import JavaScript
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.values import UnsupportedError
from mlpengine.formula import FUNCTIONS, Expr, constant, evaluate, make, variable, where

x, total, t = element("x", "i"), variable("sum"), variable("t")
DEFINITIONS = [
    Constants("weights", np.array([0.5, -0.1, 3e-1])),
    Constants("table", np.linspace(-1, 1, 40)),
    Constants("places", np.array([2, 0]), "unsigned short", by_name=True),
    ScalarFunction(
        "everything",
        {"x": "reads", "y": "writes", "factor": "number", "n": "count"},
        [
            Variable("sum", constant(0)),
            Memory("others", 20, zeros=True),
            Whole("usable", "1"),
            ForLoop(
                "i",
                0,
                "n",
                [
                    Let("t", x * element("weights", "i % 3") - (1 - x) / 3),
                    Assign(element("y", "i"), t),
                    Assign(total, t, "+"),
                ],
            ),
            ForLoop("i", 0, 20, [Assign(element("others", "i"), whole("i") * 0.1)], 3),
            Assign(total, element("table", "n * 7") * element("others", 9), "-"),
            Assign(total, constant(7), "/"),
            If(is_nan(total), [Return(constant(np.nan))], [Assign(total, constant(1), "-")]),
            If((total > 2) & ~(element("x", 0) > element("x", 1)), [Assign(total, -total)]),
            If(not_finite(total), ["usable = 0;"]),
            Scope([Let("t", floor(total * 10)), Assign(total, where(t > 3, t / 2, total), "+")]),
            If(
                "usable",
                [
                    Assign(
                        element("y", "places[0]"),
                        vselect(
                            is_nan(total), constant(np.inf), total - (total - variable("factor"))
                        ),
                    )
                ],
            ),
            Return(total + element("y", 1)),
        ],
        "Everything that a statement may be",
        "real",
    ),
    ScalarFunction(
        "outside",
        {"x": "reads", "y": "writes"},
        [
            Memory("copy", 3),
            Let("value", called("everything", "x + 1", "copy", "R(0.3)", "3")),
            ForLoop("i", 0, 3, [Assign(element("y", "i"), element("copy", "i"))]),
            Return(variable("value")),
        ],
        result="real",
        static=False,
    ),
]


@pytest.fixture
def node():
    if shutil.which("node") is None:
        pytest.skip("needs node")


def in_node(text, call):
    done = subprocess.run(
        ["node", "-e", f"{text}\nconsole.log(JSON.stringify({call}))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("real", ["float", "double"])
def test_statements_give_the_bits_of_c(node, tmp_path, real):
    rows = np.random.default_rng(3).standard_normal((20, 4)).astype("f4") * 30
    main = """
    int main(void) {
      static const real rows[20][4] = {%s};
      for (int i = 0; i < 20; i++) {
        real y[3];
        const real value = outside(rows[i], y);
        printf("%%.17g", (double)value);
        for (int k = 0; k < 3; k++) printf(" %%.17g", (double)y[k]);
        puts("");
      }
    }
    """ % ", ".join("{" + ", ".join(map(repr, row.tolist())) + "}" for row in rows)  # noqa: UP031
    head = "#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
    head += f"#define N_REAL {real}\n#define N_DOUBLE {int(real == 'double')}\n"
    text = c_definitions(DEFINITIONS)
    (tmp_path / "n.c").write_text(head + mathematics(text, "N") + text + main)
    command = [*compiler_command(), "-std=c99", "-O0", "-ffp-contract=off", "n.c", "-o", "n", "-lm"]
    subprocess.run(command, check=True, cwd=tmp_path)
    lines = subprocess.run([tmp_path / "n"], check=True, capture_output=True, text=True).stdout
    expected = np.array([line.split() for line in lines.splitlines()], float)

    script = JavaScript(real == "float")
    script.add(DEFINITIONS)
    at, to = script.reserve(4), script.reserve(3)
    call = f"{json.dumps(rows.tolist())}.map((row) => {{ $memory.set(row, {at}); "
    call += f"return [outside({at}, {to}), ...$memory.subarray({to}, {to} + 3)]; }})"
    np.testing.assert_array_equal(in_node(script.text(), call), expected)


A, B = variable("a"), variable("b")
SPECIAL = {
    "clip": make("clip", A, -0.25, 0.75),
    "expm1_below_0": make("mul", make("expm1", make("minimum", A, 0)), 1.5),
    "logical_and": (A > B) & (A < 3),
    "logical_not": ~(A > B),
    "logical_or": (A > B) | (A < 3),
    "pow": make("pow", A, 0.25),
    "where": where(A > B, A, B),
}


def test_functions_are_those_of_the_formulas(node):
    points = np.concatenate([np.linspace(-30, 30, 121), [-700.0, 700.0, 1e-9, 0.0]])
    script, calls, formulas = JavaScript(single=False), [], {}
    for name, function in FUNCTIONS.items():
        value = SPECIAL.get(name, Expr(name, (A, B)[: function.arity]))
        formulas[name] = value = make("where", value, 1, 0) if value.is_mask else value
        body = [Let("a", element("x", 0)), Let("b", element("x", 1)), Return(value)]
        script.add([ScalarFunction(f"f_{name}", {"x": "reads"}, body, result="real")])
        calls.append(f"f_{name}")
    at = script.reserve(2)
    call = f"[{', '.join(calls)}].map((f) => {points.tolist()}.map((one) => {{ "
    call += f"$memory.set([one, 0.5], {at}); return f({at}); }}))"
    for name, got in zip(FUNCTIONS, in_node(script.text(), call), strict=True):
        with np.errstate(all="ignore"):
            expected = 1.0 * evaluate(formulas[name], {"a": points, "b": np.full_like(points, 0.5)})
        expected = np.where(np.isfinite(expected), expected, np.nan)  # as JSON has it
        got = np.array(got, float)
        np.testing.assert_allclose(got, expected, rtol=3e-15, atol=5e-17, err_msg=name)


def test_what_has_no_javascript_is_refused():
    body = [Switch("n", [(1, "one();")])]
    with pytest.raises(UnsupportedError, match="the statement Switch"):
        JavaScript(single=True).add([ScalarFunction("f", {"n": "count"}, body)])
