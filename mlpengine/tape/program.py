"""A tape bound to memory.  Binding decides everything; `forward` and `backward` only replay."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlpengine.backends import find_backend
from mlpengine.errors import DtypeError, ShapeError, TapeError
from mlpengine.spec import Array, Call
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Arena, Instruction, bind, replay
from mlpengine.tape.flat import Flat
from mlpengine.tape.forward import Checkpointing, ForwardPlan
from mlpengine.tape.plan import Buffer
from mlpengine.tape.tape import Node, Tape


class Forward:
    """A forward plan on memory: the values, and the calls that compute them.

    `leaves` gives the caller's arrays by node index; inputs without one get memory here.  `arena`
    is memory to lay the values out in; without one, or where it is too small, new memory is made.
    """

    def __init__(
        self,
        plan: ForwardPlan,
        leaves: Mapping[int, Array],
        backend: str,
        arena: Arena | None = None,
    ) -> None:
        self.plan = plan
        self.backend = find_backend(backend)
        self.arena = arena if arena and arena.nbytes >= plan.nbytes else Arena(plan.nbytes)
        self._arrays: dict[Buffer, Array] = {}
        for node in plan.tape.nodes:
            if node.is_leaf:
                array = leaves.get(node.index)
                found = np.zeros(node.spec.shape, node.spec.dtype) if array is None else array
                self._arrays[plan.buffer(node)] = found
        self.instructions = bind(plan.steps, self.resolve, self.backend)
        self.calls: tuple[Call, ...] = tuple(c for i in self.instructions for c in i.calls)

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer."""
        if buffer not in self._arrays:
            self._arrays[buffer] = self.arena.array(buffer)
        return self._arrays[buffer]

    def value(self, node: Node) -> Array:
        """Return the array in which the value of `node` stands after a replay.

        Raises: TapeError if its memory is used again during the replay.
        """
        if not self.plan.survives(node):
            raise TapeError(f"value: {node!r} is not kept; ask for it with keep=[...]")
        return self.resolve(self.plan.buffer(node))


class Backward:
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
        self.calls: tuple[Call, ...] = tuple(c for i in self.instructions for c in i.calls)

    def resolve(self, buffer: Buffer) -> Array:
        """Return the array of a buffer: a gradient of this plan, or a value of the forward plan."""
        if buffer not in self._arrays:
            mine = buffer.storage is not None and id(buffer.storage) in self._planned
            self._arrays[buffer] = (
                self.arena.array(buffer) if mine else self.forward.resolve(buffer)
            )
        return self._arrays[buffer]

    def gradient(self, node: Node) -> Array:
        """Return the array in which the gradient of `node` stands after a replay."""
        kept = self.plan.gradients.get(node.index)
        if kept is None or not (node.is_leaf or self.plan.retains(node)):
            raise TapeError(f"gradient: {node!r} has none; ask for it with retain=[...]")
        return self.resolve(kept)


class Program:
    """A tape bound to memory: values, gradients, and the calls that compute them.

    ``outputs`` are the nodes to compute (default: the last one recorded); ``batch_size`` replaces
    the leading axis of every input; ``keep`` and ``retain`` name further nodes whose values or
    gradients must survive a replay.  After binding, `forward` and `backward` allocate nothing
    that grows with the data.

    Example:
        >>> tape = Tape()
        >>> x = tape.input((2, 3), name="x")
        >>> w = tape.parameter(np.full((3, 1), 2.0, np.float32), name="w")
        >>> program = Program(tape, (x @ w).sum())
        >>> float(program.forward(x=np.ones((2, 3), np.float32)))
        12.0
        >>> program.backward()
        >>> program.grads.views["w"].ravel().tolist()
        [2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        tape: Tape,
        *outputs: Node,
        batch_size: int | None = None,
        backend: str = "auto",
        checkpointing: Checkpointing = "keep",
        keep: Iterable[Node] = (),
        retain: Iterable[Node] = (),
    ) -> None:
        if not tape.nodes:
            raise TapeError("program: the tape is empty")
        chosen = outputs or (tape.nodes[-1],)
        if any(n.tape is not tape for n in (*chosen, *keep, *retain)):
            raise TapeError("program: outputs and kept nodes must be on the program's tape")
        self.params = tape.params
        self.tape = tape if batch_size is None else tape.rebatched(batch_size)
        self.outputs = self._own(chosen)
        self.forward_plan = ForwardPlan(
            self.tape, self.outputs, checkpointing=checkpointing, keep=self._own(keep)
        )
        self._forward = Forward(self.forward_plan, self._leaves(), backend)
        self._retain = self._own(retain)
        self._values = tuple(self._forward.value(n) for n in self.outputs)
        self.inputs = {n.name: self._forward.value(n) for n in self.tape.inputs}

    def _own(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        return tuple(self.tape.nodes[n.index] for n in nodes)

    def _leaves(self) -> dict[int, Array]:
        leaves = {}
        for node in self.tape.nodes:
            if node.kind == "parameter":
                leaves[node.index] = self.params.views[node.name]
            elif node.array is not None:
                leaves[node.index] = node.array
        return leaves

    @cached_property
    def _backward(self) -> Backward:
        wanted = [n for n in self.tape.nodes if n.is_leaf and n.wants_grad]
        plan = BackwardPlan(self.forward_plan, wanted, self._retain)
        gradients = {n.index: self.grads.views[n.name] for n in self.tape.parameters}
        for node in self.tape.inputs:
            if node.wants_grad:
                gradients[node.index] = np.zeros(node.spec.shape, node.spec.dtype)
        seeds = {i: np.ones(b.spec.shape, b.spec.dtype) for i, b in plan.seeds.items()}
        self._seeds = seeds
        return Backward(plan, self._forward, gradients, seeds)

    @cached_property
    def grads(self) -> Flat:
        """The gradients of the parameters, laid out like `params`."""
        return Flat(self.params.specs)

    @property
    def instructions(self) -> list[Instruction]:
        """The bound instructions of forward and backward, in the order of replay."""
        return [*self._forward.instructions, *self._backward.instructions]

    @property
    def planned_bytes(self) -> dict[str, int]:
        """Bytes planned for values and for gradients (parameters and inputs not counted)."""
        return {"values": self.forward_plan.nbytes, "gradients": self._backward.plan.nbytes}

    def forward(self, **inputs: ArrayLike) -> Any:
        """Replay forward and return the output, a view valid until the next replay.

        Keywords copy new data into the inputs of that name; the buffers in `inputs` may as well
        be written in place.  Several outputs come as a tuple.
        Raises: ShapeError, DtypeError or TapeError for data that does not fit an input.
        """
        for name, value in inputs.items():
            self._write_input(name, value)
        replay(self._forward.calls)
        return self._values if len(self._values) > 1 else self._values[0]

    def backward(self, seed: ArrayLike | Sequence[ArrayLike] | None = None) -> None:
        """Replay backward from the gradients of the outputs: ones, or what `seed` gives.

        Several outputs take a sequence of seeds.  Every gradient is overwritten.
        """
        calls = self._backward.calls
        parts: Sequence[Any] = [None] * len(self.outputs)
        if seed is not None:
            parts = [seed] if len(self.outputs) == 1 else list(seed)  # type: ignore[arg-type]
        for node, part in zip(self.outputs, parts, strict=True):
            if node.index in self._seeds:
                self._seeds[node.index][...] = 1 if part is None else part
        replay(calls)

    def value(self, node: Node) -> Array:
        """Return the value of a leaf, an output, or a node named in ``keep``."""
        return self._forward.value(self.tape.nodes[node.index])

    def grad(self, node: Node) -> Array:
        """Return the gradient of a leaf, or of a node named in ``retain``."""
        return self._backward.gradient(self.tape.nodes[node.index])

    def _write_input(self, name: str, value: ArrayLike) -> None:
        if name not in self.inputs:
            raise TapeError(f"forward: no input {name!r} (inputs: {', '.join(self.inputs)})")
        buffer = self.inputs[name]
        write_into(buffer, np.asarray(value), f"forward: input {name!r}")


def write_into(buffer: Array, value: Array, where: str) -> None:
    """Copy `value` into `buffer` without broadcasting and without losing a dtype's kind.

    Raises: ShapeError or DtypeError naming `where` and both specs.
    """
    if value is buffer:
        return
    if value.shape != buffer.shape:
        raise ShapeError(f"{where}: shape must be {buffer.shape} (got {value.shape})")
    if not np.can_cast(value.dtype, buffer.dtype, "same_kind"):
        raise DtypeError(f"{where}: dtype must be {buffer.dtype} (got {value.dtype})")
    np.copyto(buffer, value, casting="same_kind")
