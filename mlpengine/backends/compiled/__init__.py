"""Programs as machine code: C for exactly these shapes, compiled once, replayed in one call.

`kernel` defines kernels.  Each kind of kernel has a file with its rules: `products` (with `tiling`,
`panels` and `tile_loops`), `batch_products`, `column_sum`, `sums`, `maps`, `moves`, `loss_rows`,
`softmax_rows`, `layer_norm_rows`, `batch_norm_rows`, `convolution_rows`, `dropout`, `normals`,
`embedding_rows` and `selected_entries`.

`lower` has the table of kernels.  It turns the instructions of a program into kernels on values,
assigns the kernels to phases, and fuses them.  `layout` places every value in memory.  `emitter`
lets the kernels add C functions of `statements` to a `function_writer`.  `update_loops` has the
functions of the optimizer, and `source` prints the file.  Code that all programs share is in the
headers.  `cache` compiles a program or loads it from disk, and `executor` calls it.  NumPy is the
definition: an op without a compiled rule uses its NumPy rules.
"""

from typing import TYPE_CHECKING

from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.backends.compiled.cache import available_targets, chosen_target
    from mlpengine.backends.compiled.executor import (
        BAD_LABEL,
        FINISHED,
        NOT_FINITE,
        Executor,
        compile_program,
    )
    from mlpengine.backends.compiled.kernel import InstructionLike, LossInstruction
    from mlpengine.backends.update_rules import Update
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cache": ("available_targets", "chosen_target"),
        "executor": (
            "BAD_LABEL",
            "FINISHED",
            "NOT_FINITE",
            "Executor",
            "Update",
            "compile_program",
        ),
        "kernel": ("InstructionLike", "LossInstruction", "UnsupportedError"),
    },
)
