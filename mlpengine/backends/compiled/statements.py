"""A small intermediate language: statements, and functions made of statements.

A statement is an object of a class in this module.  In statements, floating-point expressions are
formulas (`Expr`); integers and addresses are C text.  A statement may also be a line of C, or a
call that is the same in C and JavaScript.  `printing` prints statements as vector C or scalar C.
`mlpengine.backends.scalar.javascript` prints them as JavaScript.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from mlpengine.formula import Expr, in_steps, variable

Phase = Literal["prepare", "rows", "reduce", "finish", "update"]

PHASES: tuple[Phase, ...] = ("prepare", "rows", "reduce", "finish", "update")
"""The phases of a step, in order; each function is called in a single phase.

``prepare`` runs once: it packs parameters and computes values that depend on parameters only.
``rows`` runs for each chunk of rows: forward, loss and backward.  ``reduce`` sums over the rows of
the chunk, for gradients of parameters.  ``finish`` runs once, for values that depend on such sums.
``update`` is the optimizer."""

MEMORY_PARAMETERS = "void *const *table, char *workspace"
"""The first parameters of C functions; the addresses of all buffers come from these."""


class ForLoop(NamedTuple):
    """``for (int64_t variable = start; variable < stop; variable += step)``."""

    variable: str
    start: str | int
    stop: str | int
    body: Sequence["Statement"]
    step: str | int = 1


class ClaimLoop(NamedTuple):
    """A loop in which a thread claims units of list `number` until no unit is left.

    In the body, the C variables ``first`` and ``last`` are the bounds of the claimed units.
    """

    number: str
    body: Sequence["Statement"]


class Each(NamedTuple):
    """An unrolled loop over the vectors of a tile, with indices ``r`` (row) and ``v``."""

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
    """A call for each value of a variable; any other value is a bug, and ends the program."""

    variable: str
    cases: Sequence[tuple[int, str]]


class Let(NamedTuple):
    """A constant: a number of the target's type (if `double`, a double), or a bool."""

    name: str
    value: Expr
    double: bool = False


class Variable(NamedTuple):
    """A variable of the target's number type, with its first value."""

    name: str
    value: Expr


class Whole(NamedTuple):
    """An integer variable, with its first value as C text."""

    name: str
    value: str


class Place(NamedTuple):
    """A constant index, converted from a number with a nonnegative integer value."""

    name: str
    value: Expr


class Memory(NamedTuple):
    """A local array of numbers; with `zeros`, it is filled with zeros."""

    name: str
    length: int
    zeros: bool = False


class Assign(NamedTuple):
    """``target = value``; with the `sign` ``+``, ``-`` or ``/``, ``target += value`` and so on."""

    target: Expr
    value: Expr
    sign: str = ""


class Return(NamedTuple):
    """``return value``."""

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
    """Return the statements that compute `outputs`; other new names begin with `prefix`."""
    return [Let(name, value, double) for name, value in in_steps(outputs, given, prefix)]


def element(vector: str, index: str | int) -> Expr:
    """Return the entry of a vector at `index`, as a formula."""
    return Expr("element", (variable(vector), variable(str(index))))


def whole(text: str) -> Expr:
    """Return an integer, given as C text, as a formula."""
    return Expr("whole", (variable(text),))


def is_nan(x: Expr) -> Expr:
    """Return the formula of a test for NaN that reads the bits of x."""
    return Expr("is_nan", (x,))


def not_finite(x: Expr) -> Expr:
    """Return the formula of a test for NaN and infinity that reads the bits of x."""
    return Expr("not_finite", (x,))


def floor(x: Expr) -> Expr:
    """Return the formula of the largest integer <= x."""
    return Expr("floor", (x,))


def vselect(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Return the formula of ``condition ? a : b``."""
    return Expr("where", (condition, a, b))


def called(function: str, *arguments: str) -> Expr:
    """Return a call of a C function as a formula."""
    return Expr(function, tuple(map(variable, arguments)))


def load_vector(place: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return C that loads numbers `stride` apart: a vector, or `lanes` numbers and then zeros."""
    if stride != 1:
        return f"load_every({place}, {lanes}, {stride})"
    return f"load_first({place}, {lanes})" if lanes else f"load({place})"


def store(place: str, value: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return the C statement that stores a vector, or only its first `lanes` numbers."""
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
        count: number of units, such as panels, that threads divide, except in ``rows``.
        times: number of rows for each row of the batch, in ``rows`` and ``reduce``.
        tile: a function that only this function calls.
        by_columns: whether threads divide `count` units even in ``rows``, where they usually divide
            the rows of the batch.
        takes_part: whether the function has a parameter ``part``, the calling thread's part.
        claims: how threads divide units.  "": statically; ``before``: the caller claims units
            before each call; ``within``: the function claims units.
        number: the list of units to claim; ``within`` may continue with the next lists.
        trains: whether the function is called only in training, not in predictions.
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

        No wait is needed between functions that divide the batch by rows, because each thread calls
        both for the same rows.
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
            # `last` is the same for short batches; tiles must not depend on the number of rows
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
