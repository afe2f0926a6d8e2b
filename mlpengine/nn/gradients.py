"""Gradients of a loss with respect to a network's parameters and activations."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from mlpengine.core.buffers import quiet_runner, zeros
from mlpengine.core.errors import ShapeError, TapeError, UsageError
from mlpengine.core.named import arrays_by_name, one_or_named
from mlpengine.core.placement import Storage
from mlpengine.core.spec import Array, Call, Spec
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.recording import Recordable
from mlpengine.nn.scratch import Scratch
from mlpengine.tape.backward import BackwardPlan
from mlpengine.tape.binding import Arena, Backward
from mlpengine.tape.flat import Flat
from mlpengine.tape.norm import bind_clip
from mlpengine.tape.record import dependents


@dataclass(eq=False)
class GradientMemory:
    """Memory for gradients, shared by all batch sizes.

    Shapes: d_output (batch, out_dim); d_input (batch, in_dim) or None, for the largest batch.
    `arena` is the memory for gradients of activations, or None before the first backward.
    `storages` are the positions of these gradients; shorter batches use the same positions.
    """

    params: Flat
    d_output: Array
    d_input: Array | None
    arena: Arena | None = None
    storages: Sequence[Storage] = ()

    @classmethod
    def of(cls, mlp: Recordable, batch_size: int, *, input_gradient: bool) -> "GradientMemory":
        """Return memory for batches of up to `batch_size` rows."""
        d_input = None
        if input_gradient:
            shapes = {n: s for n, s in mlp.in_shapes.items() if mlp.in_dtypes[n] == mlp.dtype}
            if not shapes:
                raise UsageError("gradients: input_gradient=True needs an input that is not int64")
            rows = {n: zeros(Spec((batch_size, *s), mlp.dtype)) for n, s in shapes.items()}
            d_input = one_or_named(rows)
        return cls(Flat(mlp.params.specs), mlp.empty_outputs(batch_size), d_input)


class Gradients:
    """Gradients of a loss; `Network.gradients` makes the buffers, `Network.backward` fills them.

    A copy has its own buffers with the same contents, except `d_hidden`, which is valid after the
    copy's first backward.  If outputs or inputs have names, `d_output` and `d_input` are
    `NamedRows`.

    Attributes:
        d_output: (batch, out_dim), the gradient with respect to the output; a loss writes it.
        d_input: (batch, in_dim), the gradient with respect to the input, or None.
        flat: (parameters,), the gradients of all parameters.
        views: views of `flat` by parameter name, in the parameters' shapes.
    """

    __slots__ = (
        *("__weakref__", "_bound", "_clip", "_last", "_memory", "_quietly", "_shorter"),
        *("batch_size", "d_input", "d_output", "flat", "mlp", "views"),
    )

    def __init__(
        self,
        mlp: Recordable,
        batch_size: int,
        *,
        input_gradient: bool = False,
        memory: GradientMemory | None = None,
    ) -> None:
        self.mlp, self.batch_size = mlp, batch_size
        if memory is None:
            memory = GradientMemory.of(mlp, batch_size, input_gradient=input_gradient)
        self._memory = memory
        self.flat, self.views = memory.params.flat, memory.params.views
        self.d_output: Array = memory.d_output[:batch_size]
        self.d_input: Array | None = None
        if memory.d_input is not None:
            self.d_input = memory.d_input[:batch_size]
        self._clip = bind_clip(self.flat)
        self._quietly = quiet_runner()
        self._bound: dict[int, tuple[Scratch, Backward]] = {}
        self._last: tuple[Scratch, Backward] | None = None
        self._shorter: dict[int, Gradients] = {}

    def bind(self, scratch: Scratch) -> Backward:
        """Return the backward program for forward passes of `scratch`; the first call makes it."""
        bound = self._bound.get(id(scratch))
        if bound is None:
            bound = scratch, self._bind(scratch)
            self._bound[id(scratch)] = bound  # keeps `scratch` alive, so that its id stays unique
        self._last = bound
        return bound[1]

    def _bind(self, scratch: Scratch) -> Backward:
        if not scratch.training:
            raise TapeError("backward: needs a scratch with training=True (got training=False)")
        if scratch.mlp is not self.mlp:
            raise TapeError(
                f"backward: scratch and gradients must be of one network "
                f"(scratch of {scratch.mlp}, gradients of {self.mlp})"
            )
        if scratch.batch_size != self.batch_size:
            raise ShapeError(
                f"backward: batch sizes must match "
                f"(scratch {scratch.batch_size}, gradients {self.batch_size})"
            )
        recording = scratch.recording
        frozen = self.mlp.params.frozen
        wanted = [n for n in recording.tape.parameters if n.name not in frozen]
        for name in frozen:
            self.views[name].fill(0.0)  # no backward writes these gradients
        gradients = {n.index: self.views[n.name] for n in wanted}
        if self.d_input is not None:
            slots = arrays_by_name(self.d_input)
            for name, slot in slots.items():
                node = recording.inputs[name]
                wanted.append(node)
                gradients[node.index] = slot
        trained = dependents(recording.tape.records, wanted)
        retained = [node for node in recording.traced if node.index in trained]
        memory = self._memory
        plans = scratch.program.plan.backward  # shared by equal networks
        key = (frozen, self.d_input is None, id(memory.storages))
        plan = plans.get(key)
        if plan is None:
            plan = BackwardPlan(scratch.program.plan, wanted, retained, memory.storages)
            plans[key] = plan
        slots = arrays_by_name(self.d_output)
        seeds = {node.index: slots[name] for name, node in recording.outputs.items()}
        backward = Backward(plan, scratch.program, gradients, seeds, memory.arena)
        memory.arena, memory.storages = backward.arena, memory.storages or plan.storages
        return backward

    def calls(self, scratch: Scratch) -> tuple[Call, ...]:
        """Return the calls of the backward pass after a forward pass of `scratch`."""
        return self.bind(scratch).calls

    @property
    def d_weights(self) -> tuple[Array, ...]:
        """Gradients of the weights; for an `Mlp`, one array (out_dim, in_dim) per layer."""
        return tuple(self.views[name] for name in self.mlp.groups["weights"])

    @property
    def d_biases(self) -> tuple[Array, ...]:
        """Gradients of the biases; for an `Mlp`, one array (out_dim,) per layer."""
        return tuple(self.views[name] for name in self.mlp.groups["biases"])

    @property
    def d_hidden(self) -> list[Array]:
        """Gradients with respect to the layers' pre-activations (batch, out_dim).

        If the output has no activation, the last gradient is `d_output` itself.  For frozen layers
        before the first trained layer, the gradients are zeros.
        Raises: TapeError before the first backward.
        """
        if self._last is None:
            raise TapeError("d_hidden: must be read after a backward (none has run)")
        scratch, backward = self._last
        nodes = [layer.pre_activation for layer in scratch.recording.layers]
        plan = backward.plan
        return [
            backward.gradient(n) if plan.retains(n) else np.zeros(n.spec.shape, n.spec.dtype)
            for n in nodes
        ]

    @property
    def planned_bytes(self) -> int:
        """Bytes of work arrays and of activations' gradients; 0 before the first backward."""
        return self._last[1].plan.nbytes if self._last else 0

    def for_rows(self, rows: int) -> "Gradients":
        """Return gradients for a shorter batch, in the same memory and with the same `flat`.

        Raises: ShapeError if `rows` exceeds the batch size.
        """
        if rows == self.batch_size:
            return self
        if not 0 <= rows < self.batch_size:
            raise ShapeError(f"gradients: take up to {plural(self.batch_size, 'row')} (got {rows})")
        if rows not in self._shorter:
            self._shorter[rows] = Gradients(self.mlp, rows, memory=self._memory)
        return self._shorter[rows]

    def clip_global_norm_params(self, max_norm: float) -> float:
        """Scale the gradients to a norm of at most `max_norm`; return the norm before scaling.

        Source: Pascanu et al. 2013, arXiv 1211.5063, algorithm 1.
        Raises: UsageError unless `max_norm` is a number of at least 0.
        """
        if not (isinstance(max_norm, Real) and max_norm >= 0):
            raise UsageError(
                f"clip_global_norm_params: max_norm must be at least 0 (got {quoted(max_norm)})"
            )
        before: float = self._quietly(self._clip, max_norm)[0]
        return before

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("mlp", "flat", "d_output", "d_input")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        d_input = state["d_input"]
        Gradients.__init__(
            self, state["mlp"], len(state["d_output"]), input_gradient=d_input is not None
        )
        self.flat[...] = state["flat"]
        self.d_output[...] = state["d_output"]
        if self.d_input is not None:
            self.d_input[...] = d_input

    def __repr__(self) -> str:
        norms = ", ".join(f"{name} {np.linalg.norm(v):.3g}" for name, v in self.views.items())
        return f"Gradients(batch_size={self.batch_size}, norm={self._clip(None)[0]:.4g}; {norms})"
