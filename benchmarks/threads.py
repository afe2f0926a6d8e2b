"""From which size a second thread pays on an idle machine, for ``training.threads``.

``python benchmarks/threads.py`` (``--smoke`` for a second).  For networks of growing size, the step
of the NumPy and of the compiled backend with one thread and with two, window by window in turn.
Each window follows a pause, in which threads that still look for work go to sleep, and a few steps
that are not timed.  A compiled step starts no more threads than its multiplications make up for,
and makes its steps on one unless two are clearly faster; here it uses both for every step.

``--busy N``: what that choice makes of two threads beside so many busy loops, for compiled steps;
``--nice 19``: loops of a lower priority.

``--model``: microseconds of a compiled step that a model expects of 1 to 64 threads, and where the
machine has that many cores, those that were measured.  Three things are measured: what a step takes
on one thread, which others divide but for the traffic of the update; what one thread and all cores
copy in a second; and what a step of two threads on the smallest network takes beyond half of one
thread's, which is barriers, whose threads count themselves in turn.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from machine import busy_loops, describe, restart_clean
from threadpoolctl import threadpool_limits

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.backends.compiled import emitter
from mlpengine.core.wording import plural
from mlpengine.step.blas_threads import cores

NETWORKS = (
    ((32, 32, 8), 32),
    ((64, 64, 10), 32),
    ((64, 64, 10), 64),
    ((64, 128, 10), 64),
    ((64, 128, 10), 128),
    ((128, 128, 64, 10), 128),
    ((256, 256, 10), 128),
    ((784, 256, 128, 10), 128),
    ((512, 512, 512, 10), 256),
    ((784, 1024, 1024, 10), 256),
)

PAUSE = 0.04
"""Seconds: OpenBLAS's threads look for work for some 20 ms."""


def make(
    sizes: tuple[int, ...], batch: int, backend: str, threads: int, is_free: bool
) -> TrainingStep:
    """Return a step of `threads` threads.  It uses all of them or, if `is_free`, chooses."""
    mlp = Mlp(sizes, activation="relu", seed=0)
    adam = Adam(mlp, lr=1e-3)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), adam, batch, backend=backend, threads=threads)
    if backend == "compiled" and not is_free:
        step.bound(batch).fused.call.threads = threads
    return step


def window(step: TrainingStep, seconds: float) -> float:
    """Return microseconds a step."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((step.batch_size, step.mlp.sizes[0])).astype("f4")
    y = rng.integers(0, step.mlp.sizes[-1], step.batch_size)
    time.sleep(PAUSE)
    start = time.perf_counter()
    for _ in range(3):
        step(x, y)
    calls = max(1, int(seconds * 3 / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        step(x, y)
    return (time.perf_counter() - start) / calls * 1e6


def compare(
    sizes: tuple[int, ...], batch: int, backend: str, budget: tuple[int, float], is_free: bool
) -> str:
    """Return what one thread takes, and the gain by another."""
    windows, seconds = budget
    one, two = (make(sizes, batch, backend, threads, is_free) for threads in (1, 2))
    pairs = []
    for _ in range(windows):
        alone = window(one, seconds)
        with threadpool_limits(2 if backend == "numpy" else 1, user_api="blas"):
            pairs.append((alone, window(two, seconds)))
    gain = statistics.median(a / b for a, b in pairs)
    return f"{statistics.median(a for a, _ in pairs):9.1f} us, gain {gain:4.2f}"


COUNTS = (1, 2, 4, 8, 16, 32, 64)
COPIED = 1 << 28
"""Bytes: more than caches hold."""

UPDATE_STREAMS = 7
"""Arrays of the size of the parameters that Adam's update reads (four) and writes (three)."""

CACHED = 1 << 20
"""Bytes of an update that stay in the second-level cache of a core."""


def copy_rate(threads: int) -> float:
    """Return the bytes that threads read and write in a microsecond when they copy."""
    parts = np.array_split(np.ones(COPIED // 8), threads)
    copies = [np.empty_like(part) for part in parts]
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(4):
            start = time.perf_counter()
            list(pool.map(np.copyto, copies, parts))
            best = min(best, time.perf_counter() - start)
    return 2 * COPIED / best / 1e6


def fastest(sizes: tuple[int, ...], batch: int, threads: int, budget: tuple[int, float]) -> float:
    """Return microseconds of a compiled step that uses all of its threads."""
    step = make(sizes, batch, "compiled", threads, is_free=False)
    return min(window(step, budget[1]) for _ in range(budget[0]))


def modeled(rates: tuple[float, float], meeting: float) -> Callable[[float, int, int], float]:
    """Return the model of the microseconds of a step.

    The model is a function of the microseconds on one thread, and of the numbers of parameters and
    threads.

    Args:
        rates: bytes in a microsecond of one thread and of all cores.
        meeting: microseconds that two threads wait for each other in a step.
    """
    one, all_cores = rates

    def expected(alone: float, parameters: int, threads: int) -> float:
        nbytes = 4 * UPDATE_STREAMS * parameters
        traffic = nbytes / one if nbytes > CACHED else 0.0
        shared = nbytes / min(threads * one, max(all_cores, one)) if traffic else 0.0
        waiting = meeting * threads / 2 if threads > 1 else 0.0
        return max(0.0, alone - traffic) / threads + shared + waiting

    return expected


def print_model(
    networks: tuple[tuple[tuple[int, ...], int], ...], budget: tuple[int, float]
) -> None:
    """Print what the model expects of each network, and what is measured."""
    rates = copy_rate(1), copy_rate(cores())
    sizes, batch = NETWORKS[0]
    meeting = 0.0
    if cores() > 1:
        alone, two = (fastest(sizes, batch, threads, budget) for threads in (1, 2))
        meeting = max(0.0, two - alone / 2)
    print(f"copies {rates[0] / 1e3:.1f} GB/s by one thread, {rates[1] / 1e3:.1f} by {cores()}")
    print(f"two threads wait {meeting:.2f} us for each other in a step")
    print(f"{'threads':>27} {''.join(f'{count:>10}' for count in COUNTS)}   best")
    expected = modeled(rates, meeting)
    for sizes, batch in networks:
        alone = fastest(sizes, batch, 1, budget)
        parameters = sum((a + 1) * b for a, b in pairwise(sizes))
        times = {count: expected(alone, parameters, count) for count in COUNTS}
        best = min(times, key=lambda count: times[count])
        measured = [fastest(sizes, batch, n, budget) for n in COUNTS if n <= cores()]
        title = f"{'-'.join(map(str, sizes)):>18}, batch {batch:<3}"
        print(title, *(f"{us:9.1f}" for us in times.values()), f"{best:6}", flush=True)
        print(f"{'measured':>27}", *(f"{us:9.1f}" for us in measured), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two networks, short windows")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="beside N busy loops")
    parser.add_argument("--nice", type=int, default=0, help="how much lower their priority is")
    parser.add_argument("--model", action="store_true", help="what 1 to 64 threads would take")
    args = parser.parse_args()
    describe()
    networks, budget = (NETWORKS[:2], (2, 0.002)) if args.smoke else (NETWORKS, (25, 0.02))
    if args.busy:  # what a step chooses shows after some time slices of the loops
        networks, budget = networks[-5:], (budget[0], 20 * budget[1])
        print(f"beside {plural(args.busy, 'busy loop')}")
    else:
        emitter.STEP_TERMS_PER_THREAD = 1  # two threads everywhere: the rule itself is measured
    if args.model:
        print_model(networks, budget)
        return
    with threadpool_limits(1, user_api="blas"), busy_loops(args.busy, args.nice):
        for backend in ("compiled",) if args.busy else ("compiled", "numpy"):
            print(f"{backend}: network, multiplications of the largest layer and of a step")
            for sizes, batch in networks:
                layers = [batch * a * b for a, b in pairwise(sizes)]
                title = f"{'-'.join(map(str, sizes)):>18}, batch {batch:<4}"
                terms = f"{max(layers):14,} {3 * sum(layers) - layers[0]:14,}"
                gain = compare(sizes, batch, backend, budget, args.busy > 0)
                print(f"{title} {terms} {gain}", flush=True)


if __name__ == "__main__":
    restart_clean()
    main()
