"""Pieces of C text: identifiers, comments, arrays of constants, and functions that are shared."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlpengine.formula import c_number

TEXT_WIDTH = 96
"""Columns of generated text."""


IN_FLASH = """\
#if defined(__FLASH) && !defined(__STRICT_ANSI__) && !defined(__cplusplus)
#define IN_FLASH __flash /* GNU C for an AVR, whose other constants are copied to RAM */
#else
#define IN_FLASH
#endif
"""
"""The qualifier of constants that are read by their names, not through pointers to RAM."""


def identifier(text: str, *, upper: bool = False) -> str:
    """Return a C identifier made from `text`; other characters than ASCII letters become ``_``."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "x"
    name = name if name[0].isalpha() else f"n{name}"
    return name.upper() if upper else name


@dataclass(eq=False)
class Names:
    """Names that differ from each other and from those `taken`."""

    taken: set[str] = field(default_factory=set)

    def add(self, name: str) -> str:
        """Return `name`, with a number if it is taken."""
        chosen, number = name, 2
        while chosen in self.taken:
            chosen, number = f"{name}_{number}", number + 1
        self.taken.add(chosen)
        return chosen


def comment_text(text: str) -> str:
    """Return `text` as printable ASCII without ``*/``, ``/*`` and trigraphs."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return re.sub(r"(?<=[*/?])(?=[*/?])", " ", plain.replace("\\", "/"))


def real_constant(value: float) -> str:
    """Return a constant of type real, rounded once from `value`."""
    return f"R({c_number(float(value), 8)})"


def array(kind: str, name: str, items: Iterable[str]) -> str:
    """Return the definition of a constant array."""
    shown = [*items]
    rows = "\n".join(f"  {line}" for line in _filled(shown))
    return f"static const {kind} {name}[{len(shown)}] = {{\n{rows}\n}};\n"


def constants(name: str, values: Iterable[float], kind: str = "real") -> str:
    """Return the definition of a constant array of numbers; those that fit a float need no cast."""
    numbers = np.fromiter(values, np.float64)
    with np.errstate(over="ignore"):
        exact = np.isfinite(numbers) & (numbers == numbers.astype(np.float32))
    pairs = zip(numbers.tolist(), exact.tolist(), strict=True)
    return array(kind, name, (repr(v) if short else real_constant(v) for v, short in pairs))


def _filled(items: Sequence[str]) -> Iterator[str]:
    line = ""
    for item in items:
        if line and len(line) + len(item) + 2 > TEXT_WIDTH:
            yield line
            line = ""
        line += f" {item}," if line else f"{item},"
    yield line


def indented(lines: Iterable[str], by: str = "  ") -> str:
    """Return the lines as text."""
    return "".join(f"{by}{line}\n" for line in lines)


@dataclass(eq=False)
class Functions:
    """Functions of a file; equal bodies are one function."""

    names: Names = field(default_factory=Names)
    text: str = ""
    _known: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(
        self, name: str, parameters: str, body: str, *, about: str, result: str = "void"
    ) -> str:
        """Return the name of the function with this body; `about` is its comment."""
        key = (name, parameters, body)
        if key not in self._known:
            chosen = self._known[key] = self.names.add(name)
            head = f"static {result} {chosen}({parameters})"
            self.text += f"/* {about} */\n{head}\n{{\n{body}}}\n\n"
        return self._known[key]
