"""Programs as machine code: C for exactly these shapes, compiled once and replayed in one call.

`lower` turns the instructions of a program into kernels on values, `kernels` fuses them, `layout`
places every value in memory and `tiling` divides products into tiles; `products`, `packing`,
`losses`, `updates` and `rules` generate the C functions of each kernel from `statements`, `emitter`
collects them, and `source` prints the file.  Code that all programs share is in the headers.
`cache` compiles a program or loads it from disk, and `executor` calls it.  NumPy is the definition:
an op without a compiled rule here runs its NumPy rules.
"""

from mlpengine.backends.compiled.executor import (
    BAD_LABEL,
    FINISHED,
    NOT_FINITE,
    Executor,
    available_targets,
    chosen_target,
    compile_program,
)
from mlpengine.backends.compiled.kernel import InstructionLike, LossInstruction
from mlpengine.backends.update import Update
from mlpengine.backends.values import UnsupportedError

__all__ = [
    "BAD_LABEL",
    "FINISHED",
    "NOT_FINITE",
    "Executor",
    "InstructionLike",
    "LossInstruction",
    "UnsupportedError",
    "Update",
    "available_targets",
    "chosen_target",
    "compile_program",
]
