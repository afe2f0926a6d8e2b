"""A contiguous vector that holds several arrays, each with a named view."""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from sys import maxsize
from typing import Any

import numpy as np

from mlpengine.core.buffers import aligned, zeros
from mlpengine.core.errors import DtypeError, UsageError
from mlpengine.core.spec import Array, Spec
from mlpengine.core.wording import plural


class Flat:
    """Parameters, gradients or moments: one vector, and a named view of each array in it.

    Shapes: `flat` (total,); `views` have the shapes of `specs` and lie in `flat` without gaps, in
        the order of `specs`.
    Dtype: the common dtype of the specs.
    `frozen` are the names of parameters that have no gradient and that no optimizer changes.
    Raises: DtypeError if dtypes differ; UsageError if the vector exceeds the address space.
    """

    def __init__(self, specs: Mapping[str, Spec]) -> None:
        dtypes = {spec.dtype for spec in specs.values()}
        if len(dtypes) > 1:
            listed = ", ".join(f"{name} {spec}" for name, spec in specs.items())
            raise DtypeError(f"flat vector: parameters need one dtype ({listed})")
        self.specs = dict(specs)
        self.frozen: frozenset[str] = frozenset()
        dtype = next(iter(dtypes), np.dtype("float32"))
        count = sum(s.size for s in specs.values())
        if count * dtype.itemsize > maxsize:
            numbers = plural(count, "number")
            raise UsageError(f"parameters: must fit into memory ({numbers} of {dtype})")
        self._view(zeros(Spec((count,), dtype)))

    def move_to(self, block: Array, row: int) -> None:
        """Move the vector into a row of `block` (rows, total or more), before calls are bound.

        A deep or pickled copy copies the whole block.  Vectors copied together share one new block.
        """
        values = self.flat
        self._view(block, row)
        self.flat[...] = values

    def _view(self, memory: Array, row: int | None = None) -> None:
        """Use `memory`, or the first entries of a row of `memory`, as vector and views."""
        self._memory, self._row = memory, row
        total = sum(spec.size for spec in self.specs.values())
        self.flat = flat = memory if row is None else memory[row, :total]
        self.views: dict[str, Array] = {}
        for name, place in self.places.items():
            self.views[name] = flat[place].reshape(self.specs[name].shape)

    @property
    def places(self) -> dict[str, slice]:
        """The slice of the vector that holds each array, by name."""
        ends = accumulate((spec.size for spec in self.specs.values()), initial=0)
        return {
            name: slice(start, stop)
            for name, (start, stop) in zip(self.specs, pairwise(ends), strict=True)
        }

    @classmethod
    def pack(cls, arrays: Mapping[str, Array]) -> "Flat":
        """Return a flat vector with copies of `arrays`."""
        packed = cls({name: Spec.of(array) for name, array in arrays.items()})
        for name, array in arrays.items():
            packed.views[name][...] = array
        return packed

    def __getstate__(self) -> dict[str, Any]:
        names = {"specs": self.specs, "frozen": self.frozen}
        return {**names, "memory": self._memory, "row": self._row}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.specs, self.frozen = state["specs"], state["frozen"]
        self._view(state["memory"], state["row"])
        if not self.flat.flags.writeable:  # joblib memory-maps files as read-only
            self._view(aligned(self.flat))

    def __len__(self) -> int:
        return self.flat.size

    def __repr__(self) -> str:
        return f"Flat({self.flat.dtype.name}[{self.flat.size}] in {len(self.views)} views)"
