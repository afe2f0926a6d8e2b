"""The two halves of a plan bound to memory: arrays, and the calls to replay."""

from collections.abc import Mapping

import numpy as np

from mlpengine.backends import find_backend
from mlpengine.buffers import Uncopyable, quiet_runner, replay
from mlpengine.errors import TapeError
from mlpengine.spec import Array, Call
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Arena, bind
from mlpengine.tape.finite import checked_backward, checked_forward
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.plan import Buffer
from mlpengine.tape.record import Value


class Forward(Uncopyable):
    """A forward plan on memory: the values, and the calls that compute them.

    `leaves` gives the caller's arrays by node index; inputs without one get memory here.  `arena`
    is memory to lay the values out in; without one, or where it is too small, new memory is made.
    With `check_finite` each value is looked at when it is written.
    """

    def __init__(
        self,
        plan: ForwardPlan,
        leaves: Mapping[int, Array],
        backend: str,
        arena: Arena | None = None,
        *,
        check_finite: bool = False,
    ) -> None:
        self.plan = plan
        self.backend = find_backend(backend)
        self.check_finite = check_finite
        self.arena = arena if arena and arena.nbytes >= plan.nbytes else Arena(plan.nbytes)
        self._arrays: dict[Buffer, Array] = {}
        for node in plan.tape.nodes:
            if node.is_leaf:
                array = leaves.get(node.index)
                found = np.zeros(node.spec.shape, node.spec.dtype) if array is None else array
                self._arrays[plan.buffer(node)] = found
        self.instructions = bind(plan.steps, self.resolve, self.backend)
        plain = (c for i in self.instructions for c in i.calls)
        checked = checked_forward(self.instructions)
        self.calls: tuple[Call, ...] = tuple(checked if check_finite else plain)
        self._quietly = quiet_runner()

    def run(self) -> None:
        """Compute the values."""
        self._quietly(replay, self.calls)

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer."""
        if buffer not in self._arrays:
            self._arrays[buffer] = self.arena.array(buffer)
        return self._arrays[buffer]

    def value(self, node: Value) -> Array:
        """Return the array in which the value of `node` stands after a replay.

        Raises: TapeError if its memory is used again during the replay.
        """
        if not self.plan.survives(node):
            raise TapeError(f"value: {node!r} is not kept; ask for it with keep=[...]")
        return self.resolve(self.plan.buffer(node))


class Backward(Uncopyable):
    """A backward plan on memory, for one `Forward`.

    `gradients` gives the caller's arrays of leaf gradients by node index, `seeds` those of the
    outputs.
    """

    def __init__(
        self,
        plan: BackwardPlan,
        forward: Forward,
        gradients: Mapping[int, Array],
        seeds: Mapping[int, Array],
        arena: Arena | None = None,
    ) -> None:
        self.plan = plan
        self.forward = forward
        self.arena = arena if arena and arena.nbytes >= plan.nbytes else Arena(plan.nbytes)
        self._arrays: dict[Buffer, Array] = {plan.seeds[i]: seeds[i] for i in plan.seeds}
        for index, array in gradients.items():
            if index in plan.gradients:
                self._arrays[plan.gradients[index]] = array
        self._planned = {id(s) for s in plan.storages}
        self.instructions = bind(plan.steps, self.resolve, forward.backend)
        plain = (c for i in self.instructions for c in i.calls)
        leaves = [(n.name, self.gradient(n)) for n in plan.wanted]
        checked = checked_backward(self.instructions, leaves)
        self.calls: tuple[Call, ...] = tuple(checked if forward.check_finite else plain)
        self._quietly = quiet_runner()

    def run(self) -> None:
        """Compute the gradients."""
        self._quietly(replay, self.calls)

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer: a gradient of this plan, or a value of the forward plan."""
        if buffer not in self._arrays:
            mine = buffer.storage is not None and id(buffer.storage) in self._planned
            self._arrays[buffer] = (
                self.arena.array(buffer) if mine else self.forward.resolve(buffer)
            )
        return self._arrays[buffer]

    def gradient(self, node: Value) -> Array:
        """Return the array in which the gradient of `node` stands after a replay."""
        kept = self.plan.gradients.get(node.index)
        if kept is None or not (node.is_leaf or self.plan.retains(node)):
            raise TapeError(f"gradient: {node!r} has none; ask for it with retain=[...]")
        return self.resolve(kept)
