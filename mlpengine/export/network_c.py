"""Networks as statements with their weights, and as one file of C99."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.program import write_step
from mlpengine.backends.scalar.text import Functions, constants, identifier, indented
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
   Plain C99; {include}

#define {upper}_REAL {real}
#define {upper}_DOUBLE {double}
{mathematics}
{body}"""

WITH_LIBRARY = """\
compile it with any C compiler and link the mathematics library. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>"""
FREESTANDING = """\
it needs no library but memcpy. */
#include <stddef.h>
#include <stdint.h>
void *memcpy(void *to, const void *from, size_t bytes);"""

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


@dataclass(frozen=True)
class NetworkCode:
    """Networks as statements, which every target prints: constants, and one function of a row.

    Attributes:
        title: what the networks are.
        name: of the function ``void name(input, output)``.
        real: the type of all numbers.
        in_dim, out_dim: their counts.
        text: the definitions, in the notation of `mlpengine.backends.scalar.statements`.
    """

    title: str
    name: str
    real: Real
    in_dim: int
    out_dim: int
    text: str


def network_code(
    networks: Network | Sequence[Network],
    *,
    name: str = "predict",
    log_link: bool = False,
    real: Real | None = None,
    shares: Sequence[float] | None = None,
    functions: Functions | None = None,
) -> NetworkCode:
    """Return the weights and ``void name(input, output)`` for one row.

    The output of several networks of one shape is their mean or, with a `log_link`, the logarithm
    of the mean of their exponentials.  The mean has the weights `shares`, by default equal ones.

    `real` is the type of all numbers, by default that of the network; `functions` are those that
    further code shares with it.

    Raises: UsageError if `name` is no C identifier or an op has no C.
    """
    if not name.isidentifier() or not name.isascii():
        raise UsageError(
            f"export: name must be a C identifier, such as {identifier(name)} (got {name!r})"
        )
    functions = functions or Functions()
    functions.names.taken.add(name)
    several = not isinstance(networks, Network)
    each = [networks] if isinstance(networks, Network) else list(networks)
    network = each[0]
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
    title = f"{f'{len(each)} of ' if several else ''}{title_of(network)}"
    return NetworkCode(
        f"{title}, {plural(numbers.size, 'parameter')}",
        name,
        real or real_of(network),
        prod(network.in_shape),
        n,
        functions.text + code,
    )


def export_c(networks: Network | Sequence[Network], **options: Any) -> str:
    """Return a C file with the weights and ``void name(input, output)`` for one row.

    For the options and errors see `network_code`.
    """
    return c_file(network_code(networks, **options))


def c_file(code: NetworkCode, text: str = "", *, libm: bool = True) -> str:
    """Return a whole C file; `text` follows the network, `libm` as in `mathematics`."""
    body, upper = code.text + text, code.name.upper()
    return FILE.format(
        title=code.title,
        name=code.name,
        upper=upper,
        real=code.real,
        double=int(code.real == "double"),
        in_dim=code.in_dim,
        out_dim=code.out_dim,
        include=WITH_LIBRARY if libm else FREESTANDING,
        mathematics=mathematics(body, upper, libm=libm),
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
