"""The structure of a program: programs that differ only in their memory have the same C source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from mlpengine.backends.compiled.kernel import InstructionLike
from mlpengine.backends.compiled.source import CSource
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.update_rules import Update
from mlpengine.core.buffers import address_of
from mlpengine.core.spec import Array
from mlpengine.ops.op import GradOp


class Structure:
    """Everything that the C source of a program depends on (`key`), and the program's arrays.

    `options` are the other arguments of `make_source`.  Two programs with equal keys have the same
    C source, and their `arrays` correspond in order.
    """

    def __init__(
        self,
        instructions: Sequence[InstructionLike],
        target: CompileTarget,
        options: Mapping[str, Any],
    ) -> None:
        self.arrays: list[Array] = []
        self._names, self._blocks = options.get("names", {}), dict[int, tuple[int, int]]()
        given = [(name, self._option(name, value)) for name, value in sorted(options.items())]
        self.key = [target, *given, *map(self._instruction, instructions)]

    def source_like(self, source: CSource, other: "Structure") -> CSource | None:
        """Return `source`, made for `other`, with this program's arrays; None if keys differ."""
        if self.key != other.key:
            return None
        pairs = zip(other.arrays, self.arrays, strict=True)
        own = {_memory_of(theirs): array for theirs, array in pairs}
        if not all(_memory_of(array) in own for array in source.arrays):
            return None
        arrays = [own[_memory_of(array)].reshape(array.shape) for array in source.arrays]
        return source._replace(arrays=arrays)

    def _instruction(self, one: InstructionLike) -> Any:
        reads = [a for read in one.reads for a in (read if isinstance(read, tuple) else (read,))]
        counts = [len(read) if isinstance(read, tuple) else 0 for read in one.reads]
        mean = [getattr(one, name, None) for name in ("mean_rows", "weight")]
        work = [(name, self._place(array)) for name, array in one.work.items()]
        places = [self._place(array) for array in (*reads, *one.writes)]
        return one.kind, _key_of(one.op), counts, mean, work, places

    def _option(self, name: str, value: Any) -> Any:
        if isinstance(value, Update):
            return [*self._update(value)]
        if name == "gathered":
            return [*map(self._place, value)]
        if name == "names":
            return None  # `_place` adds each array's name to the key
        return self._place(value) if isinstance(value, np.ndarray) else value

    def _update(self, update: Update) -> Iterator[Any]:
        for name, value in update._asdict().items():
            if name == "params":
                yield self._place(value)
            elif name == "moments":
                yield [(key, self._place(array)) for key, array in value.items()]
            else:
                yield value

    def _place(self, array: Array | None) -> Any:
        """Return the key of an array: block of memory, offset in the block, name, shape, dtype."""
        if array is None:
            return None
        self.arrays.append(array)
        owner: Any = array
        address = address_of(array)
        while getattr(owner, "base", None) is not None:
            owner = owner.base
        number, first = self._blocks.setdefault(id(owner), (len(self._blocks), address))
        place = number, address - first, self._names.get(address)
        return place, array.shape, array.strides, array.dtype


def _memory_of(array: Array) -> tuple[int, int, Any]:
    return address_of(array), array.nbytes, array.dtype


def _key_of(value: Any) -> Any:
    """Return a key of an op's option; values of unknown types get keys that equal no other."""
    if isinstance(value, int | float | str | slice | None):
        return repr(value)
    if isinstance(value, tuple):
        return [_key_of(one) for one in value]
    if is_dataclass(value):
        return type(value), [_key_of(getattr(value, one.name)) for one in fields(value)]
    plain = isinstance(value, GradOp) and type(value).__init__ is object.__init__
    return type(value) if plain else object()
