"""Programs as data: statements, and functions of them.

A statement is an object of one of these classes: its numbers are formulas; its whole numbers and
places in memory are text.  A statement may also be a line of text, in C or in syntax that C and
JavaScript share, such as a call.  Each target prints statements: `printing` as C on vectors and on
single numbers, `javascript` of `mlpengine.backends.scalar` as JavaScript.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from mlpengine.formula import Expr, in_steps, variable

Phase = Literal["prepare", "rows", "reduce", "finish", "update"]

PHASES: tuple[Phase, ...] = ("prepare", "rows", "reduce", "finish", "update")
"""The phase in which a function is called, in this order:

``prepare``: once in each step, to pack parameters and to compute values that depend on parameters
only; ``rows``: for some rows of the batch, forward, loss and backward; ``reduce``: sums of these
rows for the gradients of the parameters; ``finish``: once in each step, for values that depend on
these sums; ``update``: for the optimizer."""

MEMORY_PARAMETERS = "void *const *table, char *workspace"
"""Parameters of C functions that declare their own buffers."""


class ForLoop(NamedTuple):
    """``for (int64_t variable = start; variable < stop; variable += step)``."""

    variable: str
    start: str | int
    stop: str | int
    body: Sequence["Statement"]
    step: str | int = 1


class ClaimLoop(NamedTuple):
    """For each run of units `first` to `last` that a thread claims from list number `number`."""

    number: str
    body: Sequence["Statement"]


class Each(NamedTuple):
    """For each vector ``[r][v]`` of a tile, unrolled."""

    body: Sequence["Statement"]
    rows: str = "rows"


class If(NamedTuple):
    """``if (condition)`` with an optional ``else``."""

    condition: str | Expr
    body: Sequence["Statement"]
    otherwise: Sequence["Statement"] = ()


class Scope(NamedTuple):
    """Statements in a nested scope."""

    body: Sequence["Statement"]


class Switch(NamedTuple):
    """A call for each value of a variable; other values are a generator's bug and trap."""

    variable: str
    cases: Sequence[tuple[int, str]]


class Let(NamedTuple):
    """A constant number or bool; with `double`, not of the target's number type."""

    name: str
    value: Expr
    double: bool = False


class Variable(NamedTuple):
    """A number that changes, and its first value."""

    name: str
    value: Expr


class Whole(NamedTuple):
    """A whole number that may change; its value is text."""

    name: str
    value: str


class Place(NamedTuple):
    """A whole number from 0, for a place in memory, from a number with such a value."""

    name: str
    value: Expr


class Memory(NamedTuple):
    """A local array of numbers, zero on request."""

    name: str
    length: int
    zeros: bool = False


class Assign(NamedTuple):
    """``target = value``, or ``target += value`` with the sign ``+``."""

    target: Expr
    value: Expr
    sign: str = ""


class Return(NamedTuple):
    """``return value``, a number."""

    value: Expr


Statement: TypeAlias = (
    str
    | ForLoop
    | ClaimLoop
    | Each
    | If
    | Scope
    | Switch
    | Let
    | Variable
    | Whole
    | Place
    | Memory
    | Assign
    | Return
)


def lets(
    outputs: Mapping[str, Expr],
    given: Mapping[Expr, str | Expr],
    prefix: str = "t",
    *,
    double: bool = False,
) -> list[Let]:
    """Return the statements that define the names of `outputs` (see `in_steps`)."""
    return [Let(name, value, double) for name, value in in_steps(outputs, given, prefix)]


def element(vector: str, index: str | int) -> Expr:
    """Return a number of a vector in memory."""
    return Expr("element", (variable(vector), variable(str(index))))


def whole(text: str) -> Expr:
    """Return the text of a whole number as a formula."""
    return Expr("whole", (variable(text),))


def is_nan(x: Expr) -> Expr:
    """Return whether a number is NaN, from its bits."""
    return Expr("is_nan", (x,))


def not_finite(x: Expr) -> Expr:
    """Return whether a number is NaN or infinite, from its bits."""
    return Expr("not_finite", (x,))


def floor(x: Expr) -> Expr:
    """Return the largest whole number up to x."""
    return Expr("floor", (x,))


def vselect(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Return a if the condition is true, else b; only one is computed."""
    return Expr("where", (condition, a, b))


def called(function: str, *arguments: str) -> Expr:
    """Return a call of a function of the program, as a number."""
    return Expr(function, tuple(map(variable, arguments)))


def load_vector(place: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return the expression that loads lanes, `stride` numbers apart; 0 after the first `lanes`."""
    if stride != 1:
        return f"load_every({place}, {lanes}, {stride})"
    return f"load_first({place}, {lanes})" if lanes else f"load({place})"


def store(place: str, value: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return the statement that stores a vector, or its first `lanes` (see `load_vector`)."""
    if stride != 1:
        return f"store_every({place}, {value}, {lanes}, {stride});"
    return f"store_first({place}, {value}, {lanes});" if lanes else f"store({place}, {value});"


@dataclass(frozen=True, eq=False, repr=False)
class CFunction:
    """A C function of a program.

    Attributes:
        phase: phase in which the function is called.
        buffers: names of the arrays and of the workspace that it uses.
        writes: buffers that it writes for other functions.
        text: comment.
        parameters: parameters besides `MEMORY_PARAMETERS`.
        count: number of units that threads divide in ``prepare``, ``reduce`` and ``finish``.
        times: rows for each row of the batch, in ``rows`` and ``reduce``.
        tile: a function that only this function calls.
        by_columns: whether threads divide `count` units also in ``rows``, instead of the rows.
        takes_part: whether it must know which thread calls it.
        claims: how threads divide `count` units: statically; by claims from list `number` before a
            call; or by claims within the call, from this list and, if needed, the next lists.
        trains: whether it is called for training only, not to compute outputs.
    """

    name: str
    phase: Phase
    buffers: Sequence[str]
    body: Sequence[Statement]
    text: str = ""
    parameters: str = "const int64_t first, const int64_t last"
    count: int = 0
    times: int = 1
    tile: "CFunction | None" = None
    by_columns: bool = False
    qualifiers: str = "static"
    writes: Sequence[str] = ()
    takes_part: bool = False
    claims: Literal["", "before", "within"] = ""
    number: int = 0
    trains: bool = False

    @property
    def all_buffers(self) -> set[str]:
        """Names of the buffers of the function and its tile."""
        return {*self.buffers, *(self.tile.all_buffers if self.tile else ())}

    def waits_for(self, other: "CFunction") -> bool:
        """Return whether all threads must have called `other` before any calls this function.

        No wait is needed if both divide the same rows of the batch, and neither is divided by
        columns or called once in a step.
        """
        if not (self.phase in ("prepare", "finish") or self.by_columns or other.by_columns):
            return False
        return bool({*self.writes} & other.all_buffers or {*other.writes} & self.all_buffers)

    def _times(self, *rows: str) -> str:
        return ", ".join(rows if self.times == 1 else (f"{n} * {self.times}" for n in rows))

    @property
    def call(self) -> str:
        """The statement that calls it in its phase."""
        part = "part, " if self.takes_part else ""
        if self.phase == "rows" and not self.by_columns:
            end = "last" if self.tile else "stop"  # tiles belong to a whole batch
            return f"{self.name}(table, workspace, {part}{self._times('first', end)});"
        more = f", {self._times('begin', 'end')}" if self.phase == "reduce" else ""
        if self.claims == "within":
            return f"{self.name}(table, workspace, part, {self.number}{more});"
        if self.claims == "before":
            call = f"{self.name}(table, workspace, {part}from, to{more});"
            return f"for (int64_t from = 0, to = 0; claim(part, {self.number}, &from, &to);) {call}"
        share = f"FIRST({self.count}), LAST({self.count})"
        return f"{self.name}(table, workspace, {part}{share}{more});"
