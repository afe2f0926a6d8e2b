"""Networks as one C file: plain C99 with the weights, which needs only the standard library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.program import write_step
from mlpengine.backends.scalar.text import Functions, constants, indented
from mlpengine.backends.values import UnsupportedError
from mlpengine.common.buffers import address_of
from mlpengine.common.wording import plural
from mlpengine.errors import UsageError
from mlpengine.nn import Network, TabularNetwork
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.tape.binding import Forward
from mlpengine.tape.forward import ForwardPlan

Real = Literal["float", "double"]
"""The C type of all numbers of a file."""

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
  real y[{n}], sum[{n}] = {{0}};
  for (size_t k = 0; k < {count}; k++) {{
{body}  }}
  for (size_t i = 0; i < {n}; i++) output[i] = {result};
}}

"""


def export_c(
    networks: Network | Sequence[Network],
    *,
    name: str = "predict",
    log_link: bool = False,
    real: Real | None = None,
    shares: Sequence[float] | None = None,
    functions: Functions | None = None,
    text: str = "",
) -> str:
    """Return a C file with the weights and ``void name(input, output)`` for one row.

    The output of several networks of one shape is their mean or, with a `log_link`, the logarithm
    of the mean of their exponentials.  The mean has the weights `shares`, by default equal ones.

    `real` is the type of all numbers, by default that of the network; `text` is C that follows the
    network, and calls it and `functions`.

    Raises: UsageError if `name` is no C identifier or an op has no C.
    """
    if not name.isidentifier() or not name.isascii():
        raise UsageError(f"export: name must be a C identifier (got {name!r})")
    functions = functions or Functions()
    functions.names.taken.add(name)
    several = not isinstance(networks, Network)
    each = [networks] if isinstance(networks, Network) else list(networks)
    network, real = each[0], real or real_of(each[0])
    for member in each:
        check_finite(member.params.views, "export", UsageError)
    numbers = np.concatenate([one.params.flat for one in each])
    n, one = network.outputs, functions.names.add("network_of") if several else name
    table = f"{name}_parameters"
    at = "parameters" if several else table
    places = {key: f"{at} + {place.start}" for key, place in network.params.places.items()}
    forward = forward_of(functions, network, places, "input", "output")
    code = NETWORK_FUNCTION.format(
        constants=constants(table, numbers.tolist()),
        static="static " if several else "",
        one=one,
        argument="const real *parameters, " if several else "",
        body=indented([*forward.memory, *forward.statements]),
    )
    if several:
        y, total = ("v_exp(y[i])", "v_log(sum[i])") if log_link else ("y[i]", "sum[i]")
        lines = [
            f"{one}({table} + k * {len(network.params)}, input, y);",
            f"for (size_t i = 0; i < {n}; i++) sum[i] += {name}_shares[k] * {y};",
        ]
        loop_of = {"count": len(each), "body": indented(lines, "    ")}
        weights = constants(f"{name}_shares", shares or [1 / len(each)] * len(each))
        code += MEAN_FUNCTION.format(name=name, n=n, shares=weights, result=total, **loop_of)
    body = functions.text + code + text
    return FILE.format(
        title=f"{f'{len(each)} of ' if several else ''}{title_of(network)}, "
        f"{plural(numbers.size, 'parameter')}",
        name=name,
        upper=name.upper(),
        real=real,
        double=int(real == "double"),
        in_dim=prod(network.in_shape),
        out_dim=n,
        mathematics=mathematics(body, name.upper(), libm=True),
        body=body,
    )


def real_of(network: Network) -> Real:
    """Return the C type of a network's numbers."""
    return "float" if network.dtype == np.float32 else "double"


def title_of(network: Network) -> str:
    """Return what a network is, in a word: its sizes, or the name of its class."""
    return network.title if isinstance(network, TabularNetwork) else type(network).__name__


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
    network: Network,
    places: Mapping[str, str],
    source: str = "",
    output: str = "",
    *,
    batched: bool = False,
) -> PredictionCode:
    """Return the statements that predict a row; their functions are added to `functions`.

    `places` are the C expressions of the parameters by name, `source` and `output` those of what
    is read and written, by default places in ``values``.

    Raises: UsageError for an op without C.
    """
    recording, views = network.recorded(1, training=False), network.params.views
    plan = ForwardPlan(recording.tape, [recording.output], differentiable=True)
    leaves = {node.index: views[node.name] for node in recording.tape.parameters}
    forward = Forward(plan, leaves, "numpy")
    x, y = forward.value(recording.input), forward.value(recording.output)
    fixed = {address_of(views[name]): place for name, place in places.items()}
    ends = {address_of(x): source, address_of(y): output}
    fixed |= {address: name for address, name in ends.items() if name}
    try:
        program = write_step(
            forward.instructions, 1, functions, fixed, [x], [y],
            batched=batched, memory="values",
        )  # fmt: skip
    except UnsupportedError as error:
        raise UsageError(f"export: every op must have a C form (got {error})") from error
    source, output = source or program.place_of(x), output or program.place_of(y)
    return PredictionCode(program.statements, program.size, source, output)
