"""The forward pass of an Mlp as machine code."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mlpengine.backends.compiled import UnsupportedError, compile_program
from mlpengine.errors import CompileError, UsageError
from mlpengine.spec import Array
from mlpengine.tape.memory import write_into

if TYPE_CHECKING:
    from mlpengine.nn.mlp import Mlp


class CompiledMlp:
    """The output of a network for one batch size, in one call; make it with `Mlp.compile`.

    It reads the network's parameters at each call, so it follows training.  One for each thread.

    Attributes:
        input: (batch, in_dim), the buffer that is read; writing it in place saves a copy.
        output: (batch, out_dim), a view, valid until the next call.

    Raises: CompileError if there is no compiler, or an activation has no compiled rule.
    """

    def __init__(self, mlp: "Mlp", batch_size: int) -> None:
        if batch_size < 1:
            raise UsageError(f"compile: batch_size must be at least 1 (got {batch_size})")
        self._scratch = mlp.scratch(batch_size, training=False, backend="numpy")
        names = {
            int(v.ctypes.data): f"p_{n.replace('.', '_')}" for n, v in mlp.params.views.items()
        }
        names[int(self._scratch.input.ctypes.data)] = "input"
        try:
            self._executor = compile_program(
                self._scratch.program.instructions,
                dtype=mlp.dtype,
                batch=batch_size,
                names=names,
            )
        except UnsupportedError as reason:
            raise CompileError(f"compile: every layer needs a compiled rule ({reason})") from reason
        self.input: Array = self._scratch.input
        self.output: Array = self._scratch.output
        self.source = self._executor.source.text
        self.run = self._executor.step

    def __call__(self, x: ArrayLike) -> Array:
        """Return the output for `x` (batch, in_dim), a view valid until the next call."""
        rows = np.asarray(x)
        if rows.dtype == self.input.dtype and rows.shape == self.input.shape:
            np.copyto(self.input, rows)
        else:
            write_into(self.input, rows, "compiled network: x")
        self.run()
        return self.output
