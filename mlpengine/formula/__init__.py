"""Element-wise functions as data: one formula gives the code for every target.

A formula is a graph of `Expr` nodes.  Build it with Python's operators and the functions of this
package, or parse it from text; `parse` accepts a fixed list of names only::

    >>> from mlpengine.formula import gradients, parse, tanh, softplus, variable
    >>> x, dy = variable("x"), variable("dy")
    >>> mish = x * tanh(softplus(x))
    >>> parse("x * tanh(softplus(x))", ["x"]) is mish
    True
    >>> mish
    mul(x, tanh(softplus(x)))
    >>> (dx,) = gradients(mish, dy, [x])

`parse(text, names)` raises `FormulaError`; its `position` is the first character that cannot be
read.  `variables(formula)` are the names that a formula reads; `formula.is_mask` tells whether its
value is a bool.  `evaluate(formula, {"x": array})` computes a value.  Targets compile a formula:

* `plan(outputs, given)` and `Plan.calls`: bound NumPy calls on planned work buffers;
* `in_steps(outputs, given)`: one function a statement, for other languages;
* `c_expression(formula, itemsize)`: C for vectors (kind ``vec``) or single numbers (``real``, with
  the macros `SCALARS`; ``double``, with math.h);
* `numexpr_text(formula, names)`; `onnx_node(formula, given, add_node, add_constant)`.

`gradients` differentiates; `saved_for_backward` returns the values that forward keeps.  To add a
function, add a row to `FUNCTIONS`.
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
