"""Construction of training steps: one compiled program, several programs, or NumPy."""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from mlpengine.backends.compiled.batch_norm_rows import parts_of
from mlpengine.backends.compiled.executor import FINISHED, Executor, compile_program
from mlpengine.backends.compiled.group import StepGroup
from mlpengine.backends.compiled.kernel import InstructionLike, LossInstruction
from mlpengine.backends.values import Batch, UnsupportedError
from mlpengine.core.buffers import address_of, replay
from mlpengine.core.errors import CompileError
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.named import arrays_by_name, arrays_in, row_specs
from mlpengine.core.spec import Array, Call
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.scratch import Scratch
from mlpengine.ops import BoundLoss, Loss
from mlpengine.ops.loss_sum import LossSum
from mlpengine.optim import FullBatch, Optimizer
from mlpengine.step.auto_backend import NUMPY_RUNS
from mlpengine.step.bound_step import BoundStep
from mlpengine.step.shards import Buffers, Shards

_log = logging.getLogger("mlpengine")


@dataclass(frozen=True, eq=False, repr=False)
class StepBuilder:
    """Builds the `BoundStep` of a training step for any number of rows.

    Attributes:
        weighted: whether batches come with sample weights.
        threads: maximum number of threads of a compiled step.
        target: specs of the targets; None for the default of the loss.
    """

    loss: Loss
    optimizer: Optimizer
    clip_norm: float | None
    weighted: bool
    threads: int
    target: Any = None

    def build(
        self, buffers: Buffers, rows: int, whole: BoundStep | None = None, *, compiled: bool
    ) -> tuple[BoundStep, str]:
        """Return the step for `rows` rows, and the reason why it is not compiled, or "".

        `whole` is the step of full batches on these buffers; its program may run shorter batches.
        """
        problem = ""
        if compiled:
            try:
                return self._bind(buffers, rows, whole, compiled=True), ""
            except CompileError as reason:
                problem = str(reason)
                _log.warning(NUMPY_RUNS, problem)
        return self._bind(buffers, rows, whole, compiled=False), problem

    def _bind(
        self, buffers: Buffers, rows: int, whole: BoundStep | None, *, compiled: bool
    ) -> BoundStep:
        if isinstance(buffers, Shards):
            shard = partial(self._gradients, mean_rows=rows, compiled=compiled)
            update = self._update(buffers.total, whole) if compiled else None
            return buffers.bind(rows, shard, update)
        scratch, grads = buffers[0].for_rows(rows), buffers[1].for_rows(rows)
        parts = self._parts(scratch, grads, rows, whole)
        if compiled and (fused := self._fused(parts, whole)):
            return BoundStep(scratch, grads, parts.bound_loss, (), fused)
        bound = self._with_calls(parts, compiled=compiled)
        if not compiled:
            return bound
        return replace(bound, update=self._update(grads.flat, whole))

    def _gradients(
        self, scratch: Scratch, grads: Gradients, *, mean_rows: int, compiled: bool
    ) -> BoundStep:
        """Return the step of one shard, without the update."""
        parts = self._parts(scratch, grads, mean_rows)
        if compiled and (program := parts.program()):
            calls = (parts.checked(program), *parts.bound_loss.sums)
            return BoundStep(scratch, grads, parts.bound_loss, calls, program=program)
        return self._with_calls(parts, compiled=compiled)

    def summary(self, bound: BoundStep, *, compiled: bool) -> str:
        """Return a table of a step's instructions, each with its program or backend."""
        lines = [*self._described(bound, compiled=compiled)]
        width = max(len(where) for where, _ in lines)
        return "\n".join(f"{where:<{width}}  {text}" for where, text in lines)

    def _described(self, bound: BoundStep, *, compiled: bool) -> Iterator[tuple[str, str]]:
        """Yield for each instruction "program 1" (or 2, ...) or "NumPy (reason)", and its text."""
        parts = _StepParts(bound.scratch, bound.grads, self.loss, bound.loss, self.threads)
        whole = bound.fused is not None or bound.program is not None
        split: Iterable[tuple[Sequence[InstructionLike], str]]
        split = [(parts.instructions, "" if whole else "not compiled")]
        if compiled and not whole:
            split = parts.split()
        number = 0
        for instructions, problem in split:
            number += not problem
            for instruction in instructions:
                where = f"NumPy ({problem})" if problem else f"program {number}"
                name = instruction.op.name if instruction.op else ""
                yield where, getattr(instruction, "text", f"loss      {name}")
        where = f"program {number + (bound.update is not None)}"
        alone = bound.fused is None and bound.update is None
        yield "NumPy" if alone else where, f"update    {self.optimizer.name}"

    def _with_calls(self, parts: "_StepParts", *, compiled: bool) -> BoundStep:
        scratch, grads, loss = parts.scratch, parts.grads, parts.bound_loss
        calls = parts.calls() if compiled else (*scratch.calls, *loss.calls, *grads.calls(scratch))
        return BoundStep(scratch, grads, loss, tuple(calls))

    def _parts(
        self, scratch: Scratch, grads: Gradients, mean_rows: int, whole: BoundStep | None = None
    ) -> "_StepParts":
        target = self.target
        if target is not None:
            target = row_specs(target, len(scratch.output))
        loss = self.loss.bind(
            scratch.output,
            grads.d_output,
            weighted=self.weighted,
            target=target,
            mean_rows=mean_rows,
            memory=None if whole is None else whole.loss,
        )
        return _StepParts(scratch, grads, self.loss, loss, self.threads)

    def _fused(self, parts: "_StepParts", whole: BoundStep | None) -> Executor | None:
        """Return the whole step as one program; None if an op cannot be compiled."""
        scratch, grads = parts.scratch, parts.grads
        if whole is not None and whole.fused is not None:
            full = _StepParts(whole.scratch, whole.grads, self.loss, whole.loss, self.threads)
            if begins(parts.instructions, full.instructions):
                return whole.fused.for_rows(scratch.batch_size)
        gathered = parts.gathered
        return self._with_update(parts.compile, parts.instructions, grads.flat, gathered=gathered)

    def _update(self, grads: Array, whole: BoundStep | None) -> Executor | None:
        """Return norm, clipping and update as a program; None if they cannot be compiled."""
        if whole is not None:
            return whole.update
        build = partial(compile_program, dtype=grads.dtype, batch=1)
        return self._with_update(build, (), grads)

    def _with_update(
        self,
        build: Callable[..., Executor],
        instructions: Sequence[InstructionLike],
        grads: Array,
        **options: Any,
    ) -> Executor | None:
        if isinstance(self.optimizer, FullBatch):
            return None
        update, clip_norm = self.optimizer.describe_update(), self.clip_norm or inf
        try:
            return build(instructions, update=update, clip_norm=clip_norm, grads=grads, **options)
        except UnsupportedError as reason:
            _log.debug("compiled: the step is split (%s)", reason)
            return None


def begins(shorter: Sequence[InstructionLike], whole: Sequence[InstructionLike]) -> bool:
    """Return whether both steps have the same ops on arrays with the same addresses."""
    return len(shorter) == len(whole) and all(
        one.kind == other.kind and _places(one) == _places(other)
        for one, other in zip(shorter, whole, strict=True)
    )


def _places(instruction: InstructionLike) -> list[tuple[int, ...] | None]:
    """Return the address and the row shape of each array of an instruction.

    For work arrays, return only the address, because their first axis is not always the rows.
    """
    arrays = [a for r in instruction.reads for a in (r if isinstance(r, tuple) else (r,))]
    arrays += instruction.writes
    places = [None if a is None else (address_of(a), *a.shape[1:]) for a in arrays]
    return [*places, *((address_of(a),) for a in instruction.work.values())]


@dataclass(frozen=True, eq=False, repr=False)
class _StepParts:
    """Forward, loss and backward of a step, as instructions."""

    scratch: Scratch
    grads: Gradients
    loss: Loss
    bound_loss: BoundLoss
    threads: int

    @cached_property
    def losses(self) -> list[LossInstruction]:
        whole, loss = self.bound_loss, self.loss
        each = [(loss, whole, 1.0)]
        if isinstance(loss, LossSum):
            each = [(loss.losses[n], part, loss.weights[n]) for n, part in whole.parts.items()]
        return [
            LossInstruction(
                op,
                (bound.output, bound.target, bound.sample_weight),
                (bound.d_output, bound.value),
                mean_rows=int(whole.mean_rows),
                weight=weight,
            )
            for op, bound, weight in each
        ]

    @property
    def instructions(self) -> list[InstructionLike]:
        """Forward, loss and backward, in the order of replay."""
        backward = self.grads.bind(self.scratch).instructions
        return [*self.scratch.program.instructions, *self.losses, *backward]

    def _in_parts(self) -> Iterator[InstructionLike]:
        """Yield the instructions; an instruction that sums over all rows is split into parts."""
        for instruction in self.instructions:
            parts = parts_of(instruction)
            known = all(part.calls or not self._problem(part) for part in parts)
            yield from parts if parts and known else [instruction]

    @property
    def gathered(self) -> list[Array | None]:
        """Buffers of a batch, into which a program can copy rows of larger arrays."""
        loss = self.bound_loss
        return arrays_in(self.scratch.input, loss.target, loss.sample_weight)

    def program(self) -> Executor | None:
        """Return forward, loss and backward as one program; None if an op cannot be compiled."""
        try:
            return self.compile(self.instructions, gathered=self.gathered)
        except UnsupportedError:
            return None

    def compile(self, instructions: Sequence[InstructionLike], **update: Any) -> Executor:
        """Compile instructions as one program; `update` holds options of `compile_program`."""
        return compile_program(
            instructions,
            dtype=self.scratch.mlp.dtype,
            batch=self.scratch.batch_size,
            parameters=self.scratch.mlp.params.flat,
            names=self._names(),
            threads=self.threads,
            **update,
        )

    def _names(self) -> dict[int, str]:
        """Return the names of arrays in the generated C, by address."""
        inputs, targets = arrays_by_name(self.scratch.input), arrays_by_name(self.bound_loss.target)
        names = {
            address_of(array): f"{kind}_{name}" if name else kind
            for kind, arrays in (("input", inputs), ("target", targets))
            for name, array in arrays.items()
        }
        for prefix, views in (("p", self.scratch.mlp.params.views), ("d", self.grads.views)):
            for name, view in views.items():
                names[address_of(view)] = f"{prefix}_{name}"
        return names

    def calls(self) -> Iterator[Call]:
        """Yield the calls of forward, loss and backward; NumPy runs ops that are not compiled."""
        for instructions, problem in self.split():
            if not problem:
                yield self.checked(self.compile(instructions))
                continue
            for instruction in instructions:
                if isinstance(instruction, LossInstruction):
                    yield from self._calls_of(instruction)
                else:
                    yield from getattr(instruction, "calls", ())
        yield from self.bound_loss.sums

    def split(self) -> Iterator[tuple[Sequence[InstructionLike], str]]:
        """Yield (instructions of a program, "") or (instructions for NumPy, the reason)."""
        instructions = [*self._in_parts()]
        kept = self._kept_for_numpy(instructions)
        group = self._group(kept)
        for instruction in instructions:
            if not group.add(instruction):
                continue
            if group.instructions:
                yield group.instructions, ""
            group = self._group(kept)
            if problem := group.add(instruction):
                yield [instruction], problem
                group = self._group(kept)
        if group.instructions:
            yield group.instructions, ""

    def _calls_of(self, loss: InstructionLike) -> Sequence[Call]:
        parts = self.bound_loss.parts or {"": self.bound_loss}
        bounds = zip(self.losses, parts.values(), strict=True)
        return next(bound.calls for each, bound in bounds if each is loss)

    def checked(self, program: Executor) -> Call:
        """Return the call that runs a program and raises an error for a label out of range."""
        step, check = program.step, self.bound_loss.forward

        def run() -> None:
            if step() != FINISHED:  # a label is out of range: NumPy's rule raises the error
                replay(check)

        return run

    def _kept_for_numpy(self, instructions: Sequence[InstructionLike]) -> set[tuple[int, int]]:
        """Return op and address of each work array that forward must keep for NumPy's backward."""
        return {
            (id(instruction.op), address_of(array))
            for instruction in instructions
            if instruction.kind == "backward" and instruction.op and self._problem(instruction)
            for name, array in instruction.work.items()
            if name in instruction.op.signature.work["forward"]
        }

    def _group(self, kept: Container[tuple[int, int]] = ()) -> StepGroup:
        batch = Batch(self.scratch.batch_size, (), self.scratch.mlp.params.flat)
        return StepGroup(batch, self.scratch.mlp.dtype.itemsize, kept)

    def _problem(self, instruction: InstructionLike) -> str:
        """Return why an instruction cannot be compiled, or ""."""
        return self._group().add(instruction)
