"""What dropout costs a compiled training step: that of ``configs/digits.yaml``.

``python benchmarks/dropout.py`` (``--smoke`` for a second).  Steps with dropout 0.3 and without
run in turn on one thread, a hundred in one call: 64-256-128-10 units, a batch of 32, once without
clipping, once with gradients clipped to a norm of 1.  Prints microseconds a step and their ratio.
"""

import argparse
import statistics
import time

import numpy as np
from machine import describe, figure, restart_clean

from mlpengine import AdamW, Mlp, SoftmaxCrossEntropy, TrainingStep

SIZES, BATCH, RATE, STEPS = (64, 256, 128, 10), 32, 0.3, 100


def training(rate: float, clip_norm: float | None) -> TrainingStep:
    mlp = Mlp(SIZES, dropout=rate, seed=0)
    optimizer = AdamW(mlp, lr=2e-3, weight_decay=0.05)
    loss = SoftmaxCrossEntropy()
    return TrainingStep(mlp, loss, optimizer, BATCH, clip_norm=clip_norm, backend="compiled")


def measure(steps: list[TrainingStep], rounds: int) -> list[list[float]]:
    """Return the microseconds a step takes in each round."""
    rng = np.random.default_rng(0)
    x = rng.random((1248, SIZES[0]), np.float32)
    y = rng.integers(0, SIZES[-1], len(x))
    order = rng.integers(0, len(x), STEPS * BATCH)
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds + 1):
        for step, taken in zip(steps, times, strict=True):
            start = time.perf_counter()
            step.run_many(x, y, order)
            taken.append((time.perf_counter() - start) / STEPS * 1e6)
    return [taken[1:] for taken in times]  # the first call warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="three rounds")
    args = parser.parse_args()
    describe()
    for clip_norm in (None, 1.0):
        steps = [training(rate, clip_norm) for rate in (0.0, RATE)]
        plain, dropped = measure(steps, 3 if args.smoke else 200)
        ratio = statistics.median(b / a for a, b in zip(plain, dropped, strict=True))
        print(
            f"clip_norm {clip_norm}: {figure(statistics.median(plain))} us, "
            f"with dropout {figure(statistics.median(dropped))} us, ratio {ratio:.3f} "
            f"(of minima {min(dropped) / min(plain):.3f})"
        )


if __name__ == "__main__":
    restart_clean()
    main()
