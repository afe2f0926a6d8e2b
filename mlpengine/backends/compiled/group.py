"""Groups of consecutive instructions that can be compiled as one program."""

from collections.abc import Container, Sequence

from mlpengine.backends.compiled.dropout import Draw
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.loss_rows import LossRows
from mlpengine.backends.compiled.lower import (
    EarlierReads,
    lower_instruction,
    need_backward,
    need_one_dtype,
)
from mlpengine.backends.values import Batch, UnsupportedError, Values
from mlpengine.core.buffers import address_of


class StepGroup:
    """Consecutive instructions that can be compiled as one program.

    When an instruction is added, only its own kernels are made and checked.  Making the kernels of
    the whole group each time would take quadratic time.

    Args:
        batch: the batch of the program.
        itemsize: bytes of a floating-point number.
        kept: (id of the op, address) of each work array that NumPy's backward reads later.

    Attributes:
        instructions: the added instructions.
    """

    def __init__(self, batch: Batch, itemsize: int, kept: Container[tuple[int, int]] = ()) -> None:
        self.instructions: list[InstructionLike] = []
        self._itemsize, self._kept = itemsize, kept
        self._values, self._reads, self._has_loss = Values({}, batch), EarlierReads(), False
        self._needed: list[tuple[str, int]] = []

    def add(self, instruction: InstructionLike) -> str:
        """Add an instruction and return "", or return why it does not fit; the group then ends."""
        known = len(self._values.all)
        try:
            kernels = lower_instruction(instruction, self._values)
            need_one_dtype(self._values.all[known:], self._itemsize)
            self._check(kernels)
        except UnsupportedError as reason:
            return str(reason)
        if op := instruction.op:
            places = map(address_of, instruction.work.values())
            self._needed += [(op.name, at) for at in places if (id(op), at) in self._kept]
        if self._needed:
            written = {value.address for value in self._values.current() if value.mask is None}
            for name, place in self._needed:
                if place not in written:
                    return f"{name}: NumPy computes its gradient"
        self.instructions.append(instruction)
        return ""

    def _check(self, kernels: Sequence[Kernel]) -> None:
        """Raise UnsupportedError if the kernels cannot follow the kernels of the group."""
        self._has_loss |= any(isinstance(kernel, LossRows) for kernel in kernels)
        reads = [value for kernel in kernels for value in kernel.reads]
        for kernel in kernels:
            for value in kernel.writes:
                value.final = self._values.is_current(value)
            self._reads.add(kernel)
            if isinstance(kernel, Draw):
                need_backward(kernel, reads, has_loss=self._has_loss)
