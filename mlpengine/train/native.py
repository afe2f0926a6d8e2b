"""Training steps as machine code: what of a bound step goes into a compiled program."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from mlpengine.backends.compiled import (
    BAD_LABEL,
    Executor,
    InstructionLike,
    LossInstruction,
    UnsupportedError,
    compile_program,
)
from mlpengine.backends.compiled.lower import lower
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.buffers import address_of
from mlpengine.errors import CompileError
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BoundLoss, Loss
from mlpengine.optim import Optimizer
from mlpengine.spec import Call
from mlpengine.tape.binding import Instruction

_log = logging.getLogger("mlpengine")


CALLS_IN_MULTIPLICATIONS = 2**22
"""Multiplications of a step for which machine code saves as much time as it does for NumPy's calls.

Either is some 30 us (one thread of a Xeon with AVX-512, November 2026): a step of 10-64-32-1 at
batch 64 takes 41 us in NumPy and 11 us compiled, one of 26-256-128-1 at batch 256 660 and 410.
"""

MIN_WORK_TO_COMPILE = 20_000 * CALLS_IN_MULTIPLICATIONS
"""Work of a run from which compiling pays: 0.6 s saved, for half a second to one of compiling."""


def choose_backend(steps: int, sizes: Sequence[int], batch_size: int) -> str:
    """Return the backend that ``auto`` means for so many steps of a network of these sizes.

    It depends on these numbers and on whether there is a compiler, not on what the cache holds, so
    a config gives the same bits twice on one machine.
    """
    weights = sum(in_dim * out_dim for in_dim, out_dim in pairwise(sizes))
    work = steps * (CALLS_IN_MULTIPLICATIONS + 3 * batch_size * weights)  # forward and twice back
    return "compiled" if work >= MIN_WORK_TO_COMPILE and compiler_command() else "auto"


@dataclass(frozen=True, eq=False)
class StepParts:
    """One bound step before it is compiled."""

    scratch: Scratch
    grads: Gradients
    loss: Loss
    bound_loss: BoundLoss
    threads: int = 1

    @property
    def instructions(self) -> list[InstructionLike]:
        """Forward, loss and backward, in the order of replay."""
        bound = self.bound_loss
        loss = LossInstruction(
            self.loss,
            (bound.output, bound.target, bound.sample_weight),
            (bound.d_output, bound.value),
        )
        backward = self.grads.bind(self.scratch).instructions
        return [*self.scratch.program.instructions, loss, *backward]

    @property
    def names(self) -> dict[int, str]:
        """Names for the generated code, by address."""
        found = {}
        for prefix, views in (("p", self.scratch.mlp.params.views), ("d", self.grads.views)):
            for name, view in views.items():
                found[address_of(view)] = f"{prefix}_{name.replace('.', '_')}"
        found[address_of(self.scratch.input)] = "input"
        found[address_of(self.bound_loss.target)] = "target"
        return found


def compile_step(parts: StepParts, optimizer: Optimizer) -> Executor | None:
    """Return the whole step, optimizer included, as one program; None where it must be split.

    Raises: CompileError.
    """
    update = optimizer.describe_update()
    if update is None:
        return None
    bound = parts.bound_loss
    try:
        return compile_program(
            parts.instructions,
            dtype=parts.scratch.mlp.dtype,
            batch=parts.scratch.batch_size,
            threads=parts.threads,
            update=update,
            grads=parts.grads.flat,
            gathered=(parts.scratch.input, bound.target, bound.sample_weight),
            names=parts.names,
        )
    except UnsupportedError as reason:
        _log.debug("compiled: the step is split (%s)", reason)
        return None


def compile_calls(parts: StepParts) -> tuple[Call, ...]:
    """Return the calls up to the gradients: compiled where every op has a rule, NumPy between.

    Raises: CompileError.
    """
    calls: list[Call] = []
    supported = [(_is_supported(i, parts), i) for i in parts.instructions]
    for compiled, group in groupby(supported, key=lambda pair: pair[0]):
        instructions = [i for _, i in group]
        if compiled:
            calls.append(_segment(instructions, parts))
        else:
            calls += _numpy_calls(instructions, parts)
    return tuple(calls)


def _segment(instructions: Sequence[InstructionLike], parts: StepParts) -> Call:
    executor = compile_program(
        instructions,
        dtype=parts.scratch.mlp.dtype,
        batch=parts.scratch.batch_size,
        threads=parts.threads,
        names=parts.names,
    )
    check = parts.bound_loss.forward

    def run() -> None:
        if executor.step() == BAD_LABEL:  # by way of the executor, which owns the memory
            raise_bad_label(check)

    return run


def raise_bad_label(loss_calls: Iterable[Call]) -> None:
    """Let the loss's own rule find the label that is out of range, and raise."""
    for run in loss_calls:
        run()


def _numpy_calls(instructions: Iterable[InstructionLike], parts: StepParts) -> Iterable[Call]:
    for instruction in instructions:
        if isinstance(instruction, Instruction):
            yield from instruction.calls
        else:
            yield from parts.bound_loss.calls


def _is_supported(instruction: InstructionLike, parts: StepParts) -> bool:
    """Return whether the instruction has a compiled rule, by trying it alone."""
    try:
        lower([instruction], 1, {})
    except UnsupportedError:
        return False
    return all(
        w is None
        or w.ndim < 1
        or len(w) == parts.scratch.batch_size
        or instruction.kind == "backward"
        for w in instruction.writes
    )


def warn_not_compiled(reason: CompileError) -> None:
    """Say in one line that NumPy runs, and why."""
    _log.warning("backend: NumPy runs instead of compiled code (%s)", reason)
