"""Networks with their weights as statements (for C and JavaScript), and as one C99 file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod
from typing import Literal

import numpy as np

from mlpengine.backends.compiled.statements import Assign, ForLoop, Memory, Statement, element
from mlpengine.backends.scalar.definitions import (
    Constants,
    Definition,
    Functions,
    ParameterKind,
    ScalarFunction,
    c_definitions,
    c_text,
    comment_text,
)
from mlpengine.backends.scalar.math import mathematics
from mlpengine.backends.scalar.scalar_step import write_step
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of
from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural
from mlpengine.formula import exp, log
from mlpengine.models.members import networks_text
from mlpengine.nn import Network, TabularNetwork
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.tape.binding import Forward
from mlpengine.tape.forward import ForwardPlan

Real = Literal["float", "double"]
"""The C type of all numbers of a file."""

FILE = """\
/* {title}

   void {name}(const {real} *input, {real} *output): input has {in_dim} numbers,
   output {out_dim}.{about}
   Plain C99; compile it with any C compiler and link the mathematics library. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define {upper}_REAL {real}
#define {upper}_DOUBLE {double}
{mathematics}
{body}"""

EXPORTED: dict[str, ParameterKind] = {"input": "reads", "output": "writes"}
"""The parameters of ``void name(input, output)``."""


@dataclass(frozen=True)
class NetworkCode:
    """Networks as definitions, for C and JavaScript: constants, and functions for one row.

    Attributes:
        title: description of the networks.
        name: name of the function ``void name(input, output)``.
        real: type of all numbers.
        in_dim, out_dim: lengths of ``input`` and ``output``.
        about: comment lines about the inputs, if there are several or integer inputs.
        definitions: constants and functions; the function `name` is the last one.
    """

    title: str
    name: str
    real: Real
    in_dim: int
    out_dim: int
    about: str
    definitions: list[Definition]


def network_code(
    networks: Network | Sequence[Network],
    *,
    name: str = "predict",
    log_link: bool = False,
    real: Real | None = None,
    weights: Sequence[float] | None = None,
    functions: Functions | None = None,
) -> NetworkCode:
    """Return the weights and ``void name(input, output)`` for one row.

    The output of several networks with equal input and output shapes is the mean of their outputs
    or, with `log_link`, the logarithm of the mean of the exponentials.  `weights` are the networks'
    weights in the mean, by default equal.

    `name` is a C identifier.  `real` is the type of all numbers, by default the network's.
    Functions that the code needs are added to `functions`.
    """
    functions = functions or Functions()
    functions.names.taken.add(name)
    several = not isinstance(networks, Network)
    members = [networks] if isinstance(networks, Network) else list(networks)
    for member in members:
        check_finite(member.params.views, "export", UsageError)
    network, n = members[0], members[0].outputs
    table = f"{name}_parameters"
    numbers = np.concatenate([member.params.flat for member in members])
    bodies = [_body(functions, member, "parameters" if several else table) for member in members]
    code: list[Definition] = [Constants(table, numbers)]
    if several:
        shares = np.array(weights or [1 / len(members)] * len(members))
        code += _mean(
            functions, name, [len(member.params) for member in members], bodies, n, log_link
        )
        code.insert(-1, Constants(f"{name}_weights", shares))
    else:
        code.append(ScalarFunction(name, EXPORTED, bodies[0], static=False))
    return NetworkCode(
        f"{title_of(members)}, {plural(numbers.size, 'parameter')}",
        name,
        real or real_of(network),
        sum(map(prod, network.in_shapes.values())),
        n,
        about_inputs(network),
        [*functions.definitions, *code],
    )


def _mean(
    functions: Functions,
    name: str,
    sizes: Sequence[int],
    bodies: Sequence[Sequence[Statement]],
    n: int,
    log_link: bool,
) -> list[Definition]:
    """Return a function for each group of networks with equal code, and a function of the mean."""
    y, total, out = element("y", "i"), element("sum", "i"), element("output", "i")
    code: list[Definition] = []
    lines: list[Statement] = [Memory("y", n), Memory("sum", n, zeros=True)]
    first = start = 0
    for _, alike in groupby(bodies, c_text):
        count, body, size = len([*alike]), bodies[first], sizes[first]
        one = functions.names.add("network_of")
        code.append(ScalarFunction(one, {"parameters": "reads", **EXPORTED}, body))
        share = element(f"{name}_weights", f"{first} + k")
        add = Assign(total, share * (exp(y) if log_link else y), "+")
        call = f"{one}({name}_parameters + {start} + k * {size}, input, y);"
        lines.append(ForLoop("k", 0, count, [call, ForLoop("i", 0, n, [add])]))
        first, start = first + count, start + count * size
    lines.append(ForLoop("i", 0, n, [Assign(out, log(total) if log_link else total)]))
    return [*code, ScalarFunction(name, EXPORTED, lines, static=False)]


def _body(functions: Functions, network: Network, at: str) -> list[Statement]:
    """Return the body of a network's function; its parameters begin at the expression `at`."""
    own = {key: f"{at} + {place.start}" for key, place in network.params.places.items()}
    forward = forward_of(functions, network, own, "input", "output")
    return [*forward.memory, *forward.statements]


def c_file(code: NetworkCode, text: str = "") -> str:
    """Return a whole C file; `text` follows the network."""
    body, upper = c_definitions(code.definitions) + text, code.name.upper()
    return FILE.format(
        title=code.title,
        name=code.name,
        upper=upper,
        real=code.real,
        double=int(code.real == "double"),
        in_dim=code.in_dim,
        out_dim=code.out_dim,
        about=code.about,
        mathematics=mathematics(body, upper),
        body=body,
    )


def real_of(network: Network) -> Real:
    """Return the C type of a network's numbers."""
    return "float" if network.dtype == np.float32 else "double"


def title_of(networks: Sequence[Network]) -> str:
    """Return a short title of networks: their sizes, or the name of their class."""
    known = [one for one in networks if isinstance(one, TabularNetwork)]
    several = f"{len(networks)} of " * (len(networks) > 1)
    return networks_text(known) if known else f"{several}{type(networks[0]).__name__}"


def about_inputs(network: Network) -> str:
    """Return comment lines about the inputs; "" for a single input of real numbers."""
    lines, starts = list[str](), _starts(network)
    for name, dtype in network.in_dtypes.items():
        first, count = starts[name], prod(network.in_shapes[name])
        places = f"input[{first}]" + f" to input[{first + count - 1}]" * (count > 1)
        facts = [comment_text(name)] * bool(name) + ["whole numbers"] * (dtype.kind == "i")
        lines.append(f"{places}: {', '.join(facts)}")
    integers = any(dtype.kind == "i" for dtype in network.in_dtypes.values())
    if integers:
        lines.append("An index that is out of range, or not a whole number, selects NaN.")
    return "".join(f"\n   {line}" for line in lines) if integers or len(starts) > 1 else ""


def _starts(network: Network) -> dict[str, int]:
    """Return the positions of the inputs in ``input``, by name."""
    ends = accumulate(map(prod, network.in_shapes.values()), initial=0)
    return dict(zip(network.in_shapes, ends, strict=False))


@dataclass(frozen=True)
class PredictionCode:
    """The statements that predict a row.

    Attributes:
        statements: statements for a row.
        size: length of the array ``values`` that the statements need.
        source, output: names of the arrays that the statements read and write.
    """

    statements: list[Statement]
    size: int
    source: str
    output: str

    @property
    def memory(self) -> list[Statement]:
        """The definition of ``values``, if its length is not 0."""
        return [Memory("values", self.size)] if self.size else []


def forward_of(
    functions: Functions,
    network: Network,
    places: Mapping[str, str],
    source: str = "",
    output: str = "",
) -> PredictionCode:
    """Return the statements that predict a row; add the functions that they call to `functions`.

    `places` has the C expression of each parameter by name.  `source` and `output` are the arrays
    to read and write, by default parts of ``values``.  A network with several inputs needs a
    `source`; its inputs follow each other there.
    """
    recording, views = network.recorded(1, training=False), network.params.views
    plan = ForwardPlan(recording.tape, [recording.output], differentiable=True)
    leaves = {n.index: n.array for n in recording.tape.nodes if n.array is not None}  # constants
    leaves |= {node.index: views[node.name] for node in recording.tape.parameters}
    forward = Forward(plan, leaves, "numpy")
    inputs = {name: forward.value(node) for name, node in recording.inputs.items()}
    y = forward.value(recording.output)
    fixed = {address_of(views[name]): place for name, place in places.items()}
    if source:
        starts = _starts(network)
        fixed |= {
            address_of(x): f"{source} + {starts[name]}" if starts[name] else source
            for name, x in inputs.items()
        }
    fixed |= {address_of(y): output} if output else {}
    xs = [*inputs.values()]
    try:
        program = write_step(forward.instructions, functions, fixed, xs, [y], memory="values")
    except UnsupportedError as error:
        text = f"every op must have a form in C and JavaScript (got {error})"
        raise UsageError(f"export: {text}") from error
    source, output = source or program.place_of(xs[0]), output or program.place_of(y)
    return PredictionCode(program.statements, program.size, source, output)
