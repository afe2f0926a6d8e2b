"""Memory of a program: values and packed copies, in the caller's arrays or in the workspace."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mlpengine.backends.compiled.statements import PHASES, CFunction, Phase, load_vector
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.values import MatrixValue, padded_length
from mlpengine.core.buffers import address_of
from mlpengine.core.placement import Storage, place
from mlpengine.core.spec import Array
from mlpengine.ops import Dropout, Philox
from mlpengine.ops.philox import padded_columns


class _Reservation(NamedTuple):
    """Memory in the workspace, for functions that name it, and for headers in `phases`."""

    kind: str
    nbytes: int
    phases: Sequence[Phase]


@dataclass(eq=False, repr=False)
class Layout:
    """The memory of a program: `arrays` of the caller, and a workspace of `nbytes` bytes.

    A call gets a table with the addresses of `arrays`.  `limits` are the indices of dropout limits
    in `arrays`.  `plan` must be called before the program is printed.
    """

    target: CompileTarget
    itemsize: int
    arrays: list[Array] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    nbytes: int = 0
    _pointers: dict[str, tuple[str, str]] = field(default_factory=dict)
    _reserved: dict[str, _Reservation] = field(default_factory=dict)
    _limits: dict[str, str] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """Number of entries in a vector register."""
        return self.target.vector_bytes // self.itemsize

    def place(self, values: Iterable[MatrixValue], by_vectors: Container[MatrixValue]) -> None:
        """Place every value in the caller's array or, with padded rows, in the workspace.

        Inputs with rows that may end within a vector are copied if they are in `by_vectors`.
        """
        for value in values:
            if not value.written:
                partial = value.columns % self.lanes > 0 and value.array.dtype.kind == "f"
                value.padded = partial and value in by_vectors
            if value.padded:
                if value.stored:
                    kind = "uint8_t" if value.mask else "real"
                    self.reserve(value.name, value.rows * self.stride(value), kind)
                    # not a constant in C, so that networks with other dropout rates share the C
                    if value.mask:
                        self._limits[value.name] = f"limit_{value.name}"
                        self.limits.append(len(self.arrays))
                        self.add_array(self._limits[value.name], _limit(value.mask))
            else:
                self.add_array(value.name, value.array)
            if value.padded and (value.final or not value.written):
                self.add_array(f"{value.name}_np", value.array)

    def reserve(
        self, name: str, count: int, kind: str = "real", phases: Sequence[Phase] = ()
    ) -> None:
        """Reserve `count` numbers of the C type `kind`; headers use these numbers in `phases`."""
        size = {"real": self.itemsize, "uint8_t": 1}.get(kind, 8)
        self._reserved[name] = _Reservation(kind, count * size, phases)

    def add_array(self, name: str, array: Array) -> None:
        """Add an array of the caller to the table under `name`."""
        kind = {"f": "real", "i": "int64_t"}[array.dtype.kind]
        if kind == "real" and array.itemsize != self.itemsize:
            kind = {4: "float", 8: "double"}[array.itemsize]
        self._pointers[name] = kind, f"({kind} *)table[{len(self.arrays)}]"
        self.arrays.append(array)

    def add_generator(self, rng: Philox) -> str:
        """Return the C name of a generator's state; the table gets the state only once."""
        state = rng.state.view(np.int64)
        places = [address_of(array) for array in self.arrays]
        if address_of(state) not in places:
            self.add_array(f"rng_{len(self.arrays)}", state)
            return f"rng_{len(places)}"
        return f"rng_{places.index(address_of(state))}"

    def plan(self, functions: Sequence[CFunction], *, in_turn: bool, chunked: bool) -> None:
        """Place all reservations; reservations that are never in use at the same time share memory.

        `in_turn`: a single thread runs the functions of ``rows`` and ``reduce`` in order, so that
        these functions share memory, too.  `chunked`: the two phases alternate.
        """
        length = len(functions) + 1
        phase_of = {phase: i * length for i, phase in enumerate(PHASES)}
        if chunked or in_turn:
            phase_of["reduce"] = phase_of["rows"]
        lives: dict[str, list[int]] = {name: [] for name in self._reserved}
        for name, reserved in self._reserved.items():
            lives[name] += [phase_of[phase] for phase in reserved.phases]
        for i, function in enumerate(functions):
            turn = i if in_turn and function.phase in ("rows", "reduce") else 0
            for name in function.all_buffers & lives.keys():
                lives[name].append(phase_of[function.phase] + turn)
        storages = {
            name: Storage(self._reserved[name].nbytes, min(times), max(times))
            for name, times in lives.items()
            if times
        }
        self.nbytes = place(storages.values())
        for name, storage in storages.items():
            kind = self._reserved[name].kind
            self._pointers[name] = kind, f"({kind} *)(workspace + {storage.offset})"

    def knows(self, name: str) -> bool:
        """Return whether there is a buffer with this name."""
        return name in self._pointers

    def pointer(self, name: str) -> str:
        """Return the C expression of the address of `name`."""
        return self._pointers[name][1]

    def kind(self, name: str) -> str:
        """Return the C type of the numbers of a buffer."""
        return self._pointers[name][0]

    def table_of(self, name: str) -> list[str]:
        """Return the name of a buffer and, for a dropout mask, of its limit."""
        limit = self._limits.get(name)
        return [each for each in (name, limit) if each is not None and self.knows(each)]

    def declare(self, names: Iterable[str], table: Sequence[str] = ()) -> Iterator[str]:
        """Yield C declarations of the buffers `names`.

        For a shared function, `table` has the names in the order of the addresses (see `Shared`).
        """
        places = {name: f"({self.kind(name)} *)table[{i}]" for i, name in enumerate(table)}
        known, pointer = (places, places.get) if table else (self._pointers, self.pointer)
        for name in dict.fromkeys(names):
            if name in known:
                yield f"{self.kind(name)} *restrict {name} = {pointer(name)};"
                if limit := self._limits.get(name):
                    yield f"const bits {limit} = (bits)*{pointer(limit)};"
                    yield f"const real scale_{name} = (real)256 / (real)(256 - {limit});"
                    yield f"(void){limit}, (void)scale_{name};"

    def stride(self, value: MatrixValue) -> int:
        """Return the distance between two rows of a value in memory, in entries."""
        if value.mask:
            return padded_columns(value.columns)
        if value.short or not value.padded:
            return value.columns
        return padded_length(value.columns, self.lanes)

    def at(self, value: MatrixValue, row: str, column: str) -> str:
        """Return the C address of an entry of a matrix."""
        return f"{value.name} + {row} * {self.stride(value)} + {column}"

    def ends_within(self, value: MatrixValue) -> bool:
        """Return whether a row in memory may end within a vector."""
        return value.mask is None and self.stride(value) % self.lanes != 0

    def load(self, value: MatrixValue, row: str, column: str, lanes: str = "") -> str:
        """Return C that loads a vector, or `lanes` entries if a row may end within a vector."""
        at = self.at(value, row, column)
        if value.mask:
            return f"load_mask({at}, {self._limits[value.name]}, scale_{value.name})"
        return load_vector(at, lanes if self.ends_within(value) else "")


def _limit(op: Dropout) -> Array:
    """Return the limit of a mask as int64 (1,): random bytes below the limit drop an entry."""
    return np.array([op.limit], np.int64)
