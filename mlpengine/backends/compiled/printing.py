"""Printing of statements as C: vector C for compiled programs, scalar C for exports."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from mlpengine.backends.compiled.statements import (
    MEMORY_PARAMETERS,
    Assign,
    CFunction,
    ClaimLoop,
    Each,
    ForLoop,
    If,
    Let,
    Memory,
    Place,
    Return,
    Scope,
    Statement,
    Switch,
    Variable,
    Whole,
)
from mlpengine.formula import C_MASKS, Expr, c_expression


class CTarget(NamedTuple):
    """A kind of C: the types of numbers and of loop counters, and the bytes of a constant."""

    number: Literal["vec", "real"]
    counter: str
    itemsize: int

    def expression(self, value: Expr) -> str:
        """Return a formula as one expression."""
        return c_expression(value, self.itemsize, self.number)


SCALAR_C = CTarget("real", "size_t", 8)
"""Scalar C; constants have all digits of a double, and conversion to ``real`` rounds them."""


def vector_c(itemsize: int) -> CTarget:
    """Return the target for vector C; a number has `itemsize` bytes."""
    return CTarget("vec", "int64_t", itemsize)


def print_function(function: CFunction, declarations: Iterable[str], target: CTarget) -> str:
    """Return the C text of a function; `declarations` declare its buffers."""
    effects = [] if function.qualifiers == "INLINE" else ["HAS_EFFECTS;"]
    maybe_unused = ", ".join(f"(void){name}" for name in parameter_names(function))
    body = [f"{maybe_unused};", *declarations, *effects, *function.body]
    lines = [f"/* {function.text} */"] if function.text else []
    lines.append(f"{print_head(function)} {{")
    return "\n".join([*lines, *print_statements(body, target, "  "), "}", ""])


def print_head(function: CFunction) -> str:
    """Return a function's declaration, without the semicolon."""
    return f"{function.qualifiers} void {function.name}({_parameters(function)})"


def _parameters(function: CFunction) -> str:
    return (
        f"{MEMORY_PARAMETERS}, {function.parameters}" if function.parameters else MEMORY_PARAMETERS
    )


def parameter_names(function: CFunction) -> Iterator[str]:
    """Yield the names of a function's parameters, including `MEMORY_PARAMETERS`."""
    for parameter in _parameters(function).split(","):
        yield parameter.split()[-1].partition("[")[0].lstrip("*")


def print_statements(
    statements: Iterable[Statement], target: CTarget, indent: str = ""
) -> Iterator[str]:
    """Yield the statements as lines of C."""
    for statement in statements:
        yield from _lines(statement, target, indent)


def _lines(statement: Statement, target: CTarget, indent: str) -> Iterator[str]:
    match statement:
        case str():
            yield indent + statement
        case Let() | Variable() | Whole() | Place() | Memory() | Assign() | Return():
            yield f"{indent}{_line(statement, target)};"
        case ForLoop(variable, start, stop, body, step):
            grow = f"{variable}++" if step == 1 else f"{variable} += {step}"
            head = f"{target.counter} {variable} = {start}; {variable} < {stop}; {grow}"
            yield from _block(f"for ({head}) {{", body, target, indent)
        case ClaimLoop(number, body):
            claim = f"claim(part, {number}, &first, &last)"
            head = f"for (int64_t first = 0, last = 0; {claim};) {{"
            yield from _block(head, body, target, indent)
        case If(condition, body, otherwise):
            if isinstance(condition, Expr):
                condition = target.expression(condition)
            *lines, end = _block(f"if ({condition}) {{", body, target, indent)
            yield from lines
            if otherwise:
                yield from _block(f"{end.lstrip()} else {{", otherwise, target, indent)
            else:
                yield end
        case Each(body, rows):
            yield from _block(f"EACH({rows}) {{", body, target, indent)
        case Scope(body):
            yield from _block("{", body, target, indent)
        case Switch(variable, cases):
            lines = [f"case {value}: {call} break;" for value, call in cases]
            lines.append("default: __builtin_trap(); /* rows that no case computes */")
            yield from _block(f"switch ({variable}) {{", lines, target, indent)


def _block(head: str, body: Iterable[Statement], target: CTarget, indent: str) -> Iterator[str]:
    yield indent + head
    yield from print_statements(body, target, indent + "  ")
    yield indent + "}"


def _line(
    statement: Let | Variable | Whole | Place | Memory | Assign | Return, target: CTarget
) -> str:
    number = target.number
    match statement:
        case Let(name, value, double):
            kind = "double" if double else number
            text = c_expression(value, 8 if double else target.itemsize, kind)
            return f"const {C_MASKS[kind] if value.is_mask else kind} {name} = {text}"
        case Variable(name, value):
            return f"{number} {name} = {target.expression(value)}"
        case Whole(name, text):
            return f"int {name} = {text}"
        case Place(name, value):
            return f"const {target.counter} {name} = ({target.counter})({target.expression(value)})"
        case Memory(name, length, zeros):
            return f"{number} {name}[{length}]{' = {0}' * zeros}"
        case Assign(place, value, sign):
            return f"{target.expression(place)} {sign}= {target.expression(value)}"
        case Return(value):
            return f"return {target.expression(value)}"
