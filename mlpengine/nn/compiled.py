"""The forward pass of a network as machine code."""

from copy import copy
from typing import Any

from mlpengine.backends.compiled.executor import compile_program
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of, unmasked, write_into
from mlpengine.core.errors import CompileError, UsageError
from mlpengine.core.named import arrays_by_name
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.nn.scratch import Scratch


class CompiledMlp:
    """The forward pass of a network as one compiled program; `Network.compile` makes it.

    Each call reads the network's current parameters.  Use one object for each thread.

    Attributes:
        input: (batch, in_dim), the buffer that `run` reads; to avoid a copy, write rows into it.
        output: (batch, out_dim), a view, valid until the next call.

    Raises: CompileError if there is no compiler, or if an op cannot be compiled.
    """

    def __init__(self, scratch: Scratch) -> None:
        if scratch.batch_size < 1:
            raise UsageError(f"compile: batch_size must be at least 1 (got {scratch.batch_size})")
        mlp, self._scratch = scratch.mlp, scratch
        names = {address_of(v): f"p_{n}" for n, v in mlp.params.views.items()}
        names[address_of(scratch.input)] = "input"
        try:
            self._executor = compile_program(
                scratch.program.instructions,
                dtype=mlp.dtype,
                batch=scratch.batch_size,
                gathered=[*arrays_by_name(scratch.input).values()],
                names=names,
            )
        except UnsupportedError as reason:
            text = f"every op must have C code (got {reason}); use predict, or try export"
            raise CompileError(f"compile: {text}") from reason
        self.input: Array = scratch.input
        self.output: Array = scratch.output
        self.source = self._executor.source.text
        self.run = self._executor.step

    def __call__(self, x: ArrayLike) -> Array:
        """Return the output for `x` (batch, in_dim), a view valid until the next call."""
        where = "compiled network: x"
        write_into(self.input, unmasked(x, where), where)
        self.run()
        return self.output

    def __repr__(self) -> str:
        return f"CompiledMlp({self._scratch.mlp}, batch_size={self._scratch.batch_size})"

    def __getstate__(self) -> dict[str, Any]:
        return {"scratch": copy(self._scratch), "output": self.output}

    def __setstate__(self, state: dict[str, Any]) -> None:
        CompiledMlp.__init__(self, state["scratch"])
        self.output[...] = state["output"]
