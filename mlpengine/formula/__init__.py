"""Element-wise functions as data: the code for every target is derived from one formula.

A formula is a graph of `Expr` nodes, built with Python's operators and the functions here, or
parsed from text against a white list::

    >>> from mlpengine.formula import gradients, parse, tanh, softplus, variable
    >>> x, dy = variable("x"), variable("dy")
    >>> mish = x * tanh(softplus(x))
    >>> parse("x * tanh(softplus(x))", ["x"]) is mish
    True
    >>> mish
    mul(x, tanh(softplus(x)))
    >>> (dx,) = gradients(mish, dy, [x])

`parse(text, names)` raises `FormulaError`; its `position` is the character that cannot be read.
`variables(formula)` are the names that a formula reads; `formula.is_mask` tells whether its value
is a bool.  `evaluate(formula, {"x": array})` computes it once; the targets compile it:

* `plan(outputs, given)` and `Plan.calls`: bound NumPy calls on planned work buffers;
* `in_steps(outputs, given)`: one function at a time, in order, for languages of statements;
* `c_expression(formula, itemsize)`: C that serves vectors (kind ``vec``) and numbers (``real``,
  after the macros `SCALARS`; ``double``, by math.h);
* `numexpr_text(formula, names)`; `onnx_node(formula, given, add_node, add_constant)`.

`gradients` differentiates; `saved_for_backward` returns the values that forward keeps.  The
functions are the rows of `FUNCTIONS`; to add one, add a row.
"""

from mlpengine.formula.calls import Plan, evaluate, plan
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
from mlpengine.formula.text import FUNCTION_NAMES, parse, parse_number

__all__ = [
    "BINDS",
    "C_MASKS",
    "FUNCTIONS",
    "FUNCTION_NAMES",
    "SCALARS",
    "Expr",
    "Function",
    "Plan",
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
