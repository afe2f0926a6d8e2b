"""C as data: typed statements, functions of them, and the one printer of both.

A statement is a line of C or an instance of one of the classes here, so that generators do not
indent loops themselves and do not search for loads in text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Phase = Literal["prepare", "rows", "reduce", "finish", "update"]

PHASES: tuple[Phase, ...] = ("prepare", "rows", "reduce", "finish", "update")
"""The phase in which a function is called: ``prepare`` once in each step, for what follows from
parameters alone, and to pack them; ``rows`` for some rows of the batch: forward, loss and backward;
``reduce`` to sum over those rows into the gradients of the parameters; ``finish`` once in each
step, for what follows from these sums; ``update`` for the optimizer."""

MEMORY_PARAMETERS = "void *const *table, char *workspace"
"""The parameters of C functions that declare their buffers themselves."""


class ForLoop(NamedTuple):
    """``for (int64_t variable = start; variable < stop; variable += step)``."""

    variable: str
    start: str | int
    stop: str | int
    body: Sequence["Statement"]
    step: str | int = 1


class ClaimLoop(NamedTuple):
    """For each run of units, `first` to `last`, that the thread claims from the list `number`."""

    number: str
    body: Sequence["Statement"]


class Each(NamedTuple):
    """For each vector ``[r][v]`` of a tile, unrolled."""

    body: Sequence["Statement"]


class If(NamedTuple):
    """``if (condition)`` with an optional ``else``."""

    condition: str
    body: Sequence["Statement"]
    otherwise: Sequence["Statement"] = ()


class Scope(NamedTuple):
    """Statements in a nested scope."""

    body: Sequence["Statement"]


class Switch(NamedTuple):
    """A call for each value of a variable; any other value is a bug of the generator and traps."""

    variable: str
    cases: Sequence[tuple[int, str]]


Statement: TypeAlias = str | ForLoop | ClaimLoop | Each | If | Scope | Switch


def load_vector(place: str, lanes: str | int = "", stride: int = 1) -> str:
    """Return the expression that loads a vector, or its first `lanes`, the others 0.

    With a `stride` the lanes come from every so many numbers.
    """
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
        phase: when it is called.
        buffers: names of the arrays and of the workspace that it uses.
        writes: those of them that it writes and other functions read.
        text: a comment.
        parameters: of the C function, beside `MEMORY_PARAMETERS`.
        count: number of things that threads divide in ``prepare``, ``reduce`` and ``finish``.
        times: rows for each row of the batch, in ``rows`` and ``reduce``.
        tile: a function that only this one calls.
        by_columns: whether threads divide `count` things in ``rows`` too, instead of the rows.
        takes_part: whether it needs to know which thread calls it.
        claims: how the threads divide `count` things: statically, by claiming them before a call
            from the list `number`, or within it from this list and, if need be, those after it.
        trains: whether it is called to train only, and not to compute outputs.
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
        """Names of the buffers that it and its tile use."""
        return {*self.buffers, *(self.tile.all_buffers if self.tile else ())}

    def waits_for(self, other: "CFunction") -> bool:
        """Return whether all threads must have called `other` before any calls this one.

        They divide both by the same rows of the batch, unless one of the two is divided by columns
        or called once in a step.
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
            end = "last" if self.tile else "stop"  # tiles are those of a whole batch
            return f"{self.name}(table, workspace, {part}{self._times('first', end)});"
        more = f", {self._times('begin', 'end')}" if self.phase == "reduce" else ""
        if self.claims == "within":
            return f"{self.name}(table, workspace, part, {self.number}{more});"
        if self.claims == "before":
            call = f"{self.name}(table, workspace, {part}from, to{more});"
            return f"for (int64_t from = 0, to = 0; claim(part, {self.number}, &from, &to);) {call}"
        share = f"FIRST({self.count}), LAST({self.count})"
        return f"{self.name}(table, workspace, {part}{share}{more});"


def print_function(function: CFunction, declarations: Iterable[str]) -> str:
    """Return the C text of a function; `declarations` are those of its buffers."""
    effects = [] if function.qualifiers == "INLINE" else ["HAS_EFFECTS;"]
    maybe_unused = ", ".join(f"(void){name}" for name in parameter_names(function))
    body = [f"{maybe_unused};", *declarations, *effects, *function.body]
    lines = [f"/* {function.text} */"] if function.text else []
    lines.append(f"{print_head(function)} {{")
    return "\n".join([*lines, *print_statements(body, "  "), "}", ""])


def print_head(function: CFunction) -> str:
    """Return what the declaration of a function begins with."""
    return f"{function.qualifiers} void {function.name}({_parameters(function)})"


def _parameters(function: CFunction) -> str:
    return (
        f"{MEMORY_PARAMETERS}, {function.parameters}" if function.parameters else MEMORY_PARAMETERS
    )


def parameter_names(function: CFunction) -> Iterator[str]:
    """Yield the names of the parameters, first those of `MEMORY_PARAMETERS`."""
    for parameter in _parameters(function).split(","):
        yield parameter.split()[-1].partition("[")[0].lstrip("*")


def print_statements(statements: Iterable[Statement], indent: str) -> Iterator[str]:
    """Yield the lines of C."""
    for statement in statements:
        yield from _lines(statement, indent)


def _lines(statement: Statement, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    match statement:
        case str():
            yield indent + statement
        case ForLoop(variable, start, stop, body, step):
            grow = f"{variable}++" if step == 1 else f"{variable} += {step}"
            yield f"{indent}for (int64_t {variable} = {start}; {variable} < {stop}; {grow}) {{"
            yield from print_statements(body, deeper)
            yield indent + "}"
        case ClaimLoop(number, body):
            claim = f"claim(part, {number}, &first, &last)"
            yield f"{indent}for (int64_t first = 0, last = 0; {claim};) {{"
            yield from print_statements(body, deeper)
            yield indent + "}"
        case If(condition, body, otherwise):
            yield f"{indent}if ({condition}) {{"
            yield from print_statements(body, deeper)
            if otherwise:
                yield indent + "} else {"
                yield from print_statements(otherwise, deeper)
            yield indent + "}"
        case Each(body) | Scope(body):
            yield indent + ("EACH {" if isinstance(statement, Each) else "{")
            yield from print_statements(body, deeper)
            yield indent + "}"
        case Switch(variable, cases):
            yield f"{indent}switch ({variable}) {{"
            for value, call in cases:
                yield f"{deeper}case {value}: {call} break;"
            yield f"{deeper}default: __builtin_trap(); /* rows that no case computes */"
            yield indent + "}"
