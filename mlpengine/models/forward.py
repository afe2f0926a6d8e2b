"""Outputs of networks for many rows, on all cores, by machine code or by NumPy."""

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any, Protocol

import numpy as np

from mlpengine.backends.compiled.executor import Executor, compile_program
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.errors import CompileError
from mlpengine.core.spec import Array
from mlpengine.nn import TabularNetwork
from mlpengine.nn.network import PREDICT_ROWS
from mlpengine.step.auto_backend import NUMPY_RUNS, prediction_backend
from mlpengine.step.blas_threads import one_blas_thread, threads_allowed

TERMS_PER_THREAD = 1 << 28
"""Number of multiplications per thread; fewer would not repay the start of a further thread."""

BLOCK_ROWS = 16 * PREDICT_ROWS
"""Maximum rows of a thread's block, so that features and outputs stay in the core's cache."""

BLOCK_FEATURES = 1 << 19
"""Maximum feature values of a thread's block (2 MB of float32); wide blocks may exceed this
number, because a block has at least `PREDICT_ROWS` rows."""

_log = logging.getLogger("mlpengine")

RowsForward = Callable[[Array], Sequence[Array]]
"""Function from features to the outputs (rows, out_dim) of networks, valid until the next call."""


class Features(Protocol):
    """Features (rows, in_dim): an array, or an object that computes rows when they are read."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Array: ...


def outputs_of(networks: Sequence[TabularNetwork], x: Features) -> list[Array]:
    """Return the output (rows, out_dim) of each network for features (rows, in_dim)."""
    outputs: list[Array] = [mlp.empty_outputs(len(x)) for mlp in networks]

    def keep(rows: slice, parts: Sequence[Array]) -> None:
        for output, part in zip(outputs, parts, strict=True):
            output[rows] = part

    each_block(networks, x, keep)
    return outputs


def each_block(
    networks: Sequence[TabularNetwork], x: Features, use: Callable[[slice, Sequence[Array]], None]
) -> None:
    """Call `use` with each block of rows of `x`, and the outputs of each network for this block.

    Each thread takes blocks of rows and uses one BLAS thread, because several BLAS threads are slow
    on a busy machine.  The number of threads changes no bit.  The number of rows decides between
    machine code and NumPy, which may differ in the last bits.  With NumPy, the last bits of a row
    may also depend on the row's position.
    """

    def by_numpy(rows: Array) -> list[Array]:
        return [mlp.predict(rows) for mlp in networks]

    if len(x) == 1:  # for one row, limiting BLAS threads would take as long as the products
        use(slice(0, 1), by_numpy(x[0:1]))
        return
    terms = len(x) * sum(len(mlp.params) for mlp in networks)
    threads = 1 + terms // TERMS_PER_THREAD
    if threads > 1:
        threads = min(threads, threads_allowed())
    forwards: list[RowsForward] = _programs(networks, x, threads) or [by_numpy] * threads

    def compute(rows: slice) -> None:
        forward = forwards.pop()  # one for each thread
        try:
            use(rows, forward(x[rows]))
        finally:
            forwards.append(forward)

    blocks = _blocks(len(x), prod(x.shape[1:]))
    with one_blas_thread():
        if threads == 1:
            for rows in blocks:
                compute(rows)
            return
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(compute, blocks):
                pass


def _blocks(rows: int, width: int) -> list[slice]:
    """Return blocks of rows with `width` features, of at least `PREDICT_ROWS` rows if possible."""
    fitting = BLOCK_FEATURES // max(1, width) // PREDICT_ROWS * PREDICT_ROWS
    at_once = max(PREDICT_ROWS, min(fitting, BLOCK_ROWS))
    starts = range(0, max(1, rows - PREDICT_ROWS + 1), at_once)
    return [slice(*ends) for ends in zip(starts, [*starts[1:], rows], strict=True)]


def _programs(
    networks: Sequence[TabularNetwork], x: Features, threads: int
) -> list[RowsForward] | None:
    """Return the networks as machine code, once for each thread; None if NumPy must compute."""
    fits = all(
        x.shape[1:] == mlp.in_shape and np.can_cast(x.dtype, mlp.dtype, "same_kind")
        for mlp in networks
    )
    if not fits or prediction_backend(networks, len(x)) == "numpy":
        return None
    try:
        first = _Program.of(networks)
    except (CompileError, UnsupportedError) as reason:
        _log.info(NUMPY_RUNS, reason)
        return None
    return [first, *(first.clone() for _ in range(threads - 1))]


class _Program:
    """The forward passes of networks as machine code, for one thread.

    Outputs equal the outputs of a compiled training step.
    """

    def __init__(self, networks: Sequence[TabularNetwork], passes: Sequence[Executor]) -> None:
        self._networks, self._passes = networks, passes
        self._outputs: list[Array] = [mlp.empty_outputs(0) for mlp in networks]

    @classmethod
    def of(cls, networks: Sequence[TabularNetwork]) -> "_Program":
        """Compile networks; networks of equal structure share machine code."""
        made: dict[str, tuple[TabularNetwork, Executor]] = {}
        passes = []
        for mlp in networks:
            key = json.dumps(mlp.describe(), sort_keys=True)
            if key not in made:
                made[key] = mlp, _compiled(mlp)
            first, program = made[key]
            passes.append(program.clone(first.params.flat, mlp.params.flat))
        return cls(networks, passes)

    def clone(self) -> "_Program":
        pairs = zip(self._networks, self._passes, strict=True)
        each = [one.clone(mlp.params.flat, mlp.params.flat) for mlp, one in pairs]
        return _Program(self._networks, each)

    def __call__(self, x: Array) -> list[Array]:
        if len(x) > len(self._outputs[0]):
            self._outputs = [mlp.empty_outputs(len(x)) for mlp in self._networks]
        outputs = [output[: len(x)] for output in self._outputs]
        for mlp, one, output in zip(self._networks, self._passes, outputs, strict=True):
            one.forward(np.ascontiguousarray(x, mlp.dtype), output)
        return outputs


def _compiled(mlp: TabularNetwork) -> Executor:
    """Return the program that computes outputs.  Raises: CompileError or UnsupportedError."""
    scratch = mlp.scratch(PREDICT_ROWS, training=False)
    return compile_program(
        scratch.program.instructions,
        dtype=mlp.dtype,
        batch=PREDICT_ROWS,
        gathered=[scratch.input],
        output=scratch.output,
    )
