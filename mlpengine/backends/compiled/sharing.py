"""Shared C functions, so that the code of equal layers is compiled once.

Functions that differ only in names become calls of one function, with their buffers' addresses.
"""

import re
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.printing import parameter_names, print_statements, vector_c
from mlpengine.backends.compiled.statements import CFunction, Statement

_WORD = re.compile(r"\b(at_|limit_|scale_|)(\w+?)((?:_t\d+)?)\b")
"""A name; the first and last group are the prefix or suffix of a derived name."""

_ANY_WORD = re.compile(r"\w+")
"""Any word.  Functions that differ only in names are equal when all words are removed."""


class Shared(NamedTuple):
    """The replacement of a function by a shared function.

    Attributes:
        function: the first of the equal functions; the shared function has its code.
        table: names of the replaced function's buffers, in the order of the buffers of `function`.
    """

    function: CFunction
    table: Sequence[str]

    @property
    def name(self) -> str:
        """Name of the shared function."""
        return f"{self.function.name}_shared"

    def call(self, layout: Layout) -> list[Statement]:
        """Return the statements that call the shared function."""
        own = ", ".join(map(layout.pointer, self.table))
        _, *given = parameter_names(self.function)
        return [f"void *const own[] = {{{own}}};", f"{self.name}({', '.join(['own', *given])});"]


def find_shared(
    functions: Sequence[CFunction], layout: Layout, values: Container[str]
) -> dict[CFunction, Shared]:
    """Return the replacements of `functions` that differ only in names of buffers and `values`."""
    target = vector_c(layout.itemsize)
    similar: dict[str, list[tuple[CFunction, list[CFunction], str]]] = {}
    for function in functions:
        chain = [*_chain(function)]
        lines = [line for each in chain for line in print_statements(each.body, target)]
        if len(lines) > 1:
            text = "\n".join([*(each.parameters for each in chain), *lines])
            similar.setdefault(_ANY_WORD.sub("", text), []).append((function, chain, text))
    alike: dict[tuple[object, ...], list[tuple[CFunction, list[str]]]] = {}
    candidates = (group for group in similar.values() if len(group) > 1)
    for function, chain, text in (one for group in candidates for one in group):
        names = {each.name for each in chain}
        numbers: dict[str, int] = {}

        def numbered(
            word: re.Match[str], names: set[str] = names, numbers: dict[str, int] = numbers
        ) -> str:
            before, name, after = word.groups()
            if not (name in names or name in values or layout.knows(name)):
                return word[0]
            return f"{before}#{numbers.setdefault(name, len(numbers))}{after}"

        text = _WORD.sub(numbered, text)
        buffers = {name for each in chain for name in each.buffers}
        table = [place for name in numbers if name in buffers for place in layout.table_of(name)]
        alike.setdefault((text, *map(layout.kind, table)), []).append((function, table))
    return {
        function: Shared(group[0][0], table)
        for group in alike.values()
        if len(group) > 1
        for function, table in group
    }


def _chain(function: CFunction | None) -> Iterator[CFunction]:
    """Yield a function, its tile function, the tile function of that, until there is none."""
    while function is not None:
        yield function
        function = function.tile
