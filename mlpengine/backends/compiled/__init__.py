"""Programs as machine code: C for exactly these shapes, compiled once and replayed in one call.

The way of a program: `lower` turns its instructions into kernels on values, `kernels` fuses them,
`layout` decides where everything lies and `tiling` how products are cut, `products`, `losses`,
`updates` and `rules` write the C of each kernel, `source` the whole file; `cache` has it compiled
and keeps the result, `executor` replays it.  NumPy stays the definition: an op without a row in a
table here runs its own rules.
"""

from mlpengine.backends.compiled.executor import (
    BAD_LABEL,
    FINISHED,
    NO_THREADS,
    NOT_FINITE,
    Executor,
    compile_program,
    native_target,
)
from mlpengine.backends.compiled.lower import InstructionLike, LossInstruction
from mlpengine.backends.compiled.updates import Update
from mlpengine.backends.compiled.values import UnsupportedError

__all__ = [
    "BAD_LABEL",
    "FINISHED",
    "NOT_FINITE",
    "NO_THREADS",
    "Executor",
    "InstructionLike",
    "LossInstruction",
    "UnsupportedError",
    "Update",
    "compile_program",
    "native_target",
]
