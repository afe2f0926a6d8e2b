"""Statements as JavaScript: Node computes what C does, number by number."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from scipy import special

from mlpengine.backends.compiled.target import compiler_command
from mlpengine.backends.scalar.javascript import JavaScript
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.statements import FUNCTION_KINDS, ConstantArray, read_statements
from mlpengine.backends.values import UnsupportedError

STATEMENTS = """\
/* A vector and whole numbers */
static const real weights[3] = {
  0.5, R(-0.1), R(3e-1),
};
static const unsigned short places[2] = {
  2, 0,
};

/* Everything that a statement may be */
static real everything(const real *x, real *in, size_t n)
{
  real sum = 0, others[20] = {0};
  real *const last = others + 19;
  for (size_t i = 0; i < n; i++) sum += in[i] = x[i] * weights[i % 3] - (1 - x[i]) / 3;
  for (const real *at = x; n >= 2; n -= 2, at += 2) *_AT_;
  size_t k = 3;
  while (k-- > 1) last[0] += R(k) * R(0.1);
  if (is_nan(sum)) return NAN;
  else if (sum > 100 && !(x[0] == x[1])) sum = -sum;
  else { sum /= R(7); sum -= 1; }
  const int whole = (int)(sum * 10), odd = whole % 2 != 0 || sum < 0;
  int usable = 1;
  usable &= is_finite(sum);
  in[places[0]] = usable ? vselect(odd, last[0], v_pow(sum, 2.0)) : INFINITY;
  return sum + R(whole / 2) + R(odd) + M(floor)(in[1]) * splat(0.1);
}

real outside(const real *x, real *y)
{
  real copy[3];
  const real value = everything(x + 1, copy, 3);
  for (size_t i = 0; i < 3; i++) y[i] = copy[i];
  return value;
}
""".replace("*_AT_;", "sum += at[0] * at[1];")


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
    (tmp_path / "n.c").write_text(
        head + mathematics(STATEMENTS, "N", libm=True) + STATEMENTS + main
    )
    command = [*compiler_command(), "-std=c99", "-O0", "-ffp-contract=off", "n.c", "-o", "n", "-lm"]
    subprocess.run(command, check=True, cwd=tmp_path)
    lines = subprocess.run([tmp_path / "n"], check=True, capture_output=True, text=True).stdout
    expected = np.array([line.split() for line in lines.splitlines()], float)

    script = JavaScript(real == "float")
    script.add(read_statements(STATEMENTS))
    x, y = script.reserve(4), script.reserve(3)
    call = f"{json.dumps(rows.tolist())}.map((row) => {{ $memory.set(row, {x}); "
    call += f"return [outside({x}, {y}), ...$memory.subarray({y}, {y} + 3)]; }})"
    np.testing.assert_array_equal(in_node(script.text(), call), expected)


TRUTH = {
    "is_finite": np.isfinite,
    "is_nan": np.isnan,
    **dict.fromkeys(("vmax", "v_maximum"), lambda x: np.maximum(x, 0.5)),
    **dict.fromkeys(("vmin", "v_minimum"), lambda x: np.minimum(x, 0.5)),
    "v_sign": np.sign,
    "v_abs": np.abs,
    **{f"v_{name}": getattr(np, name) for name in ("sqrt", "exp", "expm1", "log", "log1p")},
    **{f"v_{name}": getattr(np, name) for name in ("log2", "sin", "cos", "tanh")},
    "v_expm1_below_0": np.expm1,
    "v_sigmoid": special.expit,
    "v_softplus": lambda x: np.logaddexp(0, x),
    "v_log1p_exp_of_minus_abs": lambda x: np.log1p(np.exp(-np.abs(x))),
    "v_normal_cdf": special.ndtr,
    "v_not": lambda x: x == 0,
    "v_pow": lambda x: x**0.5,
    "floor": np.floor,
}
"""What SciPy and NumPy compute; of two arguments the second is 0.5."""


def test_functions_are_those_of_the_formulas(node):
    x = np.concatenate([np.linspace(-30, 30, 121), [-700.0, 700.0, 1e-9, 0.0]])
    two = ("vmax", "vmin", "v_maximum", "v_minimum", "v_pow")
    script, calls = JavaScript(single=False), []
    for i, name in enumerate(FUNCTION_KINDS):
        arguments = f"{'M(floor)' if name == 'floor' else name}(x[0]{', x[1]' * (name in two)})"
        script.add(read_statements(f"static real f{i}(const real *x) {{ return R({arguments}); }}"))
        calls.append(f"f{i}")
    at = script.reserve(2)
    call = f"[{', '.join(calls)}].map((f) => {x.tolist()}.map((one) => {{ "
    call += f"$memory.set([one, 0.5], {at}); return f({at}); }}))"
    for name, got in zip(FUNCTION_KINDS, in_node(script.text(), call), strict=True):
        with np.errstate(all="ignore"):
            expected = TRUTH[name](x)
        expected = np.where(np.isfinite(expected), expected, np.nan)  # as JSON has it
        got = np.array(got, float)
        np.testing.assert_allclose(got, expected, rtol=3e-15, atol=5e-17, err_msg=name)


def test_numbers_are_read_as_they_were_written():
    from mlpengine.backends.scalar.text import constants

    values = np.array([0.1, -2.5, 1e300, 3e-9, np.inf, *np.linspace(-1, 1, 40)])
    (one,) = read_statements(constants("values", values))
    assert isinstance(one, ConstantArray)
    np.testing.assert_array_equal(one.values, values)


@pytest.mark.parametrize(
    "text",
    [
        "goto end;",
        "real y = &x[0];",
        "uint32_t bits = 0;",
        "y[0] = unknown(x);",
        "real several[n];",
        "1 += 2;",
    ],
)
def test_what_is_no_statement_is_refused(text):
    with pytest.raises(UnsupportedError, match="the statement "):
        read_statements(f"void f(const real *x, real *y, size_t n)\n{{\n  {text}\n}}\n")
