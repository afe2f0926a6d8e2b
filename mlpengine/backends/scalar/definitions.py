"""Constants and functions of an exported file, and their text in C."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from mlpengine.backends.compiled.printing import SCALAR_C, print_statements
from mlpengine.backends.compiled.statements import Statement
from mlpengine.core.spec import Array
from mlpengine.formula import c_number

TEXT_WIDTH = 96
"""Maximum number of characters in a line of a printed array."""


IN_FLASH = """\
#if defined(__FLASH) && !defined(__STRICT_ANSI__) && !defined(__cplusplus)
#define IN_FLASH __flash /* GNU C for an AVR; other constants are copied to RAM */
#else
#define IN_FLASH
#endif
"""
"""Definition of ``IN_FLASH``, a qualifier of arrays that are never passed as pointers."""

ParameterKind = Literal["reads", "writes", "number", "count"]

PARAMETER_TYPES: Mapping[ParameterKind, str] = {
    "reads": "const real *",
    "writes": "real *",
    "number": "real ",
    "count": "size_t ",
}
"""C type of a parameter: a vector to read, a vector to write, a number, or an integer."""


class Constants(NamedTuple):
    """A constant array of the C type `kind`; if `by_name`, it is never passed as a pointer."""

    name: str
    values: Array
    kind: str = "real"
    by_name: bool = False

    @property
    def c(self) -> str:
        """The definition in C, with a cast of each number that a float cannot hold exactly."""
        numbers = self.values.tolist()
        if self.kind == "real":
            wide = self.values.astype(np.float64)
            with np.errstate(over="ignore"):
                short = np.isfinite(wide) & (wide == wide.astype(np.float32))
            pairs = zip(wide.tolist(), short.tolist(), strict=True)
            items = [repr(v) if exact else real_constant(v) for v, exact in pairs]
        else:
            items = [*map(str, numbers)]
        flash = "IN_FLASH " * self.by_name
        return array(f"{flash}{self.kind}", self.name, items)


class ScalarFunction(NamedTuple):
    """A function of an exported file; `about` is its comment, `result` the type that it returns."""

    name: str
    parameters: Mapping[str, ParameterKind]
    body: Sequence[Statement]
    about: str = ""
    result: Literal["void", "real", "int"] = "void"
    static: bool = True

    @property
    def c(self) -> str:
        """The definition in C."""
        about = f"/* {self.about} */\n" * bool(self.about)
        head = "static " * self.static + f"{self.result} {self.name}({self.c_parameters})"
        return f"{about}{head}\n{{\n{c_text(self.body)}}}\n\n"

    @property
    def c_parameters(self) -> str:
        """The parameters in C."""
        return ", ".join(f"{PARAMETER_TYPES[k]}{name}" for name, k in self.parameters.items())


Definition = Constants | ScalarFunction


def c_text(statements: Iterable[Statement]) -> str:
    """Return statements as lines of C."""
    return "".join(f"{line}\n" for line in print_statements(statements, SCALAR_C, "  "))


def c_definitions(definitions: Iterable[Definition]) -> str:
    """Return definitions as C."""
    return "".join(one.c for one in definitions)


@dataclass(eq=False)
class FreshNames:
    """Makes names that are not in `taken`, and adds them to `taken`."""

    taken: set[str] = field(default_factory=set)

    def add(self, name: str) -> str:
        """Return `name`, followed by a number if `name` is taken."""
        chosen, number = name, 2
        while chosen in self.taken:
            chosen, number = f"{name}_{number}", number + 1
        self.taken.add(chosen)
        return chosen


@dataclass(eq=False)
class Functions:
    """The definitions of a file; equal functions are defined once."""

    names: FreshNames = field(default_factory=FreshNames)
    definitions: list[Definition] = field(default_factory=list)
    _known: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(
        self,
        name: str,
        parameters: Mapping[str, ParameterKind],
        body: Sequence[Statement],
        *,
        about: str,
        result: Literal["void", "real", "int"] = "void",
    ) -> str:
        """Define a function, unless an equal function is defined; return the function's name."""
        made = ScalarFunction(name, parameters, body, about, result)
        key = (name, made.c_parameters, c_text(body))
        if key not in self._known:
            self._known[key] = self.names.add(name)
            self.definitions.append(made._replace(name=self._known[key]))
        return self._known[key]


# ---------------------------------------------------------------- pieces of C
def identifier(text: str, *, upper: bool = False) -> str:
    """Return `text` as a C identifier: other characters than A-Z, a-z, 0-9 become ``_``."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "x"
    name = name if name[0].isalpha() else f"n{name}"
    return name.upper() if upper else name


def comment_text(text: str) -> str:
    r"""Return up to 1,000 characters of `text` as printable ASCII that is safe in a C comment.

    Other characters are written as in Python, such as \u6771.
    """
    text = text if len(text) <= 1000 else f"{text[:1000]}..."
    plain = text.translate(IN_COMMENTS).encode("ascii", "backslashreplace").decode()
    return re.sub(r"(?<=[*/?])(?=[*/?])", " ", plain)


IN_COMMENTS = {**dict.fromkeys([*range(32), 127], "?"), ord("\\"): "/"}
"""Replacements of ASCII characters in C comments, by character code."""


def real_constant(value: float) -> str:
    """Return `value` as a C constant of type real; the compiler rounds once."""
    return f"R({c_number(float(value), 8)})"


def array(kind: str, name: str, items: Iterable[str]) -> str:
    """Return the definition of a constant array."""
    shown = [*items]
    rows = "\n".join(f"  {line}" for line in _filled(shown))
    return f"static const {kind} {name}[{len(shown)}] = {{\n{rows}\n}};\n"


def _filled(items: Sequence[str]) -> Iterator[str]:
    line = ""
    for item in items:
        if line and len(line) + len(item) + 2 > TEXT_WIDTH:
            yield line
            line = ""
        line += f" {item}," if line else f"{item},"
    yield line
