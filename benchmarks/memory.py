"""What a training step holds and what it allocates: planned bytes, and traced memory per step.

``python benchmarks/memory.py`` (``--smoke`` for the two small workloads).  "Planned" is known
before anything is allocated; "traced" is the peak of Python's tracemalloc during an epoch after the
first: gather, forward, loss, backward, clip, optimizer, last short batch included.
"""

import argparse
import tracemalloc

import numpy as np
from step import WORKLOADS, Workload

from mlpengine import Adam, MeanSquaredError, SoftmaxCrossEntropy, TrainingStep


def traced_peak(work: Workload, rows: int) -> tuple[int, int]:
    """Return planned bytes at `rows` rows a batch, and the traced peak of an epoch of steps."""
    mlp = work.mlp()
    loss = MeanSquaredError() if work.loss == "mse" else SoftmaxCrossEntropy()
    step = TrainingStep(mlp, loss, Adam(mlp), rows, clip_norm=1.0, backend="numpy")
    rng = np.random.default_rng(0)
    n = 2 * rows + rows // 3  # the last batch is short
    x = rng.standard_normal((n, work.sizes[0])).astype("f4")
    y = rng.integers(0, work.sizes[-1], n)
    if work.loss == "mse":
        y = rng.standard_normal((n, work.sizes[-1])).astype("f4")
    order = rng.permutation(n)

    def epoch() -> None:
        for start in range(0, n, rows):
            index = order[start : start + rows]
            bound = step.bound(len(index))
            x.take(index, 0, bound.scratch.input, "clip")
            y.take(index, 0, bound.loss.target, "clip")
            step.run(bound)

    epoch()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    epoch()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    planned = step.scratch.planned_bytes + step.grads.planned_bytes
    return planned, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    print(
        "workload".ljust(10),
        " batch",
        "parameters".rjust(12),
        "planned bytes".rjust(14),
        "traced peak",
    )
    for work in WORKLOADS[:2] if args.smoke else WORKLOADS:
        for rows in (work.batch, 16 * work.batch):
            planned, peak = traced_peak(work, rows)
            count = len(work.mlp().params)
            print(f"{work.name:<10} {rows:>6} {count:>12,} {planned:>14,} {peak:>12,}")


if __name__ == "__main__":
    main()
