"""Replaying a generated program: one call into machine code."""

import ctypes
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

from mlpengine.backends.compiled.cache import known_target, load
from mlpengine.backends.compiled.lower import InstructionLike
from mlpengine.backends.compiled.source import NUMBERS, Source, emit_program
from mlpengine.backends.compiled.target import Target, compiler_command
from mlpengine.backends.compiled.updates import Update
from mlpengine.backends.compiled.values import address_of
from mlpengine.errors import CompileError
from mlpengine.spec import Array

FINISHED, NOT_FINITE, BAD_LABEL, NO_THREADS, LARGE_NORM = range(5)
"""How a step ended; in all but the first nothing was updated."""

FUNCTIONS = ("mlpengine_step", "mlpengine_open", "mlpengine_close")
"""What every compiled program exports."""


def native_target() -> Target:
    """Return what the installed compiler compiles for.

    Raises: CompileError if there is no compiler.
    """
    command = compiler_command()
    if command is None:
        named = os.environ.get("CC")
        raise CompileError(
            f"compiler: $CC must be the command of a C compiler (CC={named!r})"
            if named
            else "compiler: a C compiler must be on PATH or named by $CC; "
            "pip install 'mlpengine[compiled]' brings one"
        )
    return known_target(command)


class Executor:
    """A compiled program on its memory.

    Attributes:
        source: the C text and the arrays it works on.
        library: its machine code, which other executors may share.
        numbers: doubles by position of `NUMBERS`; the caller writes ``lr``, ``steps`` and
            ``clip_norm`` and reads ``loss`` and ``norm``.
        step: runs the whole program and returns how it ended.
    """

    def __init__(self, source: Source, target: Target, update: Update | None) -> None:
        self.source = source
        self.library = library = load(source.text, target, functions=FUNCTIONS)
        raw = np.zeros(source.nbytes + 64, np.uint8)
        library.mlpengine_open()
        weakref.finalize(raw, library.mlpengine_close).atexit = False  # `step` may outlive this
        self._workspace = raw[-address_of(raw) % 64 :]
        self._table = np.array([address_of(a) for a in source.arrays], np.uintp)
        more = list(update.numbers) if update else []
        self.numbers = np.array([0.0] * len(NUMBERS) + more)
        self.numbers[4] = self.numbers[7] = inf
        self.numbers[5] = update.weight_decay if update else 0.0
        # Such a pointer keeps its array alive.
        self._handles = [
            a.ctypes.data_as(ctypes.c_void_p) for a in (self._table, self._workspace, self.numbers)
        ]
        self._handles[0].arrays = source.arrays  # type: ignore[attr-defined]  # what it points to
        self.step: Callable[[], int] = self._bind(library.mlpengine_step, 3)
        self._run = library.mlpengine_run if source.gathers else None
        if self._run is not None:
            self._run.restype = ctypes.c_long
            self._run.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] + [ctypes.c_void_p] * 7

    def _bind(self, function: Callable[..., int], count: int) -> Callable[[], int]:
        function.argtypes = [ctypes.c_void_p] * count  # type: ignore[attr-defined]
        function.restype = ctypes.c_long  # type: ignore[attr-defined]
        table, workspace, numbers = self._handles

        def step() -> int:
            return function(table, workspace, numbers)

        return step

    @property
    def clip_norm(self) -> float:
        """Largest global norm of the gradients; infinite to leave them alone."""
        return float(self.numbers[4])

    @clip_norm.setter
    def clip_norm(self, value: float) -> None:
        self.numbers[4] = value

    @property
    def status(self) -> int:
        """How the last step of `run` ended."""
        return int(self.numbers[6])

    def make_step(self, lr: float, steps: int) -> tuple[float, float, int]:
        """Run the program as step number ``steps + 1``; return loss, norm and how it ended."""
        numbers = self.numbers
        numbers[2] = lr
        numbers[3] = steps
        status = self.step()
        return numbers.item(0), numbers.item(1), status

    def run(
        self,
        order: Array,
        data: Sequence[Array | None],
        rates: Array,
        losses: Array,
        norms: Array,
        most_norm: float = inf,
    ) -> int:
        """Make a step for each of `rates`, each on the next rows of `order` of the arrays `data`.

        Return how many were finished: all, or those before one that was not.  One whose norm
        exceeds `most_norm` counts as such.
        """
        assert self._run is not None
        self.numbers[7] = most_norm
        pointers = [None if a is None else address_of(a) for a in (order, *data)]
        results = [address_of(a) for a in (rates, losses, norms)]
        done = int(self._run(*self._handles, len(rates), *pointers, *results))
        self.numbers[7] = inf
        return done


def compile_program(
    instructions: Sequence[InstructionLike],
    *,
    dtype: "np.dtype[np.floating]",
    batch: int,
    threads: int = 1,
    update: Update | None = None,
    gathered: Sequence[Array | None] = (),
    names: Mapping[int, str] | None = None,
) -> Executor:
    """Return `instructions`, and the optimizer's `update` after them, as machine code.

    `gathered` are the buffers that `Executor.run` fills by rows.
    Raises: UnsupportedError if an instruction has no compiled rule; CompileError.
    """
    target = native_target()
    source = emit_program(
        instructions,
        target=target,
        dtype=dtype,
        batch=batch,
        threads=threads,
        update=update,
        gathered=gathered,
        names=names,
    )
    return Executor(source, target, update)
