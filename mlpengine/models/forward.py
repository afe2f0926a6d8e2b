"""Outputs of networks for many rows, on all cores."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np

from mlpengine.nn import Network
from mlpengine.nn.network import PREDICT_ROWS
from mlpengine.spec import Array
from mlpengine.step.blas_threads import one_blas_thread, threads_allowed

TERMS_PER_THREAD = 1 << 28
"""Multiplications for each additional thread: many times what starting a thread costs."""


def outputs_of(networks: Sequence[Network], x: Array) -> list[Array]:
    """Return the output (rows, out_dim) of each network for features (rows, in_dim).

    Threads take whole blocks of rows, each with BLAS on one thread: on a busy machine products on
    two threads of BLAS take 10 times as long.  The bits do not depend on the number of threads.
    """
    if len(x) == 1:  # limiting the threads of BLAS would take as long as the products
        return [mlp.predict(x) for mlp in networks]
    terms = len(x) * sum(len(mlp.params) for mlp in networks)
    threads = min(threads_allowed(), 1 + terms // TERMS_PER_THREAD)
    with one_blas_thread():
        if threads == 1:
            return [mlp.predict(x) for mlp in networks]
        blocks = _blocks(len(x), 4 * threads)
        with ThreadPoolExecutor(threads) as pool:
            jobs = product(networks, blocks)
            parts = [*pool.map(lambda job: job[0].predict(x[job[1]]), jobs)]
    count = len(blocks)
    return [np.concatenate(parts[k * count :][:count]) for k in range(len(networks))]


def _blocks(rows: int, count: int) -> list[slice]:
    """Return up to `count` blocks of at least `PREDICT_ROWS` rows, if there are as many."""
    passes = max(1, rows // PREDICT_ROWS)
    starts = [passes * k // count * PREDICT_ROWS for k in range(count)]
    return [
        slice(*ends) for ends in zip(starts, [*starts[1:], rows], strict=True) if ends[0] < ends[1]
    ]
