"""A tape bound to memory; `forward` and `backward` run a fixed list of calls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.core.buffers import Uncopyable, unmasked, write_into, zeros
from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.core.wording import plural, quoted
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Backward, Forward, Instruction
from mlpengine.tape.flat import Flat
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.rematerialization import Rematerialization
from mlpengine.tape.tape import Node, Tape


class Program(Uncopyable):
    """A tape bound to memory: values, gradients, and the calls that compute them.

    `forward` and `backward` allocate nothing that grows with the data.

    Args:
        tape: the recording; several programs of one tape share its parameters.
        outputs: nodes to compute; by default the last recorded node.
        batch_size: replaces the leading axis of every input.
        backend: numpy or numexpr.
        rematerialization: "keep", or "balanced" to save memory by computing cheap values twice.
        differentiable: whether `backward` is available; False saves memory.
        keep: further nodes; `value` returns their values after `forward`.
        retain: inner nodes; `grad` returns their gradients after `backward`.
        inputs: arrays of the caller to read inputs from, by name; all other inputs are allocated.
        gradients: arrays of the caller for gradients, by name of the leaf; all other gradients are
            allocated.
        check_finite: raise NumericalError if a value or a gradient is not finite.

    Attributes:
        inputs: buffers of the inputs by name; write a batch into them, or pass it to `forward`.
        params: the parameters as one flat vector.
        outputs: the output nodes.

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
        backend: str = "numpy",
        rematerialization: Rematerialization = "keep",
        differentiable: bool = True,
        keep: Iterable[Node] = (),
        retain: Iterable[Node] = (),
        inputs: Mapping[str, Array] | None = None,
        gradients: Mapping[str, Array] | None = None,
        check_finite: bool = False,
    ) -> None:
        if not isinstance(tape, Tape):
            raise TapeError(f"program: tape must be a Tape (got {quoted(tape)})")
        if not tape.nodes:
            raise TapeError("program: the tape is empty")
        self.params = tape.params
        self.tape = tape if batch_size is None else tape.rebatched(batch_size)
        self.outputs = self._own(tape, outputs or tape.nodes[-1:])
        if len(set(self.outputs)) < len(self.outputs):
            raise TapeError(f"program: outputs must differ (got {outputs})")
        self._retain = self._own(tape, retain)
        leaves = {n.name: n for n in self.tape.nodes if n.is_leaf}
        wanting = {name: n for name, n in leaves.items() if n.wants_grad}
        self._given_gradients = _owned(gradients or {}, wanting, "gradients")
        taking = {name: n for name, n in leaves.items() if n.kind == "input"}
        own = _owned(inputs or {}, taking, "inputs")
        given = {taking[name].index: array for name, array in own.items()}
        self.forward_plan = ForwardPlan(
            self.tape,
            self.outputs,
            differentiable=differentiable,
            rematerialization=rematerialization,
            keep=self._own(tape, keep),
        )
        self._forward = Forward(
            self.forward_plan, self._leaves() | given, backend, check_finite=check_finite
        )
        self._values = tuple(self._forward.value(n) for n in self.outputs)
        self._ran = False
        self._inputs = {name: self._forward.value(n) for name, n in taking.items()}
        read = {
            x.index
            for record in self.forward_plan.records
            for x in record.operands
            if x is not None
        }
        self._missing = {name for name, n in taking.items() if n.index in read - given.keys()}

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {Spec.of(x)}" for name, x in self._inputs.items())
        outputs = ", ".join(f"{node.name} {node.spec}" for node in self.outputs)
        return f"Program({inputs} -> {outputs}; {plural(len(self.forward_plan.records), 'op')})"

    def _own(self, tape: Tape, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Return the nodes of `self.tape` (for this batch size) in place of nodes of `tape`."""
        nodes = tuple(nodes)
        if any(getattr(n, "tape", None) is not tape for n in nodes):
            raise TapeError(f"program: nodes must be on the program's tape (got {nodes})")
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
        if not self.forward_plan.differentiable:
            raise TapeError("backward: the program was made with differentiable=False")
        wanted = [n for n in self.tape.nodes if n.is_leaf and n.wants_grad]
        plan = BackwardPlan(self.forward_plan, wanted, self._retain)
        given = self._given_gradients
        gradients = {n.index: given[n.name] for n in wanted if n.name in given}
        for n in wanted:
            if n.index not in gradients:
                made = n.kind == "input"
                gradients[n.index] = zeros(n.spec) if made else self.grads.views[n.name]
        self._seeds = {index: zeros(buffer.spec) for index, buffer in plan.seeds.items()}
        return Backward(plan, self._forward, gradients, self._seeds)

    @cached_property
    def grads(self) -> Flat:
        """The gradients of the parameters, in the layout of `params`.

        Raises: TapeError if the caller gave arrays for gradients of parameters.
        """
        elsewhere = [name for name in self.params.specs if name in self._given_gradients]
        if elsewhere:
            raise TapeError(f"grads: the caller owns the gradients of {', '.join(elsewhere)}")
        return Flat(self.params.specs)

    @property
    def instructions(self) -> list[Instruction]:
        """The bound instructions of forward and backward, in order."""
        backward = self._backward.instructions if self.forward_plan.differentiable else []
        return [*self._forward.instructions, *backward]

    @property
    def planned_bytes(self) -> dict[str, int]:
        """Bytes of memory for values and for gradients, without parameters and inputs."""
        gradients = self._backward.plan.nbytes if self.forward_plan.differentiable else 0
        return {"values": self.forward_plan.nbytes, "gradients": gradients}

    @property
    def inputs(self) -> dict[str, Array]:
        """Buffers of the inputs by name; write a batch into them."""
        self._missing.clear()
        return self._inputs

    def forward(self, **inputs: ArrayLike) -> Any:
        """Compute and return the output, a view that the next call overwrites.

        Each keyword argument is copied into the input with this name.  You can also write into the
        buffers in `inputs`.  Several outputs are returned as a tuple.
        Raises: ShapeError, DtypeError or TapeError for data that does not fit an input; TapeError
            if an input was never given.
        """
        for name, value in inputs.items():
            if name not in self._inputs:
                raise TapeError(f"forward: no input {name!r} (inputs: {', '.join(self._inputs)})")
            where = f"forward: input {name!r}"
            write_into(self._inputs[name], unmasked(value, where), where)
        if self._missing:
            self._missing -= inputs.keys()
            if self._missing:
                names = ", ".join(sorted(self._missing))
                raise TapeError(f"forward: every input must be given (there is no {names})")
        self._forward.run()
        self._ran = True
        return self._values if len(self._values) > 1 else self._values[0]

    def backward(self, seed: ArrayLike | Sequence[ArrayLike | None] | None = None) -> None:
        """Compute all gradients, and overwrite the previous gradients.

        `seed` is the gradient of the output; None means ones.  For several outputs, `seed` is a
        sequence with the gradient, or None, for each output.
        Raises: TapeError before the first forward; ShapeError or DtypeError for a seed that does
            not fit its output.
        """
        backward = self._backward
        if not self._ran:
            raise TapeError("backward: needs a forward first")
        parts: Sequence[Any] = [None] * len(self.outputs) if seed is None else [seed]
        if seed is not None and len(self.outputs) > 1:
            parts = list(seed)  # type: ignore[arg-type]
            if len(parts) != len(self.outputs):
                raise ShapeError(
                    f"backward: needs a seed for each of {len(self.outputs)} outputs "
                    f"(got {len(parts)})"
                )
        for node, part in zip(self.outputs, parts, strict=True):
            buffer = self._seeds.get(node.index)  # None if backward does not need this seed
            if buffer is not None and part is None:
                buffer.fill(1)
            elif buffer is not None:
                write_into(buffer, np.asarray(part), f"backward: seed of {node.name}")
        backward.run()

    def value(self, node: Node) -> Array:
        """Return the value of a leaf, an output, or a node in ``keep``."""
        self._missing.discard(node.name)  # the caller may write into this input
        return self._forward.value(self.tape.nodes[node.index])

    def grad(self, node: Node) -> Array:
        """Return the gradient of a leaf, or of a node in ``retain``."""
        return self._backward.gradient(self.tape.nodes[node.index])


def _owned(arrays: Mapping[str, Array], leaves: Mapping[str, Node], what: str) -> dict[str, Array]:
    """Return the caller's arrays; raise an error for an array that does not fit its leaf."""
    for name, array in arrays.items():
        if name not in leaves:
            raise TapeError(f"{what}: no leaf {name!r} (leaves: {', '.join(leaves)})")
        spec = leaves[name].spec
        if not isinstance(array, np.ndarray):
            raise TapeError(f"{what}: {name} must be an array (got {quoted(array)})")
        if array.shape != spec.shape:
            raise ShapeError(f"{what}: {name} must be {spec} (got {Spec.of(array)})")
        if array.dtype != spec.dtype:
            raise DtypeError(
                f"{what}: {name} must be {spec} (got {Spec.of(array)}); "
                f"write np.zeros(..., np.{spec.dtype})"
            )
        if not array.flags.carray:
            raise TapeError(
                f"{what}: {name} must be contiguous, aligned and writeable "
                f"(strides {array.strides}, writeable {array.flags.writeable})"
            )
    return dict(arrays)
