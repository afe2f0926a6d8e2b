"""Where each value and each packed copy lies: the caller's arrays, or the program's workspace."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mlpengine.backends.compiled.kernels import Kernel, read_by_vectors
from mlpengine.backends.compiled.target import Target
from mlpengine.backends.compiled.values import Value, padded_length
from mlpengine.spec import Array

LINE = 64
"""Bytes: everything in the workspace starts at a cache line."""


@dataclass(eq=False)
class Layout:
    """Addresses of a program.

    ``arrays`` are passed as a table of pointers; ``nbytes`` of workspace are allocated once and
    handed over with it.
    """

    target: Target
    itemsize: int
    arrays: list[Array] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def lanes(self) -> int:
        """Numbers in a vector."""
        return self.target.vector_bytes // self.itemsize

    def place(self, kernels: Iterable[Kernel], values: Iterable[Value]) -> None:
        """Decide where every value lies."""
        imported = set(self._to_import(kernels))
        for value in values:
            if not value.written:
                value.padded = value in imported
            if value.padded:
                if value.stored:
                    self.room(value.name, value.rows * self.stride(value))
            else:
                self.external(value.name, value.array)
            if value.padded and (value.final or not value.written):
                self.external(f"{value.name}_np", value.array)

    def room(self, name: str, count: int, kind: str = "real") -> None:
        """Reserve `count` numbers in the workspace under `name`."""
        size = 8 if kind != "real" else self.itemsize
        self.declarations[name] = f"({kind} *)(workspace + {self.nbytes})"
        self.nbytes += -(-count * size // LINE) * LINE

    def external(self, name: str, array: Array) -> None:
        """Add an array of the caller to the table under `name`."""
        kind = {"f": "real", "i": "int64_t"}[array.dtype.kind]
        if kind == "real" and array.itemsize != self.itemsize:
            kind = {4: "float", 8: "double"}[array.itemsize]
        self.declarations[name] = f"({kind} *)table[{len(self.arrays)}]"
        self.arrays.append(array)

    def stride(self, value: Value) -> int:
        """Return the length of a row in memory."""
        return padded_length(value.columns, self.lanes) if value.padded else value.columns

    def declare(self, names: Iterable[str], body: str) -> str:
        """Return the C declarations of those names that `body` uses, in a fixed order."""
        used = set(names) & set(re.findall(r"\w+", body))
        lines = []
        for name, place in self.declarations.items():
            if name in used:
                kind = place[1 : place.index(" ")]
                lines.append(f"  {kind} *restrict {name} = {place};\n")
        return "".join(lines)

    def _to_import(self, kernels: Iterable[Kernel]) -> Iterator[Value]:
        """Yield the caller's arrays that kernels read by whole vectors, though rows are not."""
        for kernel in kernels:
            for value in read_by_vectors(kernel, self.lanes):
                if (
                    not value.written
                    and value.columns % self.lanes
                    and value.array.dtype.kind == "f"
                ):
                    yield value
