"""A network as one C file: plain C99, no library but the standard one, weights included."""

from collections.abc import Iterator

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.nn.layers import Layer
from mlpengine.nn.mlp import Mlp
from mlpengine.ops import GradOp, Selu
from mlpengine.spec import Array
from mlpengine.wording import plural

ELEMENTWISE = {
    "relu": "x > 0 || x != x ? x : 0",
    "leaky_relu": "x > 0 ? x : {alpha} * x",
    "tanh": "TANH(x)",
    "sigmoid": "x < 0 ? EXP(x) / (1 + EXP(x)) : 1 / (1 + EXP(-x))",
    "silu": "x < 0 ? x * EXP(x) / (1 + EXP(x)) : x / (1 + EXP(-x))",
    "softplus": "(x > 0 ? x : 0) + LOG1P(EXP(x > 0 ? -x : x))",
    "elu": "x > 0 ? x : {alpha} * EXPM1(x)",
    "selu": "x > 0 ? {scale} * x : {scale_alpha} * EXPM1(x)",
    "gelu": "x < -40 ? 0 : (real)0.5 * x * ERFC(x * (real)-0.70710678118654752)",
    "gelu_tanh": ("x / (1 + EXP((real)-1.5957691216057308 * (x + (real)0.044715 * x * x * x)))"),
}
"""Each activation as C on a number x; ``x`` appears in it as a variable."""

FILE = """\
/* {title}

   void {name}(const {real} *input, {real} *output): input has {in_dim} numbers, output {out_dim}.
   Plain C99; compile it with any C compiler and link the mathematics library. */
#include <math.h>

typedef {real} real;
#define EXP exp{suffix}
#define EXPM1 expm1{suffix}
#define LOG log{suffix}
#define LOG1P log1p{suffix}
#define TANH tanh{suffix}
#define ERFC erfc{suffix}

{constants}
{layers}
void {name}(const {real} *input, {real} *output) {{
  real a[{widest}], b[{widest}];
{body}
}}
"""

LAYER = """\
/* y = {activation}(w x + b), {out_dim} from {in_dim} numbers */
static void {name}_layer_{number}(const real *x_in, real *y) {{
  for (int i = 0; i < {out_dim}; i++) {{
    real x = {name}_bias_{number}[i];
    for (int j = 0; j < {in_dim}; j++) x += {name}_weight_{number}[i * {in_dim} + j] * x_in[j];
    y[i] = {expression};
  }}{after}
}}
"""

SOFTMAX = """
  real most = y[0], total = 0;
  for (int i = 1; i < {n}; i++) most = y[i] > most ? y[i] : most;
  for (int i = 0; i < {n}; i++) total += EXP(y[i] - most);
  for (int i = 0; i < {n}; i++) y[i] = {expression};"""


def export_c(mlp: Mlp, *, name: str = "predict") -> str:
    """Return a C file with the network's weights and ``void name(input, output)`` for one row.

    Raises: UsageError if `name` is no C identifier or an activation is not known here.
    """
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"export: the name of a C function is needed (got {name!r})")
    real = "float" if mlp.dtype == np.float32 else "double"
    constants: list[str] = []
    layers: list[str] = []
    body: list[str] = []
    last = len(mlp.layers) - 1
    buffers = ["input", *("ab"[i % 2] for i in range(last)), "output"]
    for i, layer in enumerate(mlp.layers):
        constants += _constants(name, i, mlp.weights[i], mlp.biases[i], real)
        layers.append(_layer(name, i, layer))
        body.append(f"  {name}_layer_{i}({buffers[i]}, {buffers[i + 1]});")
    if last == 0:
        body.append("  (void)a, (void)b;")
    elif last == 1:
        body.append("  (void)b;")
    return FILE.format(
        title=f"{'-'.join(map(str, mlp.sizes))}, {plural(mlp.params.flat.size, 'parameter')}",
        name=name,
        real=real,
        suffix="f" if real == "float" else "",
        in_dim=mlp.sizes[0],
        out_dim=mlp.sizes[-1],
        constants="\n".join(constants),
        layers="\n".join(layers),
        widest=max(mlp.sizes[1:]),
        body="\n".join(body),
    )


def _constants(name: str, number: int, weight: Array, bias: Array, real: str) -> Iterator[str]:
    for kind, array in (("weight", weight), ("bias", bias)):
        shown = [_number(v, real) for v in array.ravel().tolist()]
        lines = [", ".join(shown[k : k + 8]) for k in range(0, len(shown), 8)]
        joined = ",\n  ".join(lines)
        yield f"static const real {name}_{kind}_{number}[{array.size}] = {{\n  {joined}}};"


def _number(value: float, real: str) -> str:
    """Return a constant that reads back as the same number."""
    if not np.isfinite(value):
        raise UsageError(f"export: parameters must be finite (got {value})")
    return f"{float(np.float32(value))!s}f" if real == "float" else repr(value)


def _layer(name: str, number: int, layer: Layer) -> str:
    op, after, expression = layer.activation, "", "x"
    if op is not None and op.name in ("softmax", "log_softmax"):
        shares = "EXP(y[i] - most) / total" if op.name == "softmax" else "y[i] - most - LOG(total)"
        after = SOFTMAX.format(n=layer.out_dim, expression=shares)
    elif op is not None:
        expression = _expression(op)
    return LAYER.format(
        name=name,
        number=number,
        activation=op.name if op else "",
        in_dim=layer.in_dim,
        out_dim=layer.out_dim,
        expression=expression,
        after=after,
    )


def _expression(op: GradOp) -> str:
    key = op.name
    if getattr(op, "approximate", "none") != "none":
        key = f"{key}_{op.approximate}"  # type: ignore[attr-defined]
    if key not in ELEMENTWISE:
        raise UsageError(f"export: no C is known for the activation {op.name!r}")
    options = {"alpha": f"(real){getattr(op, 'alpha', 0.0)!r}"}
    options["scale"] = f"(real){Selu.scale!r}"
    options["scale_alpha"] = f"(real){Selu.scale * Selu.alpha!r}"
    return ELEMENTWISE[key].format(**options)
