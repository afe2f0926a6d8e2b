"""Networks as one C file: plain C99 with the weights, which needs only the standard library."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi
from typing import Literal

import numpy as np

from mlpengine.backends.rules import find_rule
from mlpengine.backends.scalar.functions import dense, softmax
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.text import Functions, constant, constants, definitions, indented
from mlpengine.common.locks import cached_property
from mlpengine.common.wording import plural
from mlpengine.errors import UsageError
from mlpengine.nn.front import EMBEDDING, MASK, SCALE
from mlpengine.nn.layers import Layer
from mlpengine.nn.mlp import Mlp
from mlpengine.nn.tensors import check_finite
from mlpengine.ops import Elementwise, LearnedActivation, LogSoftmax, Softmax

Real = Literal["float", "double"]
"""The C type of all numbers of a file."""

Combined = Literal["mean", "exp", "softmax", "sigmoid"]
"""What several networks have the mean of: their outputs, or those after exp, softmax or sigmoid."""

FILE = """\
/* {title}

   void {name}(const {real} *input, {real} *output): input has {in_dim} numbers, output {out_dim}.
   Plain C99; compile it with any C compiler and link the mathematics library. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define {upper}_REAL {real}
#define {upper}_DOUBLE {double}
{mathematics}
{body}"""

NETWORK = """\
{constants}
{static}void {one}({argument}const real *input, real *output)
{{
{body}}}

"""

MEAN = """\
{shares}
void {name}(const real *input, real *output)
{{
  real y[{n}]{zeros};
  for (size_t k = 0; k < {count}; k++) {{
{body}  }}
  for (size_t i = 0; i < {n}; i++) output[i] = {result};
}}

"""

COMBINED: dict[Combined, tuple[tuple[str, ...], str]] = {
    "mean": (("y[i]",), "sum_0[i]"),
    "exp": (("v_exp(y[i])",), "v_log(sum_0[i])"),
    "softmax": (("y[i]",), "v_log(sum_0[i])"),
    "sigmoid": (("v_sigmoid(y[i])", "v_sigmoid(-y[i])"), "v_log(sum_0[i]) - v_log(sum_1[i])"),
}
"""What is added up of the outputs y of each network (or of their softmax), and the result."""


def export_c(
    networks: Mlp | Sequence[Mlp],
    *,
    name: str = "predict",
    combined: Combined = "mean",
    real: Real | None = None,
    shares: Sequence[float] | None = None,
    functions: Functions | None = None,
    text: str = "",
) -> str:
    """Return a C file with the weights and ``void name(input, output)`` for one row.

    The output of several networks of one shape is their mean, or that whose `combined` ("softmax"
    or "sigmoid" of logits, "exp") is the mean of theirs.  The mean
    has the weights `shares`, by default equal ones.

    `real` is the type of all numbers, by default that of the network; `text` is C that follows the
    network, and calls it and `functions`.

    Raises: UsageError if `name` is no C identifier or an activation is not known here.
    """
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"export: name must be a C identifier (got {name!r})")
    functions = functions or Functions()
    functions.names.taken.add(name)
    several = not isinstance(networks, Mlp)
    each = [networks] if isinstance(networks, Mlp) else list(networks)
    mlp, real = each[0], real or real_of(each[0])
    for member in each:
        check_finite(member.params.views, "export", UsageError)
    numbers = np.concatenate([network.params.flat for network in each])
    n, one = mlp.sizes[-1], functions.names.add("network_of") if several else name
    table = f"{name}_parameters"
    at = "parameters" if several else table
    places = {key: f"{at} + {place.start}" for key, place in mlp.params.places.items()}
    forward = Forward(functions, mlp, places, "input", "output")
    network = NETWORK.format(
        constants=constants(table, numbers.tolist()),
        static="static " if several else "",
        one=one,
        argument="const real *parameters, " if several else "",
        body=indented([*definitions(forward.buffers), *forward.calls()]),
    )
    if several:
        (sums, result), loop = COMBINED[combined], f"for (size_t i = 0; i < {n}; i++)"
        lines = [f"{one}({table} + k * {len(mlp.params)}, input, y);"]
        lines += [f"{softmax(functions)}(y, y, {n});"] if combined == "softmax" else []
        lines += [f"{loop} sum_{k}[i] += {name}_shares[k] * {y};" for k, y in enumerate(sums)]
        zeros = "".join(f", sum_{k}[{n}] = {{0}}" for k in range(len(sums)))
        loop_of = {"count": len(each), "body": indented(lines, "    ")}
        weights = constants(f"{name}_shares", shares or [1 / len(each)] * len(each))
        network += MEAN.format(
            name=name, n=n, shares=weights, zeros=zeros, result=result, **loop_of
        )
    body = functions.text + network + text
    return FILE.format(
        title=f"{f'{len(each)} of ' if several else ''}{'-'.join(map(str, mlp.sizes))}, "
        f"{plural(numbers.size, 'parameter')}",
        name=name,
        upper=name.upper(),
        real=real,
        double=int(real == "double"),
        in_dim=mlp.sizes[0],
        out_dim=n,
        mathematics=mathematics(body, name.upper(), libm=True),
        body=body,
    )


def real_of(mlp: Mlp) -> Real:
    """Return the C type of a network's numbers."""
    return "float" if mlp.dtype == np.float32 else "double"


@dataclass(frozen=True)
class Forward:
    """The statements that predict a row.

    Attributes:
        functions: to which the functions of the statements are added.
        mlp: the network.
        places: the C expression of each parameter, by name.
        source: what the network reads.
        output: what it writes; None for one of the buffers ``a`` and ``b``, which the values
            between its parts alternate between.
        batched: whether functions take a number of rows.
    """

    functions: Functions
    mlp: Mlp
    places: Mapping[str, str]
    source: str = "a"
    output: str | None = None
    batched: bool = False

    @cached_property
    def values(self) -> list[tuple[str, int]]:
        """The C name and the length of what each part reads, and of the output."""
        sizes = [self.mlp.layers[0].in_dim, *self.mlp.sizes[1:]]
        sizes = sizes if self.mlp.front is None else [self.mlp.in_dim, *sizes]
        names = [self.source]
        for _ in sizes[1:]:
            names.append("b" if names[-1] == "a" else "a")
        return [*zip([*names[:-1], self.output or names[-1]], sizes, strict=True)]

    @property
    def buffers(self) -> dict[str, int]:
        """The lengths of the buffers that are used."""
        sizes = {at: [size for name, size in self.values if name == at] for at in "ab"}
        return {name: max(used) for name, used in sizes.items() if used}

    def calls(self) -> Iterator[str]:
        """Yield the calls, part by part.

        Raises: UsageError for an activation without C.
        """
        names = [name for name, _ in self.values]
        if self.mlp.front is not None:
            yield self._front(*names[:2])
            names = names[1:]
        for layer, x, y in zip(self.mlp.layers, names, names[1:], strict=False):
            yield from self._layer(layer, x, y)

    def _layer(self, layer: Layer, x: str, y: str) -> Iterator[str]:
        op, scaled = layer.activation, layer.factor != 1
        if isinstance(op, Softmax | LogSoftmax) and op.axis in (-1, 1):
            yield from self._layer(replace(layer, activation=None), x, y)
            function = softmax(self.functions, log=isinstance(op, LogSoftmax))
            yield f"{function}({y}, {y}, {layer.out_dim});"
            return
        if isinstance(op, Elementwise) and layer.alpha_name is not None:
            op = LearnedActivation.of(op)
        rule = find_rule(op, "forward") if op else None
        if op is not None and rule is None:
            raise UsageError(f"export: an activation must have a C form (got {op!r})")
        function = dense(
            self.functions,
            rule.limited_to(["y"]) if rule else None,
            ["y"] if rule else ["x"],
            batched=self.batched,
            scaled=scaled,
            about=op.name if op else "",
        )
        given = [x, *(self.places[name] for name in layer.names), y]
        given += [constant(layer.factor)] * scaled + ["1"] * self.batched
        yield f"{function}({', '.join(given)}, {layer.in_dim}, {layer.out_dim});"

    def _front(self, x: str, y: str) -> str:
        views, features = self.mlp.params.views, self.mlp.in_dim
        lines = [f"for (size_t j = 0; j < {features}; j++) y[j] = x[j];"]
        if f"{EMBEDDING}.frequency" in views:
            embedded, waves = views[f"{EMBEDDING}.frequency"].shape
            mixed = views.get(f"{EMBEDDING}.weight")
            at = f"j * {waves} + k"
            angle = f"x[j] * frequency[{at}] * {constant(2 * pi)} + phase[{at}]"
            wave = f"y[{features} + {at}]" if mixed is None else "wave[k]"
            lines += [
                f"for (size_t j = 0; j < {embedded}; j++) {{",
                *([] if mixed is None else [f"  real wave[{waves}];"]),
                f"  for (size_t k = 0; k < {waves}; k++) {wave} = v_cos({angle});",
            ]
            if mixed is not None:
                outputs = mixed.shape[1]
                given = f"wave, weight + j * {mixed[0].size}, bias + j * {outputs}"
                given += f", y + {features} + j * {outputs}, {waves}, {outputs}"
                lines.append(f"  {dense(self.functions, None, ['x'])}({given});")
            lines.append("}")
        for name in (n for n in (SCALE, MASK) if n in views):
            factor = name.rpartition(".")[2]
            lines.append(f"for (size_t j = 0; j < {views[name].size}; j++) y[j] *= {factor}[j];")
        learned = {
            n.rpartition(".")[2]: p for n, p in self.places.items() if n.startswith("front.")
        }
        function = self.functions.add(
            "front",
            "const real *x, real *y" + "".join(f", const real *{name}" for name in learned),
            indented(lines),
            about="Embedding, scaling layer and mask of the features",
        )
        return f"{function}({', '.join([x, y, *learned.values()])});"
