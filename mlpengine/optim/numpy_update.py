"""The NumPy calls of an optimizer's step, made from its formulas (`Update`)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil

import numpy as np

from mlpengine.backends.update_rules import ParameterRange, Update
from mlpengine.core.spec import Array, Call, Calls, call
from mlpengine.formula import plan, variable, variables
from mlpengine.optim._denormals import flush_signed, flush_square

BLOCK_BYTES = 192 * 1024
"""Maximum bytes of a block.  Vectors are updated block by block, to stay in the cache.

A call reads or writes two or three blocks; they fit into a second-level cache of a megabyte.  With
much smaller blocks, the fixed cost of a call would exceed the cost of the arithmetic.
"""


class NumpyUpdate:
    """The calls of a step, and the constants (0-d arrays) that the calls read.

    Attributes:
        blocks: slices of the parameters that are updated one after another, each with its factor of
            the learning rate.
        cells: for each learning-rate factor, the constants by name; `Optimizer.advance` sets them.
        keeps: for each pair of factors (learning rate, weight decay), the constant that multiplies
            the weights before the update.
        flushes: the calls of `_denormals`, for moments and, with weight decay, for parameters.
    """

    def __init__(self, update: Update) -> None:
        self._update, self._dtype = update, update.params.dtype
        read = [n for n in variables(*update.outputs.values()) if n not in update.outputs]
        self._given = read
        self._plan = plan(
            [*update.outputs.values()],
            [variable(name) for name in read],
            overwritten=[variable(name) for name in update.outputs],
        )
        constants = [n for n in read if n not in ("g", *update.moments)]
        self._constants = {
            run.lr: {name: self._constant(update.hyper.get(name, 0.0)) for name in constants}
            for run in update.ranges
        }
        self.cells = [
            (factor, [(name, of_factor[name]) for name in update.numbers if name in of_factor])
            for factor, of_factor in self._constants.items()
        ]
        self.keeps = {
            (run.lr, run.weight_decay): self._constant(1.0)
            for run in update.ranges
            if run.weight_decay
        }
        self.blocks = [*_blocks(update.params, update.ranges)]
        length = max((block.stop - block.start for block, _ in self.blocks), default=0)
        self._work = [np.empty(length, self._dtype) for _ in range(max(1, self._plan.floats))]
        self._masks = [np.empty(length, np.bool_) for _ in range(max(1, self._plan.masks))]
        self.flushes = [*self._flush_calls()]

    def calls(self, grads: Array) -> list[Call]:
        """Return the calls of a step with the gradients `grads` (parameters,)."""
        calls: list[Call] = []
        for block, lr in self.blocks:
            calls += self._decay(block)
            calls += self._step(block, grads[block], self._constants[lr])
        return calls

    def _constant(self, value: float) -> Array:
        """Return a 0-d array; calls with a Python float would take twice as long."""
        return np.array(value, self._dtype)

    def _decay(self, block: slice) -> Calls:
        for run in self._update.ranges:
            part = self._update.params[max(run.start, block.start) : min(run.stop, block.stop)]
            if part.size and run.weight_decay:
                yield call(np.multiply, part, self.keeps[run.lr, run.weight_decay], part)

    def _step(self, block: slice, grads: Array, constants: Mapping[str, Array]) -> Calls:
        size, update = block.stop - block.start, self._update
        vectors = {name: moment[block] for name, moment in update.moments.items()}
        vectors |= {"p": update.params[block], "g": grads}
        yield from self._plan.calls(
            [{**vectors, **constants}[name] for name in self._given],
            [vectors[name] for name in update.outputs],
            [work[:size] for work in self._work],
            [mask[:size] for mask in self._masks],
        )

    def _flush_calls(self) -> Calls:
        update = self._update
        signed = [moment for n, moment in update.moments.items() if n not in update.floors]
        if self.keeps:
            signed.append(update.params)
        for block, _ in self.blocks:
            size = block.stop - block.start
            for vector in signed:
                yield from flush_signed(vector[block], self._work[0][:size], self._masks[0][:size])
            for name in update.floors:
                yield flush_square(update.moments[name][block])


def _blocks(flat: Array, ranges: Sequence[ParameterRange]) -> Iterator[tuple[slice, float]]:
    """Yield slices of `flat` (whole cache lines), each with its factor of the learning rate."""
    joined: list[tuple[int, int, float]] = []
    for run in ranges:
        start = run.start
        if joined and joined[-1][1:] == (start, run.lr):
            start = joined.pop()[0]
        joined.append((start, run.stop, run.lr))
    line = 64 // flat.itemsize
    for first, last, lr in joined:
        size = last - first
        if not size:
            continue
        length = line * ceil(size / ceil(size * flat.itemsize / BLOCK_BYTES) / line)
        for start, stop in pairwise([*range(first, last, length), last]):
            yield slice(start, stop), lr
