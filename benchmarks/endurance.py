"""Ten million steps of a small network: no growth of the process, no drift between backends.

``python benchmarks/endurance.py`` (``--steps 10000000``, the default; ``--smoke`` for a second).
A compiled 4-32-32-1 network learns from noisy rows in ten blocks.  After each block the process is
measured, and NumPy takes over weights and optimizer: both then make the same
`PROBE` steps, and the largest difference of a weight is compared with the way that the weights
went.  Fails if memory grows after the first block, or if that ratio exceeds `ROUNDING`.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from machine import describe, restart_clean

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep

BLOCKS, BATCH, ROWS, PROBE, CALL = 10, 32, 1024, 50, 1000
GROWTH, ROUNDING = 1 << 20, 1e-3


def make(backend: str) -> TrainingStep:
    mlp = Mlp([4, 32, 32, 1], activation="tanh", seed=0)
    return TrainingStep(mlp, MeanSquaredError(), Adam(mlp, lr=1e-3), BATCH, backend=backend)


def resident_bytes() -> int:
    """Return the memory that the process occupies; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def probe(compiled: TrainingStep, plain: TrainingStep, x: np.ndarray, y: np.ndarray) -> float:
    """Make `PROBE` steps on both from the state of `compiled`; return the relative difference.

    The difference of the weights is divided by the distance that the steps moved them.
    """
    plain.mlp.load_state_dict(compiled.mlp.state_dict())
    plain.optimizer.load_state_dict(compiled.optimizer.state_dict())
    before = plain.mlp.params.flat.copy()
    order = np.arange(PROBE * BATCH) % ROWS
    for step in (compiled, plain):
        step.run_many(x, y, order)
    way = np.abs(plain.mlp.params.flat - before).max()
    return float(np.abs(plain.mlp.params.flat - compiled.mlp.params.flat).max() / way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a thousandth of the steps")
    parser.add_argument("--steps", type=int, default=10_000_000)
    args = parser.parse_args()
    describe()
    steps = 10_000 if args.smoke else args.steps
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 4)).astype("f4")
    y = np.sin(x.sum(axis=1, keepdims=True)) + rng.normal(0, 0.1, (ROWS, 1)).astype("f4")
    compiled, plain = make("compiled"), make("numpy")
    order = rng.integers(0, ROWS, CALL * BATCH)
    probe(compiled, plain, x, y)  # everything that either ever allocates
    first, worst = 0, 0.0
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(max(1, steps // BLOCKS // CALL)):
            losses, _ = compiled.run_many(x, y, order)
        spent = time.perf_counter() - start
        resident, apart = resident_bytes(), probe(compiled, plain, x, y)
        first, worst = first or resident, max(worst, apart)
        rate = spent / max(1, steps // BLOCKS // CALL) / CALL * 1e6
        print(
            f"{compiled.optimizer.steps:10,} steps   {rate:5.2f} us a step   "
            f"loss {losses.mean():.4f}   {resident / 2**20:7.2f} MiB   "
            f"backends apart {apart:.1e} of the way",
            flush=True,
        )
    grown = resident - first
    print(f"{compiled.backend}: grown by {grown / 1024:.0f} KiB, apart by at most {worst:.1e}")
    sys.exit(1 if grown > GROWTH or worst > ROUNDING else 0)


if __name__ == "__main__":
    restart_clean()
    main()
