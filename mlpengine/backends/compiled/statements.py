"""Programs as data: statements, and functions made of statements.

A statement is an object of a class in this module.  Its floating-point numbers are formulas; its
whole numbers and addresses are text.  A statement may also be a line of text.  This line is C, or
a call that is the same in C and in JavaScript.  `printing` prints statements as C on vectors or on
single numbers.  `javascript` in `mlpengine.backends.scalar` prints them as JavaScript.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from mlpengine.formula import Expr, in_steps, variable

Phase = Literal["prepare", "rows", "reduce", "finish", "update"]

PHASES: tuple[Phase, ...] = ("prepare", "rows", "reduce", "finish", "update")
"""The phases of a step, in order; each function is called in a single phase.

``prepare`` runs once, to pack parameters and to compute values from parameters alone.  ``rows``
runs for each part of the batch: forward, loss and backward.  ``reduce`` sums over the rows of the
part, for gradients of parameters.  ``finish`` runs once, for values that depend on such sums.
``update`` is the optimizer."""

MEMORY_PARAMETERS = "void *const *table, char *workspace"
"""The first parameters of C functions, from which the functions declare their buffers."""


class ForLoop(NamedTuple):
    """``for (int64_t variable = start; variable < stop; variable += step)``."""

    variable: str
    start: str | int
    stop: str | int
    body: Sequence["Statement"]
    step: str | int = 1


class ClaimLoop(NamedTuple):
    """A loop in which the thread claims units of list `number` until no unit is left.

    In the body, the variables ``first`` and ``last`` are the bounds of the claimed units.
    """

    number: str
    body: Sequence["Statement"]


class Each(NamedTuple):
    """An unrolled loop over the vectors ``[r][v]`` of a tile."""

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
    """A call for each value of a variable; another value is a bug of the generator and traps."""

    variable: str
    cases: Sequence[tuple[int, str]]


class Let(NamedTuple):
    """A constant number or bool; with `double`, a double instead of the target's number type."""

    name: str
    value: Expr
    double: bool = False


class Variable(NamedTuple):
    """A variable number with its first value."""

    name: str
    value: Expr


class Whole(NamedTuple):
    """A variable whole number with its first value as text."""

    name: str
    value: str


class Place(NamedTuple):
    """A constant index into memory, converted from a number that is whole and not negative."""

    name: str
    value: Expr


class Memory(NamedTuple):
    """A local array of numbers; with `zeros`, filled with zeros."""

    name: str
    length: int
    zeros: bool = False


class Assign(NamedTuple):
    """``target = value``; with a `sign` such as ``+``, ``target += value``."""

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
    """Return the statements that compute `outputs` by name (see `in_steps`)."""
    return [Let(name, value, double) for name, value in in_steps(outputs, given, prefix)]


def element(vector: str, index: str | int) -> Expr:
    """Return an entry of a vector in memory."""
    return Expr("element", (variable(vector), variable(str(index))))


def whole(text: str) -> Expr:
    """Return a whole number, given as text, as a formula."""
    return Expr("whole", (variable(text),))


def is_nan(x: Expr) -> Expr:
    """Return the test for NaN as a formula on the bits of x."""
    return Expr("is_nan", (x,))


def not_finite(x: Expr) -> Expr:
    """Return the test for NaN and infinite numbers as a formula on the bits of x."""
    return Expr("not_finite", (x,))


def floor(x: Expr) -> Expr:
    """Return the formula of the largest whole number up to x."""
    return Expr("floor", (x,))


def vselect(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Return the formula of a if the condition is true, else b; only one is computed."""
    return Expr("where", (condition, a, b))


def called(function: str, *arguments: str) -> Expr:
    """Return a call of a function of the program as a formula."""
    return Expr(function, tuple(map(variable, arguments)))


def load_vector(place: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return C that loads a vector of numbers `stride` apart, or `lanes` of them followed by 0."""
    if stride != 1:
        return f"load_every({place}, {lanes}, {stride})"
    return f"load_first({place}, {lanes})" if lanes else f"load({place})"


def store(place: str, value: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return the C statement that stores a vector, or its first `lanes` (see `load_vector`)."""
    if stride != 1:
        return f"store_every({place}, {value}, {lanes}, {stride});"
    return f"store_first({place}, {value}, {lanes});" if lanes else f"store({place}, {value});"


@dataclass(frozen=True, eq=False, repr=False)
class CFunction:
    """A C function of a program.

    Attributes:
        phase: phase in which the function is called.
        buffers: names of the buffers that the function itself uses.
        writes: buffers that the function writes for other functions.
        text: comment.
        parameters: parameters after `MEMORY_PARAMETERS`.
        count: number of units, such as panels, that threads divide in all phases but ``rows``.
        times: number of rows for each row of the batch, in ``rows`` and ``reduce``.
        tile: a function that only this function calls.
        by_columns: whether threads divide `count` units, not the rows of the batch, in the phase
            ``rows``.
        takes_part: whether the function has a parameter ``part``, the calling thread's part.
        claims: how threads divide units: "" statically, ``before`` by a claim before each call,
            ``within`` by claims in the function.
        number: the list from which threads claim; ``within`` may continue with the next lists.
        trains: whether the function is only called for training, not to compute outputs.
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
        """Return whether no thread may call this function before all threads have called `other`.

        No wait is needed between functions that divide the batch by rows: each thread calls both
        for the same rows.
        """
        if not (self.phase in ("prepare", "finish") or self.by_columns or other.by_columns):
            return False
        return bool({*self.writes} & other.all_buffers or {*other.writes} & self.all_buffers)

    def _times(self, *rows: str) -> str:
        return ", ".join(rows if self.times == 1 else (f"{n} * {self.times}" for n in rows))

    @property
    def call(self) -> str:
        """The statement that calls the function in its phase."""
        part = "part, " if self.takes_part else ""
        if self.phase == "rows" and not self.by_columns:
            # the heights of tiles depend on `last`, so they are the same in a short batch
            end = "last" if self.tile else "stop"
            return f"{self.name}(table, workspace, {part}{self._times('first', end)});"
        more = f", {self._times('begin', 'end')}" if self.phase == "reduce" else ""
        if self.claims == "within":
            return f"{self.name}(table, workspace, part, {self.number}{more});"
        if self.claims == "before":
            call = f"{self.name}(table, workspace, {part}from, to{more});"
            return f"for (int64_t from = 0, to = 0; claim(part, {self.number}, &from, &to);) {call}"
        share = f"FIRST({self.count}), LAST({self.count})"
        return f"{self.name}(table, workspace, {part}{share}{more});"
