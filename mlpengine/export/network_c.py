"""Networks as statements with their weights, and as one file of C99."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any, Literal

import numpy as np

from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.program import write_step
from mlpengine.backends.scalar.text import Functions, array, constants, indented
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of
from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural
from mlpengine.export._reduced import Reduced, reduced
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
{static}void {name}({argument}const real *input, real *output)
{{
{body}}}

"""

MEAN_FUNCTION = """\
{shares}
void {name}(const real *input, real *output)
{{
  real y[{n}], sum[{n}] = {{0}};
{loops}  for (size_t i = 0; i < {n}; i++) output[i] = {result};
}}

"""

MEAN_LOOP = """\
  for (size_t k = 0; k < {count}; k++) {{
    {one}({table} + {start} + k * {size}, input, y);
    for (size_t i = 0; i < {n}; i++) sum[i] += {name}_shares[{first} + k] * {y};
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

    `name` is a C identifier.  Raises: UsageError if an op has no C.
    """
    functions = functions or Functions()
    functions.names.taken.add(name)
    several = not isinstance(networks, Network)
    each = [networks] if isinstance(networks, Network) else list(networks)
    for member in each:
        check_finite(member.params.views, "export", UsageError)
    network, n = each[0], each[0].outputs
    made, table = [reduced(member) for member in each], f"{name}_parameters"
    numbers = np.concatenate([one.network.params.flat for one in made])
    code = constants(table, numbers.tolist())
    places, bodies = _bodies(functions, name, made, "parameters" if several else table)
    code += places + "\n"
    if several:
        y, total = ("v_exp(y[i])", "v_log(sum[i])") if log_link else ("y[i]", "sum[i]")
        loops, first, start = "", 0, 0
        for body, some in groupby(bodies):
            one, count = functions.names.add("network_of"), len([*some])
            size = len(made[first].network.params)
            code += NETWORK_FUNCTION.format(
                static="static ", name=one, argument="const real *parameters, ", body=body
            )
            loops += MEAN_LOOP.format(
                count=count, one=one, table=table, start=start, size=size, n=n, name=name,
                first=first, y=y,
            )  # fmt: skip
            first, start = first + count, start + count * size
        weights = constants(f"{name}_shares", shares or [1 / len(each)] * len(each))
        code += MEAN_FUNCTION.format(name=name, n=n, shares=weights, loops=loops, result=total)
    else:
        code += NETWORK_FUNCTION.format(static="", name=name, argument="", body=bodies[0])
    title = f"{f'{len(each)} of ' if several else ''}{title_of(network)}"
    return NetworkCode(
        f"{title}, {plural(numbers.size, 'parameter')}",
        name,
        real or real_of(network),
        prod(network.in_shape),
        n,
        functions.text + code,
    )


def _bodies(
    functions: Functions, name: str, made: Sequence[Reduced], at: str
) -> tuple[str, list[str]]:
    """Return the places of features, and what the function of each network does.

    `at` is the C expression of its parameters.  Networks that are alike do the same.
    """
    arrays: dict[tuple[int, ...], str] = {}
    bodies, text = [], ""
    for network, columns in made:
        source, lines = "input", []
        if columns is not None:
            places, source = tuple(columns.tolist()), "x"
            if places not in arrays:
                arrays[places] = functions.names.add(f"{name}_columns")
                kind = "IN_FLASH unsigned short" if places[-1] < 1 << 16 else "IN_FLASH long"
                text += array(kind, arrays[places], map(str, places))
            count = len(places)
            lines = [
                f"real x[{count}];",
                f"for (size_t i = 0; i < {count}; i++) x[i] = input[{arrays[places]}[i]];",
            ]
        own = {key: f"{at} + {place.start}" for key, place in network.params.places.items()}
        forward = forward_of(functions, network, own, source, "output")
        bodies.append(indented([*lines, *forward.memory, *forward.statements]))
    return text, bodies


def export_c(networks: Network | Sequence[Network], **options: Any) -> str:
    """Return a C file with the weights and ``void name(input, output)`` for one row.

    For the options and errors see `network_code`.
    """
    return c_file(network_code(networks, **options))


def c_file(code: NetworkCode, text: str = "") -> str:
    """Return a whole C file; `text` follows the network."""
    body, upper = code.text + text, code.name.upper()
    return FILE.format(
        title=code.title,
        name=code.name,
        upper=upper,
        real=code.real,
        double=int(code.real == "double"),
        in_dim=code.in_dim,
        out_dim=code.out_dim,
        mathematics=mathematics(body, upper, libm=True),
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
