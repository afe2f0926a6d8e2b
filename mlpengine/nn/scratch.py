"""The buffers and calls of a forward pass for one batch size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlpengine.core.errors import ShapeError
from mlpengine.core.named import arrays_by_name, one_or_named
from mlpengine.core.placement import Storage
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.recording import Recordable, Recording
from mlpengine.tape.binding import Arena, Forward
from mlpengine.tape.forward import ForwardPlan
from mlpengine.tape.rematerialization import Rematerialization


class Scratch:
    """Buffers of a forward pass; `Network.scratch` makes them.  Each thread needs its own scratch.

    A copy has separate buffers with the same contents; a deep copy also copies the network.

    Args:
        input: buffer for the input; by default a new buffer.
        arena: memory for the activations; by default new memory.
        like: positions of a larger batch's activations in `arena`, for use by this batch.
        twin: scratch of an equal network with the same options; both share recording and plan.

    If inputs or outputs have names, `input` and `output` are `NamedRows`.

    Attributes:
        input: (batch, in_dim), the buffer that the program reads.  To avoid a copy, write the batch
            into this buffer.
        output: (batch, out_dim), a view, valid until the next forward.
        calls: the bound calls of the forward pass, in order.
    """

    __slots__ = (
        *("__weakref__", "_shorter", "backend", "batch_size", "calls", "input", "like", "mlp"),
        *("output", "program", "recording", "rematerialization", "training", "twin"),
    )

    def __init__(
        self,
        mlp: Recordable,
        batch_size: int,
        *,
        training: bool,
        backend: str,
        rematerialization: Rematerialization,
        input: Array | None = None,
        arena: Arena | None = None,
        like: Sequence[Storage] = (),
        twin: "Scratch | None" = None,
    ) -> None:
        if not isinstance(batch_size, int | np.integer) or batch_size < 0:
            raise ShapeError(
                f"scratch: batch_size must be a whole number from 0 (got {quoted(batch_size)})"
            )
        self.mlp, self.batch_size, self.training = mlp, batch_size, training
        self.backend, self.rematerialization, self.like = backend, rematerialization, like
        self.twin = twin
        if twin is None:
            self.recording: Recording = mlp.recorded(batch_size, training=training)
            keeps = training and rematerialization == "keep"
            plan = ForwardPlan(
                self.recording.tape,
                [*self.recording.outputs.values()],
                differentiable=training,
                rematerialization=rematerialization,
                keep=[layer.output for layer in self.recording.layers] if keeps else (),
                like=like,
            )
        else:
            self.recording, plan = twin.recording, twin.program.plan
        tape = self.recording.tape
        leaves = {n.index: n.array for n in tape.nodes if n.array is not None}  # constants
        leaves |= {n.index: mlp.params.views[n.name] for n in tape.parameters}
        if input is not None:
            given = arrays_by_name(input)
            leaves |= {node.index: given[n] for n, node in self.recording.inputs.items()}
        self.program: Forward = Forward(plan, leaves, backend, arena)
        value, recording = self.program.value, self.recording
        self.input: Array = one_or_named({n: value(node) for n, node in recording.inputs.items()})
        self.output: Array = one_or_named({n: value(node) for n, node in recording.outputs.items()})
        self.calls = self.program.calls
        self._shorter: dict[int, Scratch] = {}

    @property
    def activations(self) -> list[Array]:
        """Outputs of the layers, after activation and dropout; the last one is `output`.

        Raises: TapeError if they are not kept: in evaluation, or with balanced rematerialization.
        """
        return [self.program.value(layer.output) for layer in self.recording.layers]

    @property
    def planned_bytes(self) -> int:
        """Bytes of activations and work arrays, without the input."""
        return self.program.plan.nbytes

    def for_rows(self, rows: int) -> "Scratch":
        """Return the scratch for a shorter batch; the first call makes it.

        The arrays are the first rows of this scratch's arrays.  With balanced rematerialization,
        the arrays may have other positions in the same memory.

        Raises: ShapeError if `rows` exceeds the batch size.
        """
        if rows == self.batch_size:
            return self
        if not 0 <= rows < self.batch_size:
            raise ShapeError(f"scratch: takes up to {plural(self.batch_size, 'row')} (got {rows})")
        if rows not in self._shorter:
            self._shorter[rows] = Scratch(
                self.mlp,
                rows,
                training=self.training,
                backend=self.backend,
                rematerialization=self.rematerialization,
                input=self.input[:rows],
                arena=self.program.arena,
                like=self.program.plan.storages,
                twin=self.twin and self.twin.for_rows(rows),
            )
        return self._shorter[rows]

    def __getstate__(self) -> dict[str, Any]:
        names = ("mlp", "batch_size", "training", "backend", "rematerialization", "like")
        return {
            "options": {name: getattr(self, name) for name in names},
            "input": self.input,
            "values": self.program.arena.bytes[: self.planned_bytes],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        Scratch.__init__(self, **state["options"])
        self.input[...] = state["input"]
        self.program.arena.bytes[...] = state["values"]

    def __repr__(self) -> str:
        kind = "training" if self.training else "evaluation"
        return f"Scratch({kind}, batch_size={self.batch_size}, {self.planned_bytes:,} bytes)"
