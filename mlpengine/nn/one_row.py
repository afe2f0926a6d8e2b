"""The outputs of all networks of a population for one row, computed together."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of, quiet_runner, replay
from mlpengine.core.spec import Array, Calls, call
from mlpengine.nn.network import Network
from mlpengine.nn.population import Population
from mlpengine.ops import Cat, Elementwise, Linear, Slice
from mlpengine.tape.binding import Forward, Instruction


class OneRow:
    """The forward pass over one row for networks of one architecture.

    Write the features to `input` (1, in_dim), and call the object to compute `outputs` (networks,
    1, out_dim).  If the networks are a `Population` of dense layers, `together` is True: each NumPy
    call computes one op of all networks.  For small networks, most of the time is call overhead.
    """

    def __init__(self, networks: Sequence[Network]) -> None:
        first = networks[0].scratch(1, training=False)
        self.input: Array = first.input
        self._run: Callable[[], None]
        try:
            if not isinstance(networks, Population):
                raise UnsupportedError("one row: networks without a block of parameters")
            together = _StackedForward(networks, first.input, first.program)
            self.outputs: Array = together.written(first.output)
            quietly, calls = quiet_runner(), together.calls
            self._run = lambda: quietly(replay, calls)
            self.together = True
        except UnsupportedError:
            self._run = self._one_after_another(networks)
            self.together = False

    def __call__(self) -> None:
        self._run()

    def _one_after_another(self, networks: Sequence[Network]) -> Callable[[], None]:
        scratches = [network.scratch(1, training=False) for network in networks]
        self.outputs = np.stack([scratch.output for scratch in scratches])

        def run_all() -> None:
            for one, output in zip(scratches, self.outputs, strict=True):
                one.input[...] = self.input
                one.program.run()
                output[...] = one.output

        return run_all


class _StackedForward:
    """The forward pass of all networks: arrays get a first axis for the networks."""

    def __init__(self, networks: Population[Any], x: Array, program: Forward) -> None:
        self._params, self._block = networks[0].params.flat, networks.params
        self._values = program.arena.bytes
        self._buffers: dict[object, Array] = {}
        self._shared = {(address_of(x), x.shape)}  # values that are equal for all networks
        self.calls = [c for one in program.instructions for c in self._of(one)]

    def _of(self, one: Instruction) -> Calls:
        if isinstance(one.op, Slice | Cat) and all(map(self._is_shared, one.reads)):
            self._shared |= {(address_of(y), y.shape) for y in one.writes if y is not None}
            yield from one.calls
            return
        if not isinstance(one.op, Linear | Elementwise):
            raise UnsupportedError(f"one row: {one}")
        given: list[Any] = [self._read(x) for x in one.reads]
        (target,) = one.writes
        out = self.written(target)
        if isinstance(one.op, Linear):
            x, w, b = given
            yield call(np.matmul, x, w.transpose(0, 2, 1), out)
            if b is not None:
                yield call(np.add, out, b, out)
        else:
            work = {name: self.written(x) for name, x in one.work.items()}
            yield from one.op.forward(*given, out=out, **work)

    def _is_shared(self, x: Any) -> bool:
        return x is not None and (address_of(x), x.shape) in self._shared

    def written(self, x: Any) -> Array:
        """Return the buffer (networks, ...) for the array `x` of the first network."""
        key = address_of(x), x.shape
        if key not in self._buffers:
            self._buffers[key] = np.empty((len(self._block), *x.shape), x.dtype)
        return self._buffers[key]

    def _read(self, x: Any) -> Array | None:
        """Return `x` of all networks as an array (networks, ...), or (1, ...) if all are equal."""
        if x is None:
            return None
        if (address_of(x), x.shape) in self._buffers:
            return self.written(x)
        if np.shares_memory(x, self._params):
            start = (address_of(x) - address_of(self._params)) // x.itemsize
            own = self._block[:, start : start + x.size]
            return own.reshape(len(own), *(x.shape if x.ndim > 1 else (1, *x.shape)))
        if np.shares_memory(x, self._values) and not self._is_shared(x):
            raise UnsupportedError("one row: a value in another shape")
        shared: Array = x[None]
        return shared
