"""Networks as one C file: plain C99 with the weights, which needs only the standard library."""

from collections.abc import Iterator, Mapping, Sequence
from math import pi
from typing import Literal

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.formula import SCALARS, c_statements, variable
from mlpengine.nn.front import EMBEDDING, MASK, SCALE
from mlpengine.nn.layers import Layer
from mlpengine.nn.mlp import Mlp
from mlpengine.ops import Elementwise, LearnedActivation
from mlpengine.spec import Array
from mlpengine.wording import plural

FILE = """\
/* {title}

   void {name}(const {real} *input, {real} *output): input has {in_dim} numbers, output {out_dim}.
   Plain C99; compile it with any C compiler and link the mathematics library. */
#include <math.h>

typedef {real} real;
#define M(name) name{suffix}
{functions}
{networks}"""

NETWORK = """\
{layers}
{static}void {name}(const real *input, real *output) {{
  real a[{widest}], b[{widest}];
  (void)a, (void)b;
{body}
}}
"""

MEAN = """\
void {name}(const real *input, real *output) {{
  static void (*const networks[{count}])(const real *, real *) = {{
    {names}}};
  static const real shares[{count}] = {{{shares}}};
  real y[{out_dim}], one[{out_dim}] = {{0}}, other[{out_dim}] = {{0}};
  for (int k = 0; k < {count}; k++) {{
    networks[k](input, y);
    for (int i = 0; i < {out_dim}; i++) y[i] /= {divisor};
{add}
  }}
  for (int i = 0; i < {out_dim}; i++) output[i] = {result};
}}
"""

SUM = """\
    for (int i = 0; i < {n}; i++) one[i] += shares[k] * y[i];
    (void)other;"""

SUM_EXP = """\
    for (int i = 0; i < {n}; i++) one[i] += shares[k] * v_exp(y[i]);
    (void)other;"""

SUM_SOFTMAX = """\
    real largest = y[0], total = 0;
    for (int i = 1; i < {n}; i++) largest = y[i] > largest ? y[i] : largest;
    for (int i = 0; i < {n}; i++) total += v_exp(y[i] - largest);
    for (int i = 0; i < {n}; i++) one[i] += shares[k] * v_exp(y[i] - largest) / total;
    (void)other;"""

SUM_SIGMOID = """\
    for (int i = 0; i < {n}; i++) {{
      real small = v_exp(y[i] > 0 ? -y[i] : y[i]), large = 1 / (1 + small);
      one[i] += shares[k] * (y[i] > 0 ? large : small * large);
      other[i] += shares[k] * (y[i] > 0 ? small * large : large);
    }}"""

COMBINED = {
    "mean": (SUM, "one[i]"),
    "exp": (SUM_EXP, "v_log(one[i])"),
    "softmax": (SUM_SOFTMAX, "v_log(one[i])"),
    "sigmoid": (SUM_SIGMOID, "v_log(one[i]) - v_log(other[i])"),
}
"""How outputs of several networks are added up, and what the result is."""

LAYER = """\
/* y = {activation}(w x + b), {out_dim} from {in_dim} numbers */
static void {name}_layer_{number}(const real *x_in, real *y) {{
  for (int i = 0; i < {out_dim}; i++) {{
    real x = 0;
    for (int j = 0; j < {in_dim}; j++) x += {name}_weight_{number}[i * {in_dim} + j] * x_in[j];
    x = x{factor} + {name}_bias_{number}[i];
{statements}    y[i] = {value};
  }}{after}
}}
"""

SOFTMAX = """
  real largest = y[0], total = 0;
  for (int i = 1; i < {n}; i++) largest = y[i] > largest ? y[i] : largest;
  for (int i = 0; i < {n}; i++) total += v_exp(y[i] - largest);
  for (int i = 0; i < {n}; i++) y[i] = {expression};"""


def export_c(
    networks: Mlp | Sequence[Mlp],
    *,
    name: str = "predict",
    combined: Literal["mean", "exp", "softmax", "sigmoid"] = "mean",
    real: str | None = None,
    divisor: float = 1.0,
    shares: Sequence[float] | None = None,
) -> str:
    """Return a C file with the weights and ``void name(input, output)`` for one row.

    The output of several networks of one shape is their mean, or that whose `combined` ("softmax"
    or "sigmoid" of logits, "exp") is the mean of theirs, each divided by `divisor` before.  The
    mean has the weights `shares`, by default equal ones.

    `real` is the type of all numbers, by default that of the network.

    Raises: UsageError if `name` is no C identifier or an activation is not known here.
    """
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"export: the name of a C function is needed (got {name!r})")
    each = [networks] if isinstance(networks, Mlp) else list(networks)
    mlp, parameters = each[0], sum(network.params.flat.size for network in each)
    real = real or ("float" if mlp.dtype == np.float32 else "double")
    if isinstance(networks, Mlp):
        texts, title = [_network(name, mlp, real)], ""
    else:
        names = [f"{name}_{k}" for k in range(len(each))]
        pairs = zip(names, each, strict=True)
        texts = [_network(*pair, real, static="static ") for pair in pairs]
        weights = [1 / len(each)] * len(each) if shares is None else shares
        numbers = [_number(one, real) for one in (divisor, *weights)]
        texts.append(_mean(name, names, mlp.sizes[-1], numbers, *COMBINED[combined]))
        title = f"{len(each)} of "
    return FILE.format(
        title=f"{title}{'-'.join(map(str, mlp.sizes))}, {plural(parameters, 'parameter')}",
        name=name,
        real=real,
        suffix="##f" if real == "float" else "",
        functions=SCALARS,
        in_dim=mlp.sizes[0],
        out_dim=mlp.sizes[-1],
        networks="\n".join(texts),
    )


def _mean(
    name: str, names: Sequence[str], out_dim: int, numbers: Sequence[str], add: str, result: str
) -> str:
    divisor, *shares = numbers
    return MEAN.format(
        name=name,
        names=", ".join(names),
        count=len(names),
        out_dim=out_dim,
        divisor=divisor,
        shares=", ".join(shares),
        add=add.format(n=out_dim),
        result=result,
    )


def _network(name: str, mlp: Mlp, real: str, static: str = "") -> str:
    """Return the weights and layers of a network, and its function."""
    constants: list[str] = []
    layers: list[str] = []
    body: list[str] = []
    last = len(mlp.layers) - 1
    source, free = "input", ["a", "b"]
    if mlp.front is not None:
        constants += _front_constants(name, mlp, real)
        layers.append(_front(name, mlp))
        body.append(f"  {name}_front(input, a);")
        source, free = "a", ["b", "a"]
    for i, layer in enumerate(mlp.layers):
        views = {"weight": mlp.weights[i], "bias": mlp.biases[i]}
        if layer.alpha_name is not None:
            views["alpha"] = mlp.params.views[layer.alpha_name]
        constants += _constants(name, i, views, real)
        layers.append(_layer(name, i, layer, 4 if real == "float" else 8))
        to = "output" if i == last else free[i % 2]
        body.append(f"  {name}_layer_{i}({source}, {to});")
        source = to
    return NETWORK.format(
        name=name,
        static=static,
        layers="\n".join([*constants, *layers]),
        widest=max(mlp.layers[0].in_dim, *mlp.sizes[1:]),
        body="\n".join(body),
    )


def _constants(
    name: str, number: int | str, views: Mapping[str, Array], real: str
) -> Iterator[str]:
    for kind, array in views.items():
        shown = [_number(v, real) for v in array.ravel().tolist()]
        lines = [", ".join(shown[k : k + 8]) for k in range(0, len(shown), 8)]
        joined = ",\n  ".join(lines)
        yield f"static const real {name}_{kind}_{number}[{array.size}] = {{\n  {joined}}};"


def _front_constants(name: str, mlp: Mlp, real: str) -> Iterator[str]:
    parts = {n.rpartition(".")[2]: v for n, v in mlp.params.views.items() if n.startswith("front.")}
    return _constants(name, "front", parts, real)


def _front(name: str, mlp: Mlp) -> str:
    """Return the function of the front."""
    views, features = mlp.params.views, mlp.in_dim
    lines = [f"  for (int j = 0; j < {features}; j++) y[j] = x[j];"]
    if f"{EMBEDDING}.frequency" in views:
        embedded, waves = views[f"{EMBEDDING}.frequency"].shape
        mixed = f"{EMBEDDING}.weight" in views
        outputs = views[f"{EMBEDDING}.weight"].shape[1] if mixed else waves
        at = f"j * {waves} + k"
        angle = f"x[j] * {name}_frequency_front[{at}] * splat({2 * pi!r})"
        lines += [
            f"  for (int j = 0; j < {embedded}; j++) {{",
            f"    real wave[{waves}], *to = y + {features} + j * {outputs};",
            f"    for (int k = 0; k < {waves}; k++)",
            f"      wave[k] = v_cos({angle} + {name}_phase_front[{at}]);",
            f"    for (int q = 0; q < {outputs}; q++) {{",
        ]
        if mixed:
            row = f"(j * {outputs} + q) * {waves} + k"
            lines += [
                "      real sum = 0;",
                f"      for (int k = 0; k < {waves}; k++)",
                f"        sum += wave[k] * {name}_weight_front[{row}];",
                f"      to[q] = sum + {name}_bias_front[j * {outputs} + q];",
            ]
        else:
            lines.append("      to[q] = wave[q];")
        lines += ["    }", "  }"]
    for factor in (SCALE, MASK):
        if factor in views:
            size, kind = views[factor].size, factor.rpartition(".")[2]
            lines.append(f"  for (int j = 0; j < {size}; j++) y[j] *= {name}_{kind}_front[j];")
    head = f"static void {name}_front(const real *x, real *y) {{"
    return "\n".join(
        ["/* embedding, scaling layer and mask of the features */", head, *lines, "}", ""]
    )


def _number(value: float, real: str) -> str:
    """Return a constant that reads back as the same number."""
    if not np.isfinite(value):
        raise UsageError(f"export: parameters must be finite (got {value})")
    return f"{float(np.float32(value))!s}f" if real == "float" else repr(value)


def _layer(name: str, number: int, layer: Layer, itemsize: int) -> str:
    op, after, lines = layer.activation, "", []
    if op is not None and op.name in ("softmax", "log_softmax"):
        shares = (
            "v_exp(y[i] - largest) / total"
            if op.name == "softmax"
            else "y[i] - largest - v_log(total)"
        )
        after = SOFTMAX.format(n=layer.out_dim, expression=shares)
    elif isinstance(op, Elementwise):
        given = {variable("x"): "x"}
        if layer.alpha_name is not None:
            op = LearnedActivation.of(op)
            given[variable("alpha")] = f"{name}_alpha_{number}[i]"
        lines = c_statements({"value": op.formulas.y}, given, itemsize, "real")
    elif op is not None:
        raise UsageError(f"export: no C is known for the activation {op.name!r}")
    return LAYER.format(
        name=name,
        number=number,
        activation=op.name if op else "",
        in_dim=layer.in_dim,
        out_dim=layer.out_dim,
        factor="" if layer.factor == 1 else f" * splat({layer.factor!r})",
        statements="".join(f"    {line}\n" for line in lines),
        value="value" if lines else "x",
        after=after,
    )
