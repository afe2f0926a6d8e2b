"""Element-wise functions as data; NumPy, C, NumExpr and ONNX code is generated from them.

A formula is a graph of `Expr` nodes.  Build a formula with Python's operators and the functions of
this package, or parse text; `parse` accepts only a fixed list of functions::

    >>> from mlpengine.formula import gradients, parse, tanh, softplus, variable
    >>> x, dy = variable("x"), variable("dy")
    >>> mish = x * tanh(softplus(x))
    >>> parse("x * tanh(softplus(x))", ["x"]) is mish
    True
    >>> mish
    mul(x, tanh(softplus(x)))
    >>> (dx,) = gradients(mish, dy, [x])

`parse(text, names)` raises `FormulaError` with the `position` of the first wrong character.
`variables(formula)` returns the names in a formula.  `formula.is_mask` tells whether the value is a
bool.  `evaluate(formula, {"x": array})` computes the value.  These functions generate code:

* `plan(outputs, given)` and `Plan.calls`: bound NumPy calls on planned work buffers;
* `in_steps(outputs, given)`: steps with one function each, for other languages;
* `c_expression(formula, itemsize)`: C for vectors or, with the macros `SCALARS`, single numbers;
* `numexpr_text(formula, names)`: text for NumExpr;
* `onnx_node(formula, given, add_node, add_constant)`: ONNX nodes.

`gradients` differentiates a formula.  `saved_for_backward` chooses the values that the forward pass
keeps for the backward pass.  To add a function, add a row to `FUNCTIONS`.
"""

from mlpengine.formula.calls import Plan, bound, evaluate, plan
from mlpengine.formula.expr import (
    FUNCTIONS,
    Expr,
    Function,
    clip,
    constant,
    cos,
    equal,
    exp,
    expm1,
    gradients,
    log,
    log1p,
    log2,
    make,
    maximum,
    minimum,
    normal_cdf,
    not_equal,
    order,
    power,
    saved_for_backward,
    sigmoid,
    sign,
    sin,
    softplus,
    softplus_tail,
    sqrt,
    tanh,
    variable,
    variables,
    where,
)
from mlpengine.formula.targets import (
    BINDS,
    C_MASKS,
    SCALARS,
    c_expression,
    c_number,
    in_steps,
    numexpr_text,
    onnx_node,
)
from mlpengine.formula.text import parse, parse_number

__all__ = [
    "BINDS",
    "C_MASKS",
    "FUNCTIONS",
    "SCALARS",
    "Expr",
    "Function",
    "Plan",
    "bound",
    "c_expression",
    "c_number",
    "clip",
    "constant",
    "cos",
    "equal",
    "evaluate",
    "exp",
    "expm1",
    "gradients",
    "in_steps",
    "log",
    "log1p",
    "log2",
    "make",
    "maximum",
    "minimum",
    "normal_cdf",
    "not_equal",
    "numexpr_text",
    "onnx_node",
    "order",
    "parse",
    "parse_number",
    "plan",
    "power",
    "saved_for_backward",
    "sigmoid",
    "sign",
    "sin",
    "softplus",
    "softplus_tail",
    "sqrt",
    "tanh",
    "variable",
    "variables",
    "where",
]
