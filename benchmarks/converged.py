"""The step time of a network that has nothing left to learn: it must not depend on the numbers.

``python benchmarks/converged.py`` (``--smoke`` for a second).  A 4-32-32-1 network learns to answer
zero until its loss is below 1e-12, and goes on until gradients and moments would be denormal,
which many processors handle ten times slower.  Windows of two steps are timed in turn: one of the
converged network, and one of the same network as it was after `WARM` steps.  Prints, for every
optimizer and backend, the ratio of the medians; in the long form a ratio above `LIMIT` fails.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from machine import describe, restart_clean

from mlpengine import Adam, MeanSquaredError, Mlp, Sgd, TrainingStep
from mlpengine.optim import Optimizer, RmsProp

ROWS, WARM, REACHED, LIMIT = 32, 2_000, 1e-12, 1.2

OPTIMIZERS: dict[str, Callable[[Mlp], Optimizer]] = {
    "sgd": lambda mlp: Sgd(mlp, lr=0.1),
    "sgd, momentum": lambda mlp: Sgd(mlp, lr=0.1, momentum=0.9),
    "adam": lambda mlp: Adam(mlp, lr=1e-3),
    "rmsprop": lambda mlp: RmsProp(mlp, lr=1e-4),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return rows (32, 4), four different ones, and the answer to each, 0."""
    rows = np.random.default_rng(0).standard_normal((4, 4)).astype("f4")
    return np.tile(rows, (ROWS // 4, 1)), np.zeros((ROWS, 1), "f4")


def train(kind: str, backend: str, steps: int) -> tuple[TrainingStep, float]:
    """Return a step after `steps` of it, and its smallest loss."""
    mlp = Mlp([4, 32, 32, 1], activation="tanh", seed=0)
    step = TrainingStep(mlp, MeanSquaredError(), OPTIMIZERS[kind](mlp), ROWS, backend=backend)
    x, y = data()
    best_loss = min(step(x, y) for _ in range(steps))
    return step, best_loss


def window(step: TrainingStep, calls: int) -> float:
    """Return microseconds a step."""
    x, y = data()
    start = time.perf_counter()
    for _ in range(calls):
        step(x, y)
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few steps, nothing is judged")
    parser.add_argument("--steps", type=int, default=60_000, help="until it counts as converged")
    args = parser.parse_args()
    describe()
    steps, windows, calls = (500, 3, 20) if args.smoke else (args.steps, 60, 200)
    failed = False
    for backend in ("numpy", "compiled"):
        for kind in OPTIMIZERS:
            early, _ = train(kind, backend, min(WARM, steps // 2))
            late, best_loss = train(kind, backend, steps)
            times = [(window(early, calls), window(late, calls)) for _ in range(windows)]
            start, end = (statistics.median(column) for column in zip(*times, strict=True))
            slow = end > LIMIT * start and best_loss <= REACHED and not args.smoke
            failed |= slow
            note = "   too slow" if slow else ""
            print(
                f"{backend:9} {kind:14} smallest loss {best_loss:8.1e}   start {start:6.2f} us   "
                f"converged {end:6.2f} us   ratio {end / start:5.2f}{note}",
                flush=True,
            )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    restart_clean()
    main()
