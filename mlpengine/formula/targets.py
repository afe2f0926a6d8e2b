"""Code for formulas in C (for vectors or single numbers), NumExpr and ONNX."""

from collections.abc import Callable, Mapping
from math import isinf, isnan

import numpy as np

from mlpengine.formula.expr import FUNCTIONS, Expr, order, variable

LONGEST_TEXT = 10_000
"""Maximum length of a text for NumExpr; NumPy computes formulas with longer texts."""

SCALARS = """\
#define splat(x) ((real)(x))
#define vselect(c, a, b) ((c) ? (a) : (b))
#define vmax(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define vmin(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define v_maximum(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define v_minimum(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define v_not(c) (!(c))
#define v_sign(x) ((x) > 0 ? splat(1) : (x) < 0 ? splat(-1) : (x))
#define v_abs M(fabs)
#define v_sqrt M(sqrt)
#define v_exp M(exp)
#define v_expm1 M(expm1)
#define v_expm1_below_0 v_expm1
#define v_log M(log)
#define v_log1p M(log1p)
#define v_log2 M(log2)
#define v_sin M(sin)
#define v_cos M(cos)
#define v_tanh M(tanh)
#define v_pow(x, n) M(pow)(x, splat(n))
#define v_sigmoid(x) \\
  ((x) < 0 ? v_exp(x) / (splat(1) + v_exp(x)) : splat(1) / (splat(1) + v_exp(-(x))))
#define v_log1p_exp_of_minus_abs(x) v_log1p(v_exp(-v_abs(x)))
#define v_softplus(x) (vmax(x, splat(0)) + v_log1p(v_exp(-v_abs(x))))
#define v_normal_cdf(x) (splat(0.5) * M(erfc)((x) * splat(-0.70710678118654752440)))
"""
"""C macros that define the functions of `c_expression` for single numbers.

They need ``typedef float real;`` (or double), and a macro M that adds the suffix of this type to
the name of a function of math.h."""


def in_steps(
    outputs: Mapping[str, Expr], given: Mapping[Expr, "str | Expr"], prefix: str = "t"
) -> list[tuple[str, Expr]]:
    """Return the steps that compute `outputs`, as (name, expression).

    Each node becomes one step, in the order of computation.  An expression is one function; its
    arguments are constants, variables or names of earlier steps.  `given` maps known nodes to
    names, variables or constants.  Steps that are not outputs get names such as ``t0``.
    """
    known = {node: variable(x) if isinstance(x, str) else x for node, x in given.items()}
    wanted = {node: name for name, node in reversed(list(outputs.items()))}
    steps: list[tuple[str, Expr]] = []
    for node in order(outputs.values(), given):
        if node in known or not node.args:
            continue
        args = tuple(a if a.number is not None else known[a] for a in node.args)
        name = wanted.get(node, f"{prefix}{len(steps)}")
        steps.append((name, Expr(node.name, args)))
        known[node] = variable(name)
    named = {name for name, _ in steps}
    steps += [(name, known.get(node, node)) for name, node in outputs.items() if name not in named]
    return steps


BINDS = {
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), 1),
    **dict.fromkeys(("logical_or", "logical_and"), 2),
    **dict.fromkeys(("add", "sub"), 3),
    **dict.fromkeys(("mul", "div", "expm1_below_0"), 4),
    "neg": 5,
}
"""Precedence of functions that are operators in C; other functions are calls in C."""


def c_expression(node: Expr, itemsize: int, kind: str = "vec") -> str:
    """Return a formula as one C expression.

    ``kind`` is "vec" for vectors (needs the headers of the compiled backend), "real" for single
    numbers (needs `SCALARS`) or "double" (needs math.h).  A function that is not in `FUNCTIONS` is
    in `SCALAR_FUNCTIONS`, or else is called by its name in C.
    """
    if node.number is not None:
        literal = c_number(node.number, itemsize)
        return literal if kind == "double" else f"splat({literal})"
    if not node.args:
        return str(node.leaf)
    args = [c_expression(a, itemsize, kind) for a in node.args]
    if node.name not in FUNCTIONS:
        template = SCALAR_FUNCTIONS.get(node.name)
        return f"{node.name}({', '.join(args)})" if template is None else template.format(*args)
    template = FUNCTIONS[node.name].c
    if node.args[-1].number is not None:  # a constant is never NaN
        template = template.replace("v_maximum", "vmax").replace("v_minimum", "vmin")
    if node.name == "pow" and (exponent := node.args[1].number) is not None:
        template = "{0} * {0} * {0}" if exponent == 3 else template
        args[1] = c_number(exponent, itemsize)
    if kind == "double":
        template = template.replace("v_abs", "fabs").replace("v_", "")
    if own := BINDS.get(node.name):
        binds = (BINDS.get(a.name, 9) for a in node.args)
        needed = (own, own + 1)
        args = [t if b >= n else f"({t})" for t, b, n in zip(args, binds, needed, strict=False)]
    return template.format(*args)


SCALAR_FUNCTIONS = {
    "element": "{}[{}]",
    "whole": "R({})",
    "is_nan": "is_nan({})",
    "not_finite": "!is_finite({})",
    "floor": "M(floor)({})",
}
"""C code of functions that only exported programs use, such as reading an entry of a vector."""

C_MASKS = {"vec": "ivec", "real": "int", "double": "int"}
"""The C type of a bool, by the C type of a number."""


def c_number(value: float, itemsize: int) -> str:
    """Return a C constant for `value`, rounded to the dtype with `itemsize` bytes."""
    if itemsize == 4:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if isnan(value):
        return "NAN"
    if isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value!r}f" if itemsize == 4 else repr(value)


def numexpr_text(formula: Expr, names: Mapping[Expr, str]) -> str | None:
    """Return text for NumExpr, or None if NumExpr lacks a function or the text is too long.

    `names` maps variables and constants to names.  Constants need names, because a number in the
    text would make NumExpr promote float32 operands to float64.
    """
    texts: dict[Expr, str] = {}
    for node in order([formula], names):
        if node in names:
            texts[node] = names[node]
            continue
        if not node.args:
            texts[node] = f"({node.leaf!r})" if node.number is not None else str(node.leaf)
            continue
        function = FUNCTIONS[node.name]
        if function.numexpr is None:
            return None
        template = function.numexpr or function.c.replace("v_", "")
        texts[node] = f"({template.format(*(texts[a] for a in node.args))})"
        if len(texts[node]) > LONGEST_TEXT:
            return None
    return texts[formula]


def onnx_node(
    formula: Expr,
    given: Mapping[Expr, str],
    add_node: Callable[..., str],
    add_constant: Callable[[float], str],
) -> str:
    """Add the formula as ONNX nodes; return the name of its value.

    ``add_node(operator, *inputs)`` and ``add_constant(number)`` return the name of a new value.
    """
    names = dict(given)

    def write(node: Expr) -> str:
        if node not in names:
            names[node] = _written(node)
        return names[node]

    def _written(node: Expr) -> str:
        if node.number is not None:
            return add_constant(node.number)
        rule = FUNCTIONS[node.name].onnx if node.name in FUNCTIONS else node.name
        if callable(rule):
            return write(rule(*node.args))
        return add_node(rule, *(write(a) for a in node.args))

    return write(formula)
