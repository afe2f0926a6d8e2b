"""Scalar functions for exports: matrix-vector products, element-wise ops, norms and losses.

Sizes are arguments of the functions, so that layers of one kind share a function.
"""

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np

from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    Let,
    Return,
    Statement,
    Variable,
    called,
    element,
    lets,
    whole,
)
from mlpengine.backends.scalar.definitions import Constants, Functions, ParameterKind, real_constant
from mlpengine.backends.values import UnsupportedError
from mlpengine.backends.vector_rules import VectorRule
from mlpengine.formula import Expr, constant, exp, log, maximum, sqrt, variable, where
from mlpengine.ops import EntryLoss
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy

LONG_SUM = 64
"""Minimum length of an inner product for which the longer code with four sums is used."""


def dot(functions: Functions, length: int = 0) -> str:
    """Define the inner product of two vectors with about `length` entries; return its name.

    A long product is computed as four sums, so that the processor can overlap additions.  A
    compiler would not split the sum, because it must keep the order of additions.
    """
    parameters: dict[str, ParameterKind] = {"a": "reads", "b": "reads", "n": "count"}
    a, b, total = element("a", "i"), element("b", "i"), variable("sum")
    if length < LONG_SUM:
        return functions.add(
            "dot",
            parameters,
            [
                Variable("sum", constant(0)),
                ForLoop("i", 0, "n", [Assign(total, a * b, "+")]),
                Return(total),
            ],
            about="The sum of a[i] b[i]",
            result="real",
        )

    def product(k: int) -> Expr:
        return element("a", f"i + {k}") * element("b", f"i + {k}")

    sums = [variable(f"s{k}") for k in range(4)]
    pairs = [Assign(one, product(k) + product(k + 4), "+") for k, one in enumerate(sums)]
    return functions.add(
        "long_dot",
        parameters,
        [
            *(Variable(f"s{k}", constant(0)) for k in range(4)),
            ForLoop("i", 0, "n - n % 8", pairs, 8),
            ForLoop("i", "n - n % 8", "n", [Assign(sums[0], a * b, "+")]),
            Return((sums[0] + sums[2]) + (sums[1] + sums[3])),
        ],
        about="The sum of a[i] b[i], in four parts that do not wait for each other",
        result="real",
    )


def add_scaled(functions: Functions) -> str:
    """Define ``f(y, x, factor, n)``, which computes y += factor * x; return its name."""
    return functions.add(
        "add_scaled",
        {"y": "writes", "x": "reads", "factor": "number", "n": "count"},
        [
            ForLoop(
                "i",
                0,
                "n",
                [Assign(element("y", "i"), element("x", "i") * variable("factor"), "+")],
            )
        ],
        about="y += factor x",
    )


def _vectors(names: Sequence[str], kind: ParameterKind) -> dict[str, ParameterKind]:
    return {f"{name}_at": kind for name in names}


def _loads(names: Sequence[str], index: str) -> list[Statement]:
    return [Let(name, element(f"{name}_at", index)) for name in names]


def _stores(names: Sequence[str], index: str) -> list[Statement]:
    return [Assign(element(f"{name}_at", index), variable(name)) for name in names]


def dense_function(
    functions: Functions,
    steps: Sequence[tuple[VectorRule, Mapping[str, str]]],
    stored: Sequence[str],
    *,
    in_dim: int,
    operand: str = "x",
    reads: Sequence[str] = (),
    biased: bool = True,
    about: str = "",
) -> str:
    """Define a layer ``f(x, w, [b,] *reads, *stored, in, out)``; return its name.

    The formulas in `steps` follow the product w x + b.  The product is their variable `operand`;
    other variables are entries of the vectors `reads`.  Each rule in `steps` comes with the names
    of its values.  The values named `stored` are written to vectors with an entry for each unit.
    `in_dim` is the approximate number of inputs (see `dot`).
    """
    product = called(dot(functions, in_dim), "w + i * in_dim", "input", "in_dim")
    if biased:
        product = product + element("b", "i")
    body = [*_loads(reads, "i"), Let(operand, product)]
    for k, (rule, names) in enumerate(steps):
        body += [Let(*step) for step in rule.steps(names, f"t{k}_" if k else "t")]
    unit = ForLoop("i", 0, "out_dim", [*body, *_stores(stored, "i")])
    value = "w x" + " + b" * biased
    parameters: dict[str, ParameterKind] = {"input": "reads", "w": "reads"}
    parameters |= {"b": "reads"} if biased else {}
    parameters |= _vectors(reads, "reads") | _vectors(stored, "writes")
    return functions.add(
        "dense",
        parameters | {"in_dim": "count", "out_dim": "count"},
        [unit],
        about=f"{about}({value})" if about else value,
    )


def layer_norm_function(functions: Functions, eps: float, *, scaled: bool, biased: bool) -> str:
    """Define layer norm of a row, ``f(x, [scale,] [bias,] y, n)``; return its name.  y may be x."""
    given: dict[str, ParameterKind] = {"scale": "reads"} if scaled else {}
    given |= {"bias": "reads"} if biased else {}
    mean, variance, rstd = map(variable, ("mean", "variance", "rstd"))
    x, count = element("x", "i"), whole("n")
    value = (x - mean) * rstd
    value = value * element("scale", "i") if scaled else value
    value = value + element("bias", "i") if biased else value
    shown = "(x - mean) * rstd" + " * scale" * scaled + " + bias" * biased
    return functions.add(
        "layer_norm",
        {"x": "reads", **given, "y": "writes", "n": "count"},
        [
            Variable("mean", constant(0)),
            Variable("variance", constant(0)),
            ForLoop("i", 0, "n", [Assign(mean, x, "+")]),
            Assign(mean, count, "/"),
            ForLoop("i", 0, "n", [Assign(variance, (x - mean) * (x - mean), "+")]),
            Let("rstd", 1 / sqrt(variance / count + eps)),
            ForLoop("i", 0, "n", [Assign(element("y", "i"), value)]),
        ],
        about=f"y = {shown}, with rstd = 1 / sqrt(variance + eps)",
    )


def softmax_function(functions: Functions, *, log_of: bool = False) -> str:
    """Define softmax, or with `log_of` its logarithm, ``f(x, y, n)``; return its name."""
    x, y, highest, total = (
        element("x", "i"),
        element("y", "i"),
        variable("highest"),
        variable("sum"),
    )
    if log_of:
        terms = [Assign(y, x - highest), Assign(total, exp(y), "+")]
        last: list[Statement] = [Assign(total, log(total))]
    else:
        terms = [Assign(y, exp(x - highest)), Assign(total, y, "+")]
        last = []
    return functions.add(
        "log_softmax" if log_of else "softmax",
        {"x": "reads", "y": "writes", "n": "count"},
        [
            Variable("highest", element("x", 0)),
            Variable("sum", constant(0)),
            ForLoop("i", 1, "n", [Assign(highest, maximum(x, highest))]),
            ForLoop("i", 0, "n", terms),
            *last,
            ForLoop("i", 0, "n", [Assign(y, total, "-" if log_of else "/")]),
        ],
        about=f"y = {'log(softmax(x))' if log_of else 'softmax(x)'}",
    )


def back_dense(
    functions: Functions, rule: VectorRule | None, reads: Sequence[str], *, about: str
) -> str:
    """Define the input gradient of a layer, ``f(dy, w, dx, *reads, in, out)``; return its name.

    `rule` is the backward formula of the activation before the layer, or None.  Its variable ``dy``
    is the product of dy and w; its other variables are entries of the vectors `reads`.
    """
    add = f"{add_scaled(functions)}(dx, w + i * in_dim, factor, in_dim);"
    lines: list[Statement] = [
        ForLoop("j", 0, "in_dim", [Assign(element("dx", "j"), constant(0))]),
        ForLoop("i", 0, "out_dim", [Let("factor", element("dy_of", "i")), add]),
    ]
    if rule is not None:
        (result,) = rule.outputs
        names = {name: name for name in rule.given} | {result: "slope"}
        slope: list[Statement] = [Let("dy", element("dx", "j"))] if "dy" in rule.reads else []
        slope += [*_loads(reads, "j"), *(Let(*step) for step in rule.steps(names, "t"))]
        slope.append(Assign(element("dx", "j"), variable("slope")))
        lines.append(ForLoop("j", 0, "in_dim", slope))
    parameters: dict[str, ParameterKind] = {"dy_of": "reads", "w": "reads", "dx": "writes"}
    parameters |= _vectors(reads, "reads")
    return functions.add(
        "back_dense",
        parameters | {"in_dim": "count", "out_dim": "count"},
        lines,
        about=about,
    )


def each(functions: Functions, rule: VectorRule, *, about: str) -> str:
    """Define an element-wise function of vectors, ``f(*reads, *writes, n)``; return its name."""
    names = {name: name for name in (*rule.given, *rule.outputs)}
    steps = [Let(*step) for step in rule.steps(names, "t")]
    body = [*_loads(rule.reads, "i"), *steps, *_stores(rule.writes, "i")]
    return functions.add(
        "each",
        {**_vectors(rule.reads, "reads"), **_vectors(rule.writes, "writes"), "n": "count"},
        [ForLoop("i", 0, "n", body)],
        about=about,
    )


# ---------------------------------------------------------------- losses
def loss_function(functions: Functions, about: str, body: Sequence[Statement]) -> str:
    """Define the loss of a row, ``real f(output, target, slope)``; return its name."""
    parameters: dict[str, ParameterKind] = {
        "output": "reads", "target": "reads", "slope_at": "writes"
    }  # fmt: skip
    return functions.add("loss", parameters, body, about=about, result="real")


def entry_loss(op: EntryLoss, entries: int) -> list[Statement]:
    """Return the body of a `loss_function` over `entries` targets, such as the squared error."""
    f, count = op.formulas, op.columns
    value: Expr = f.entry
    if op.has_target_range:
        value = where(op.outside(f.targets[0]), nan, value)
    places, given = (
        ["i" if n == 1 else f"i * {n} + {k}" for k in range(n)] for n in (count, op.target_columns)
    )
    names = {
        **{t: f"t{k}" for k, t in enumerate(f.targets)},
        **{o: f"o{k}" for k, o in enumerate(f.outputs)},
    }
    outputs = {"value": value, **{f"slope{k}": f.slopes[k] for k in range(count)}}
    total, scales = variable("sum"), [scale / entries for scale in f.scales[:count]]
    body: list[Statement] = [
        *(Let(f"t{k}", element("target", place)) for k, place in enumerate(given)),
        *(Let(f"o{k}", element("output", place)) for k, place in enumerate(places)),
        *lets(outputs, names, "e"),
        Assign(total, variable("value") * (f.value_scale / entries), "+"),
        *(
            Assign(element("slope_at", place), variable(f"slope{k}") * scales[k])
            for k, place in enumerate(places)
        ),
    ]
    return [Variable("sum", constant(0)), ForLoop("i", 0, entries, body), Return(total)]


def cross_entropy(functions: Functions, op: SoftmaxCrossEntropy, columns: int) -> list[Statement]:
    """Return the body of sum(q) log(sum(exp(o))) - sum(q o), with outputs o and target row q."""
    if op.ignore_index is not None:
        raise UnsupportedError(op.name)
    smoothing, weight = float(op.label_smoothing), ""
    if op.class_weights is not None:
        functions.definitions.append(Constants("class_weights", np.array(op.class_weights)))
        weight = " * class_weights[j]"
    hot = f"(j == label ? {real_constant(1 - smoothing + smoothing / columns)} : "
    target_row = f"{hot}{real_constant(smoothing / columns)}){weight}"
    return [
        "real highest = output[0], total = 0, mass = 0, picked = 0;",
        f"if (!(target[0] >= 0 && target[0] < {real_constant(columns)})) return R(NAN);",
        "const size_t label = (size_t)target[0];",
        "if (R(label) != target[0]) return R(NAN);",
        ForLoop("j", 1, columns, ["highest = vmax(output[j], highest);"]),
        ForLoop(
            "j",
            0,
            columns,
            [
                f"const real q = {target_row};",
                "total += slope_at[j] = v_exp(output[j] - highest);",
                "mass += q;",
                "picked += q * (output[j] - highest);",
            ],
        ),
        ForLoop("j", 0, columns, [f"slope_at[j] = slope_at[j] * (mass / total) - {target_row};"]),
        "return v_log(total) * mass - picked;",
    ]
