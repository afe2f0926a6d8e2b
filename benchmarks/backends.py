"""Where NumExpr's fused rules beat the ops' own NumPy rules: why ``auto`` is NumPy.

``python benchmarks/backends.py`` prints, for each rule, number of elements and number of threads,
the median time of the NumExpr rule over that of the NumPy rule (below 1 NumExpr wins).
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numexpr
import numpy as np
from machine import describe, restart_clean
from threadpoolctl import threadpool_limits

from mlpengine.backends import NUMPY, Backend
from mlpengine.backends.numexpr import NUMEXPR
from mlpengine.ops import REGISTRY
from mlpengine.tape import Program, Tape

RULES = [
    (name, direction)
    for name in ("tanh", "sigmoid", "silu", "relu", "softplus", "elu", "mish", "hardswish")
    for direction in ("forward", "backward")
    if NUMEXPR.find(REGISTRY[name](), direction) is not None  # type: ignore[arg-type]
]

SIZES = (1024, 8192, 65_536, 262_144, 1_048_576)


def replay_of(name: str, direction: str, size: int, backend: Backend) -> Callable[[], None]:
    """Return what replays one rule on `size` float32 elements."""
    tape = Tape()
    x = tape.input((size,), name="x", wants_grad=True)
    program = Program(tape, tape.apply(REGISTRY[name](), x), backend=backend.name)
    program.forward(x=np.random.default_rng(0).standard_normal(size).astype("f4"))
    program.backward()
    calls = [c for i in program.instructions if i.kind == direction for c in i.calls]

    def replay() -> None:
        for bound in calls:
            bound()

    return replay


def microseconds(run: Callable[[], None], seconds: float) -> float:
    start = time.perf_counter()
    run()
    count = max(1, int(seconds / max(time.perf_counter() - start, 1e-6)))
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count * 1e6


def ratio(name: str, direction: str, size: int, seconds: float, windows: int) -> float:
    fused = replay_of(name, direction, size, NUMEXPR)
    plain = replay_of(name, direction, size, NUMPY)
    fused(), plain()
    pairs = [(microseconds(fused, seconds), microseconds(plain, seconds)) for _ in range(windows)]
    return statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    describe()
    seconds, windows, sizes = (1e-3, 3, SIZES[:2]) if args.smoke else (0.01, 9, SIZES)
    print("rule".ljust(22), "threads", *(f"{n:>10,}" for n in sizes))
    for threads in (1, 2):
        numexpr.set_num_threads(threads)
        with threadpool_limits(threads):
            for name, direction in RULES:
                row = [ratio(name, direction, n, seconds, windows) for n in sizes]
                cells = [f"{value:10.2f}" for value in row]
                print(f"{name} {direction}".ljust(22), f"{threads:7}", *cells)


if __name__ == "__main__":
    restart_clean()
    main()
