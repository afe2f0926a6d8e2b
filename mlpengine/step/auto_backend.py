"""The choice of a backend for ``backend="auto"``."""

import logging
from collections.abc import Sequence

from mlpengine.backends.compiled.cache import compiler
from mlpengine.core.errors import CompileError
from mlpengine.nn import TabularNetwork

_log = logging.getLogger("mlpengine")

NUMPY_RUNS = "backend: NumPy runs instead of compiled code (%s)"
"""Message for a step that cannot be compiled, with the reason."""

SAVED_BY_CALLS = 30e-6
"""Seconds per step that machine code saves, because it needs no Python call for each op.

The next three numbers are further seconds: per multiplication, per parameter, and per unit with
dropout.  All were measured on one thread of a Xeon with AVX-512 (``benchmarks/compiling.py``)."""

SAVED_BY_MULTIPLICATION = 7.2e-12

SAVED_BY_PARAMETER = 0.5e-9

SAVED_BY_DROPPED_UNIT = 2.5e-9

SECONDS_OF_PROGRAM = 0.25
"""Seconds that the compiler takes for the code that is the same in all programs.

The next two numbers are further seconds.  All are processor time of GCC 12 on this Xeon."""

SECONDS_OF_LAYER = 0.27

SECONDS_OF_RANGES = 0.4
"""Further seconds for a network that reads only a part of the features."""

FORWARD_SHARE = 0.25
"""Compile time of a forward pass / compile time of a step (GCC 12, EPYC with AVX-512)."""

MIN_SHARE_SAVED = 0.33
"""Minimum of saved time / compile time; below 1, because later runs find a cached program."""


def seconds_to_compile(mlp: TabularNetwork) -> float:
    """Estimate the seconds that the compiler takes for a training step.

    Layers of equal size share code.  The sizes themselves do not matter: they are bounds of loops.
    """
    layers = SECONDS_OF_LAYER * len({*mlp.dense_sizes})
    return SECONDS_OF_PROGRAM + SECONDS_OF_RANGES * bool(mlp.reads) + layers


def choose_backend(steps: int, mlp: TabularNetwork, batch_size: int) -> str:
    """Return the backend that ``auto`` selects for a run of `steps` steps.

    The choice depends on shapes and on whether there is a compiler.  It does not depend on the
    cache, so that a config gives the same bits in every run on one machine.
    """
    sizes = mlp.dense_sizes
    weights = sum(in_dim * out_dim for in_dim, out_dim in sizes)
    biases = sum(out_dim for _, out_dim in sizes)
    saved = SAVED_BY_CALLS + SAVED_BY_PARAMETER * (weights + biases)
    saved += SAVED_BY_MULTIPLICATION * 3 * batch_size * weights  # 1 in forward, 2 in backward
    saved += SAVED_BY_DROPPED_UNIT * batch_size * mlp.dropped_units
    pays = steps * saved >= MIN_SHARE_SAVED * seconds_to_compile(mlp)
    return auto_backend()[0] if pays else "numpy"


SAVED_BY_PREDICTED_UNIT = 0.5e-9
"""Seconds that machine code saves per unit and predicted row (one thread of the same Xeon).

Machine code adds the bias and applies the activation in the same pass over memory."""


def prediction_backend(networks: Sequence[TabularNetwork], rows: int) -> str:
    """Return the backend that predicts `rows` rows: ``compiled`` if it saves time."""
    saved = compiling = 0.0
    for mlp in networks:
        weights = sum(in_dim * out_dim for in_dim, out_dim in mlp.dense_sizes)
        units = sum(out_dim for _, out_dim in mlp.dense_sizes)
        saved += rows * (SAVED_BY_PREDICTED_UNIT * units + SAVED_BY_MULTIPLICATION * weights)
        compiling = max(compiling, FORWARD_SHARE * seconds_to_compile(mlp))
    return auto_backend()[0] if saved >= MIN_SHARE_SAVED * compiling else "numpy"


def auto_backend() -> tuple[str, str]:
    """Return ("compiled", ""), or, if there is no compiler, ("numpy", the reason)."""
    try:
        compiler()
    except CompileError as reason:
        _log.info(NUMPY_RUNS, reason)
        return "numpy", str(reason)
    return "compiled", ""
