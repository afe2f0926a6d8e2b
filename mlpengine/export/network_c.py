"""Networks as one C file: plain C99 with the weights, which needs only the standard library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlpengine.backends.scalar.functions import softmax_function
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.program import write_step
from mlpengine.backends.scalar.text import Functions, constants, indented
from mlpengine.backends.values import UnsupportedError
from mlpengine.common.buffers import address_of
from mlpengine.common.wording import plural
from mlpengine.errors import UsageError
from mlpengine.nn.mlp import Mlp
from mlpengine.nn.safetensors_file import check_finite

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

NETWORK_FUNCTION = """\
{constants}
{static}void {one}({argument}const real *input, real *output)
{{
{body}}}

"""

MEAN_FUNCTION = """\
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
    forward = forward_of(functions, mlp, places, "input", "output")
    network = NETWORK_FUNCTION.format(
        constants=constants(table, numbers.tolist()),
        static="static " if several else "",
        one=one,
        argument="const real *parameters, " if several else "",
        body=indented([*forward.memory, *forward.statements]),
    )
    if several:
        (sums, result), loop = COMBINED[combined], f"for (size_t i = 0; i < {n}; i++)"
        lines = [f"{one}({table} + k * {len(mlp.params)}, input, y);"]
        lines += [f"{softmax_function(functions)}(y, y, {n});"] if combined == "softmax" else []
        lines += [f"{loop} sum_{k}[i] += {name}_shares[k] * {y};" for k, y in enumerate(sums)]
        zeros = "".join(f", sum_{k}[{n}] = {{0}}" for k in range(len(sums)))
        loop_of = {"count": len(each), "body": indented(lines, "    ")}
        weights = constants(f"{name}_shares", shares or [1 / len(each)] * len(each))
        network += MEAN_FUNCTION.format(
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
class PredictionCode:
    """The statements that predict a row.

    Attributes:
        statements: their text.
        size: numbers in the array ``values`` that they need.
        source, output: the C expressions of what they read and write.
    """

    statements: list[str]
    size: int
    source: str
    output: str

    @property
    def memory(self) -> list[str]:
        """The definition of ``values``, if there are any."""
        return [f"real values[{self.size}];"] if self.size else []


def forward_of(
    functions: Functions,
    mlp: Mlp,
    places: Mapping[str, str],
    source: str = "",
    output: str = "",
    *,
    batched: bool = False,
) -> PredictionCode:
    """Return the statements that predict a row; their functions are added to `functions`.

    `places` are the C expressions of the parameters by name, `source` and `output` those of what
    is read and written, by default places in ``values``.

    Raises: UsageError for an activation without C.
    """
    plain = mlp.like(dropout=0.0, initializer="zeros")  # whose names may be others
    scratch = plain.scratch(1)
    fixed = {
        address_of(view): places[name]
        for name, view in zip(mlp.params.views, plain.params.views.values(), strict=True)
    }
    ends = {address_of(scratch.input): source, address_of(scratch.output): output}
    fixed |= {address: name for address, name in ends.items() if name}
    try:
        program = write_step(
            scratch.program.instructions, 1, functions, fixed, [scratch.input], [scratch.output],
            batched=batched, memory="values",
        )  # fmt: skip
    except UnsupportedError as error:
        raise UsageError(f"export: an activation must have a C form (got {error})") from error
    source = source or program.place_of(scratch.input)
    return PredictionCode(
        program.statements, program.size, source, output or program.place_of(scratch.output)
    )
