"""C functions of the kernels of a network: products, element-wise maps, losses.

Sizes are arguments, so that layers of one kind share a function; its name comes from `Functions`.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, nan

from mlpengine.backends.rules import VectorRule
from mlpengine.backends.scalar.text import Functions, constants, indented, real_constant
from mlpengine.backends.values import UnsupportedError
from mlpengine.formula import Expr, c_statements, where
from mlpengine.ops import EntryLoss
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy

REAL = 8
"""Size that `c_statements` prints constants for: all digits, which ``real`` rounds once."""


LONG_SUM = 64
"""Length from which the terms of a sum are added in four parts; shorter sums have less code."""


def dot(functions: Functions, length: int = 0) -> str:
    """Return the inner product of two vectors, of about `length` entries.

    Where it is long, it is the sum of four sums of pairs, which do not wait for each other: the
    order of additions is that of the text, without vectors too.
    """
    if length < LONG_SUM:
        return functions.add(
            "dot",
            "const real *a, const real *b, size_t n",
            "  real sum = 0;\n  for (size_t i = 0; i < n; i++) sum += a[i] * b[i];\n"
            "  return sum;\n",
            about="The sum of a[i] b[i]",
            result="real",
        )
    pairs = "".join(f"    s{k} += a[{k}] * b[{k}] + a[{k + 4}] * b[{k + 4}];\n" for k in range(4))
    return functions.add(
        "long_dot",
        "const real *a, const real *b, size_t n",
        "  real s0 = 0, s1 = 0, s2 = 0, s3 = 0;\n"
        f"  for (; n >= 8; n -= 8, a += 8, b += 8) {{\n{pairs}  }}\n"
        "  for (size_t i = 0; i < n; i++) s0 += a[i] * b[i];\n"
        "  return (s0 + s2) + (s1 + s3);\n",
        about="The sum of a[i] b[i], in four parts, none of which waits for another",
        result="real",
    )


def add_scaled(functions: Functions) -> str:
    """Return the function that adds a multiple of a vector to another."""
    return functions.add(
        "add_scaled",
        "real *y, const real *x, real factor, size_t n",
        "  for (size_t i = 0; i < n; i++) y[i] += x[i] * factor;\n",
        about="y += factor x",
    )


def _pointers(names: Sequence[str], kind: str) -> str:
    return "".join(f", {kind} *{name}_at" for name in names)


def _rows(body: Sequence[str], advanced: Mapping[str, str], *, batched: bool) -> str:
    """Return a loop over the rows of a batch, with pointers that advance by a length each."""
    if not batched:
        return indented(body)
    steps = [f"{name} += {length};" for name, length in advanced.items()]
    lines = indented([*body, *steps], "    ")
    return f"  for (size_t row = 0; row < rows; row++) {{\n{lines}  }}\n"


def dense_function(
    functions: Functions,
    steps: Sequence[tuple[VectorRule, Mapping[str, str]]],
    stored: Sequence[str],
    *,
    in_dim: int,
    operand: str = "x",
    reads: Sequence[str] = (),
    biased: bool = True,
    batched: bool = False,
    scaled: bool = False,
    about: str = "",
) -> str:
    """Return a layer's forward: ``f(x, w, [b,] *reads, *stored, [factor,] [rows,] in, out)``.

    `steps` are the rules that follow the product, each with the C names of its values, and `about`
    their names; `in_dim` is about in, which chooses the `dot`, `operand` is the name of the
    product, `reads` are those of other values that they read, a number for each unit, and `stored`
    those of values that are kept.  The product is multiplied by a factor if `scaled`, before the
    bias, if there is one, is added.
    """
    product = f"{dot(functions, in_dim)}(w + i * in, input, in)" + " * factor" * scaled
    lines = [
        "for (size_t i = 0; i < out; i++) {",
        *(f"  const real {name} = {name}_at[i];" for name in reads),
        f"  const real {operand} = {product}{' + b[i]' * biased};",
    ]
    for k, (rule, names) in enumerate(steps):
        prefix = f"t{k}_" if k else "t"
        lines += [f"  {line}" for line in rule.statements(names, REAL, "real", prefix)]
    lines += [f"  {name}_at[i] = {name};" for name in stored]
    advanced = {"input": "in", **{f"{name}_at": "out" for name in stored}}
    value = "factor w x" if scaled else "w x"
    value += " + b" * biased
    return functions.add(
        "dense",
        f"const real *input, const real *w{', const real *b' * biased}"
        f"{_pointers(reads, 'const real')}"
        f"{_pointers(stored, 'real')}{', real factor' * scaled}{', size_t rows' * batched}"
        ", size_t in, size_t out",
        _rows([*lines, "}"], advanced, batched=batched),
        about=(f"{about}({value})" if about else value) + ", row by row" * batched,
    )


def layer_norm_function(functions: Functions, eps: float, *, scaled: bool, biased: bool) -> str:
    """Return layer norm of a row: ``f(x, [scale,] [bias,] y, n)``; y may be x."""
    given = ["scale"] * scaled + ["bias"] * biased
    value = "(x[i] - mean) * rstd" + " * scale[i]" * scaled + " + bias[i]" * biased
    return functions.add(
        "layer_norm",
        f"const real *x, {''.join(f'const real *{name}, ' for name in given)}real *y, size_t n",
        "  real mean = 0, variance = 0;\n"
        "  for (size_t i = 0; i < n; i++) mean += x[i];\n"
        "  mean /= (real)n;\n"
        "  for (size_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean);\n"
        f"  const real rstd = 1 / v_sqrt(variance / (real)n + {real_constant(eps)});\n"
        f"  for (size_t i = 0; i < n; i++) y[i] = {value};\n",
        about=f"y = {value.replace('[i]', '')}, with rstd = 1 / sqrt(variance + eps)",
    )


def softmax_function(functions: Functions, *, log: bool = False) -> str:
    """Return the function of softmax or of its logarithm, ``f(x, y, n)``; y may be x."""
    term, after, last = "y[i] = v_exp(x[i] - highest)", "", "y[i] /= sum"
    if log:
        term, after, last = "v_exp(y[i] = x[i] - highest)", "  sum = v_log(sum);\n", "y[i] -= sum"
    return functions.add(
        "log_softmax" if log else "softmax",
        "const real *x, real *y, size_t n",
        "  real highest = x[0], sum = 0;\n"
        "  for (size_t i = 1; i < n; i++) highest = vmax(x[i], highest);\n"
        f"  for (size_t i = 0; i < n; i++) sum += {term};\n{after}"
        f"  for (size_t i = 0; i < n; i++) {last};\n",
        about=f"y = {'log(softmax(x))' if log else 'softmax(x)'}",
    )


def back_dense(
    functions: Functions,
    rule: VectorRule | None,
    reads: Sequence[str],
    *,
    batched: bool,
    about: str,
) -> str:
    """Return the function of an input gradient: ``f(dy, w, dx, *reads, [rows,] in, out)``.

    `rule` is the backward rule of the activation before, whose ``dy`` is the product; `reads` are
    the other values that it reads.
    """
    add = add_scaled(functions)
    lines = [
        "for (size_t j = 0; j < in; j++) dx[j] = 0;",
        f"for (size_t i = 0; i < out; i++) {add}(dx, w + i * in, dy_of[i], in);",
    ]
    if rule is not None:
        (result,) = rule.outputs
        names = {name: name for name in rule.given} | {result: "slope"}
        lines += [
            "for (size_t j = 0; j < in; j++) {",
            *(["  const real dy = dx[j];"] if "dy" in rule.reads else []),
            *(f"  const real {name} = {name}_at[j];" for name in reads),
            *(f"  {line}" for line in rule.statements(names, REAL, "real", "t")),
            "  dx[j] = slope;",
            "}",
        ]
    advanced = {"dx": "in", "dy_of": "out", **{f"{name}_at": "in" for name in reads}}
    rows = ", size_t rows" if batched else ""
    return functions.add(
        "back_dense",
        f"const real *dy_of, const real *w, real *dx{_pointers(reads, 'const real')}{rows}"
        ", size_t in, size_t out",
        _rows(lines, advanced, batched=batched),
        about=about,
    )


def each(functions: Functions, rule: VectorRule, *, about: str) -> str:
    """Return the function of an element-wise rule: ``f(*reads, *writes, n)``."""
    names = {name: name for name in (*rule.given, *rule.outputs)}
    body = [
        "for (size_t i = 0; i < n; i++) {",
        *(f"  const real {name} = {name}_at[i];" for name in rule.reads),
        *(f"  {line}" for line in rule.statements(names, REAL, "real", "t")),
        *(f"  {name}_at[i] = {name};" for name in rule.writes),
        "}",
    ]
    pointers = _pointers(rule.reads, "const real") + _pointers(rule.writes, "real")
    return functions.add(
        "each",
        f"{pointers[2:]}, size_t n",
        indented(body),
        about=about,
    )


def gradients_function(functions: Functions) -> str:
    """Return the function of a layer's gradients over a batch: ``f(dy, x, dw, rows, in, out)``.

    The gradient of the bias follows that of the weight.
    """
    add = add_scaled(functions)
    return functions.add(
        "gradients",
        "const real *dy, const real *x, real *dw, size_t rows, size_t in, size_t out",
        "  real *const db = dw + in * out;\n"
        "  for (size_t i = 0; i < in * out + out; i++) dw[i] = 0;\n"
        "  for (size_t row = 0; row < rows; row++) {\n"
        "    for (size_t i = 0; i < out; i++)\n"
        f"      {add}(dw + i * in, x + row * in, dy[row * out + i], in);\n"
        f"    {add}(db, dy + row * out, 1, out);\n"
        "  }\n",
        about="The gradients of a weight and, after it, of a bias: sums over the rows",
    )


# ---------------------------------------------------------------- losses
def loss_function(functions: Functions, about: str, body: str) -> str:
    """Return ``real f(output, target, slope)``: the mean loss, and its gradient by the output.

    A target of a class is its number; one that is no class, or out of range, makes the loss NaN.
    """
    parameters = "const real *output, const real *target, real *slope_at"
    return functions.add("loss", parameters, body, about=about, result="real")


def entry_loss(op: EntryLoss, entries: int) -> str:
    """Return the body of a loss over `entries` numbers, of one or more outputs each."""
    f, count = op.formulas, op.columns
    value: Expr = f.entry
    if isfinite(op.target_range[0]):
        value = where(op.outside(f.target), nan, value)
    place = "i" if count == 1 else f"i * {count} + {{}}"
    names = {f.target: "t", **{o: f"o{k}" for k, o in enumerate(f.outputs)}}
    outputs = {"value": value, **{f"slope{k}": f.slopes[k] for k in range(count)}}
    scales = [real_constant(scale / entries) for scale in f.scales[:count]]
    lines = [
        "real sum = 0;",
        f"for (size_t i = 0; i < {entries}; i++) {{",
        "  const real t = target[i];",
        *(f"  const real o{k} = output[{place.format(k)}];" for k in range(count)),
        *(f"  {line}" for line in c_statements(outputs, names, REAL, "real", "e")),
        f"  sum += value * {real_constant(f.value_scale / entries)};",
        *(f"  slope_at[{place.format(k)}] = slope{k} * {s};" for k, s in enumerate(scales)),
        "}",
        "return sum;",
    ]
    return indented(lines)


def cross_entropy(functions: Functions, op: SoftmaxCrossEntropy, rows: int, columns: int) -> str:
    """Return the body: with q the target's row, sum(q) log(sum(exp(o))) - sum(q o).

    Raises: UnsupportedError if classes are ignored.
    """
    if op.ignore_index is not None:
        raise UnsupportedError(op.name)
    if op.class_weights is not None:
        functions.text += constants("class_weights", (w / rows for w in op.class_weights)) + "\n"
    smoothing = float(op.label_smoothing)
    weight = "class_weights[j]" if op.class_weights else real_constant(1 / rows)
    hot = f"(j == label ? {real_constant(1 - smoothing + smoothing / columns)} : "
    target_row = f"{hot}{real_constant(smoothing / columns)}) * {weight}"
    lines = [
        f"const size_t columns = {columns};",
        "real sum = 0;",
        f"for (size_t row = 0; row < {rows}; row++) {{",
        "  real highest = output[0], total = 0, mass = 0, picked = 0;",
        f"  if (!(target[row] >= 0 && target[row] < {real_constant(columns)})) return R(NAN);",
        "  const size_t label = (size_t)target[row];",
        "  if (R(label) != target[row]) return R(NAN);",
        "  for (size_t j = 1; j < columns; j++) highest = vmax(output[j], highest);",
        "  for (size_t j = 0; j < columns; j++) {",
        f"    const real q = {target_row};",
        "    total += slope_at[j] = v_exp(output[j] - highest);",
        "    mass += q;",
        "    picked += q * (output[j] - highest);",
        "  }",
        "  for (size_t j = 0; j < columns; j++)",
        f"    slope_at[j] = slope_at[j] * (mass / total) - {target_row};",
        "  sum += v_log(total) * mass - picked;",
        "  output += columns;",
        "  slope_at += columns;",
        "}",
        "return sum;",
    ]
    return indented(lines)
