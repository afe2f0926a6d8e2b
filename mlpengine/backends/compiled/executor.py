"""Compiled programs, bound to memory and called from Python."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from math import inf
from typing import Any

import numpy as np

from mlpengine.backends.compiled.cache import chosen_target, load_library
from mlpengine.backends.compiled.kernel import InstructionLike
from mlpengine.backends.compiled.source import MAX_GATHERED, MAX_HYPER, CSource, make_source
from mlpengine.backends.compiled.structure import Structure
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.update_rules import Update
from mlpengine.core.buffers import address_of
from mlpengine.core.spec import Array

FINISHED, NOT_FINITE, BAD_LABEL, LARGE_NORM = range(4)
"""Status of a step; only a finished step updates the parameters."""

NO_DROPOUT = np.zeros(1, np.int64)
"""Dropout limit 0: random bytes below the limit drop an entry, and no byte is below 0."""

EXPORTED_FUNCTIONS = ("mlpengine_run", "mlpengine_open", "mlpengine_close")
"""The functions that every compiled program exports."""


def _newest() -> "Executor | None":
    """Return None; `compile_program` puts a weak reference to its newest executor here."""
    return None


class CallStruct(ctypes.Structure):
    """Arguments and results of a call: ``struct call`` of call.h, which describes the fields."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("data", ctypes.c_void_p * MAX_GATHERED),
        ("rates", ctypes.c_void_p),
        ("losses", ctypes.c_void_p),
        ("norms", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("missing", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("status", ctypes.c_int64),
        ("clips", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("together", ctypes.c_int64),
        ("mean_rows", ctypes.c_double),
        ("lr", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("clip_norm", ctypes.c_double),
        ("max_norm", ctypes.c_double),
        ("loss", ctypes.c_double),
        ("norm", ctypes.c_double),
        ("clipped", ctypes.c_double),
        ("hyper", ctypes.c_double * MAX_HYPER),
    )


class Executor:
    """A compiled program bound to memory.

    Attributes:
        source: the C source and its arrays.
        structure: everything that the C source depends on.
        library: the machine code; other executors may share it.
        call: arguments and results of the program; the batch has ``call.rows`` rows.
        step: function that runs the program and returns the status; it keeps the memory alive.
    """

    def __init__(
        self,
        source: CSource,
        target: CompileTarget,
        update: Update | None,
        clip_norm: float,
        structure: Structure,
    ) -> None:
        self.source, self.structure = source, structure
        self.library = library = load_library(source.text, target, functions=EXPORTED_FUNCTIONS)
        call = CallStruct(rows=source.rows, mean_rows=source.mean_rows, count=1, max_norm=inf)
        call.clip_norm = clip_norm
        if update is not None:
            call.weight_decay = update.weight_decay
            call.hyper[: len(update.hyper)] = tuple(update.hyper.values())
        self._place(call, source.arrays)
        if self.computes_outputs:
            self._forward = library.mlpengine_forward
            self._forward.restype = None
            self._forward.argtypes = [
                *(ctypes.c_void_p,) * 3,
                ctypes.c_int64,
                ctypes.c_void_p,
            ]

    def _place(self, call: CallStruct, arrays: Sequence[Array]) -> None:
        """Set the addresses in `call` to `arrays` and to a new workspace."""
        workspace = np.zeros(self.source.nbytes + 64, np.uint8)
        self.library.mlpengine_open()
        close = weakref.finalize(workspace, self.library.mlpengine_close)
        close.atexit = False  # when Python ends, `step` may be called after finalizers have run
        table = np.array([address_of(a) for a in arrays], np.uintp)
        call.table, call.workspace = address_of(table), -(-address_of(workspace) // 64) * 64
        call.memory = table, workspace, [*arrays]
        self._bind(call)

    def _bind(self, call: CallStruct) -> None:
        self.call = call
        run, pointer = self.library.mlpengine_run, ctypes.c_void_p(ctypes.addressof(call))
        run.argtypes, run.restype = [ctypes.c_void_p], ctypes.c_int64
        pointer.call = call  # type: ignore[attr-defined]  # keeps the target of the pointer

        def step() -> int:
            status: int = run(pointer)
            return status

        self.step: Callable[[], int] = step

    def for_rows(self, rows: int) -> "Executor":
        """Return an executor for the first `rows` rows of the batch, in the same memory."""
        call = CallStruct.from_buffer_copy(self.call)
        call.rows = call.mean_rows = rows
        call.memory = self.call.memory
        other = copy(self)
        other._bind(call)
        return other

    def clone(self, parameters: Array, other: Array) -> "Executor":
        """Return an executor with `other` in place of `parameters`, and copies of the rest."""
        start, arrays, copies = address_of(parameters), list[Array](), dict[int, Array]()
        for array in self.call.memory[2]:
            place = address_of(array) - start
            if 0 <= place < parameters.nbytes:
                part = other.view(np.uint8)[place : place + array.nbytes]
                arrays.append(part.view(array.dtype).reshape(array.shape))
            else:  # arrays with the same address share one copy
                arrays.append(copies.setdefault(address_of(array), array.copy()))
        clone = copy(self)
        clone._place(CallStruct.from_buffer_copy(self.call), arrays)
        return clone

    @property
    def computes_outputs(self) -> bool:
        """Whether `forward` may be called."""
        return self.source.columns > 0

    def forward(self, inputs: Array, outputs: Array) -> None:
        """Compute the outputs for the rows `inputs` without dropout, and write them to `outputs`.

        Both arrays must be C-contiguous.  The call overwrites the buffers of a step.
        """
        table, _, _ = self.call.memory
        undropped = table.copy()
        undropped[self.source.limits] = address_of(NO_DROPOUT)
        self._forward(
            address_of(undropped),
            self.call.workspace,
            address_of(inputs),
            len(inputs),
            address_of(outputs),
        )

    def make_step(self, lr: float, steps: int) -> tuple[float, float, int]:
        """Run step number ``steps + 1``; return loss, gradient norm and status."""
        call = self.call
        call.lr, call.steps = lr, steps
        status = self.step()
        return call.loss, call.norm, status

    def run(
        self,
        order: Array,
        data: Sequence[Array | None],
        rates: Array | float,
        losses: Array,
        norms: Array,
        *,
        steps: int,
        missing: int = 0,
        max_norm: float = inf,
    ) -> int:
        """Run ``len(losses)`` steps, and return the number of finished steps.

        Each step reads the rows of `data` at the next indices in `order`; the last batch has
        `missing` fewer rows than the others.  `rates` is the learning rate of all steps, or an
        array with the rate of each step.  `steps` is the number of steps before this run.  `losses`
        and `norms` are overwritten with the loss and the gradient norm of each step.  A step that
        fails or has a gradient norm above `max_norm` updates nothing and ends the run.
        """
        call = self.call
        call.count, call.steps, call.max_norm = len(losses), steps, max_norm
        call.missing = missing
        call.order = address_of(order)
        call.data[: len(data)] = [None if a is None else address_of(a) for a in data]
        if isinstance(rates, float):
            call.lr = rates
        else:
            call.rates = address_of(rates)
        call.losses, call.norms = address_of(losses), address_of(norms)
        try:
            self.step()
        finally:
            call.count, call.missing, call.max_norm = 1, 0, inf
            call.order = call.rates = call.losses = call.norms = None
        return int(call.done)


def compile_program(
    instructions: Sequence[InstructionLike], *, clip_norm: float = inf, **options: Any
) -> Executor:
    """Compile `instructions`, and with ``update=`` also an update that clips gradients.

    `clip_norm` is the maximum norm of the gradient; `options` are arguments of `make_source`.
    Raises: UnsupportedError if an instruction cannot be compiled; CompileError.
    """
    global _newest
    target = chosen_target()
    structure = Structure(instructions, target, options)
    newest = _newest()
    source = newest and structure.source_like(newest.source, newest.structure)
    source = source or make_source(instructions, target=target, **options)
    executor = Executor(source, target, options.get("update"), clip_norm, structure)
    _newest = weakref.ref(executor)  # the next network can often reuse its C source
    return executor
