"""State that ops keep between forwards: random generators and running statistics."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.tape.record import Record


class OpState:
    """A snapshot of the random generators and arrays that are attributes of ops."""

    def __init__(self, records: Iterable[Record]) -> None:
        parts = [part for record in records for part in _stateful(record.op)]
        self._arrays = [(x, x.copy()) for x in parts if isinstance(x, np.ndarray)]
        rngs = [x for x in parts if isinstance(x, np.random.Generator)]
        self._rngs = [(rng, deepcopy(rng.bit_generator.state)) for rng in rngs]

    def restore(self) -> None:
        """Set generators and arrays to the values in the snapshot."""
        for array, before in self._arrays:
            array[...] = before
        for rng, state in self._rngs:
            rng.bit_generator.state = state


def _stateful(owner: Any, depth: int = 2) -> Iterator[Array | np.random.Generator]:
    for part in getattr(owner, "__dict__", {}).values():
        if isinstance(part, np.ndarray | np.random.Generator):
            yield part
        elif depth > 1:
            yield from _stateful(part, depth - 1)
