"""Train many networks of one shape: a population, compared with single runs and other libraries.

``python benchmarks/population.py`` (``--smoke`` takes seconds; ``--members 16``, ``--rounds 7``)
compares a `Population` with one thread and with two, single compiled networks one after the other,
``jax.vmap`` over the looped step, and PyTorch networks one after the other (a few steps on one
batch).  Except in PyTorch, each network reads the rows in its own order.  The runs are timed in
turn; figures are medians: microseconds per step of one network, and the gain by a second thread.
"""

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from against import add_option, compare
from machine import describe, figure, restart_clean, table
from peer_libraries import Steps, Workload, jax_population, torch_steps
from threadpoolctl import threadpool_limits

from mlpengine import Adam, Population, TrainingStep

WORKLOADS = (
    (Workload("tiny", (4, 32, 32, 1), 32, "tanh", "mse"), 2_000),
    (Workload("small", (64, 128, 10), 64), 500),
    (Workload("medium", (784, 256, 128, 10), 128), 20),
)
"""Networks, and the number of steps in one call."""

ONE, TWO = "one thread", "two threads"

TORCH_STEPS = 10
"""Number of steps of each PyTorch network in one call."""

PAUSE = 0.04
"""Seconds before each call, so that waiting threads of the last run go to sleep."""


def steps_of(work: Workload, members: int) -> list[TrainingStep]:
    return [
        TrainingStep(mlp, work.engine_loss(), Adam(mlp, lr=1e-3), work.batch, backend="compiled")
        for mlp in Population(work.mlp(), members)
    ]


def population(work: Workload, orders: np.ndarray, threads: int) -> Steps:
    steps, (x, y) = steps_of(work, len(orders)), work.data()

    pool = ThreadPoolExecutor(threads)

    def run() -> None:
        for _ in pool.map(lambda step, order: step.run_many(x, y, order), steps, orders):
            pass

    return run, orders.shape[1] // work.batch


def single_runs(work: Workload, orders: np.ndarray) -> Steps:
    steps, (x, y) = steps_of(work, len(orders)), work.data()

    def run() -> None:
        for step, order in zip(steps, orders, strict=True):
            step.run_many(x, y, order)

    return run, orders.shape[1] // work.batch


def torch_in_turn(work: Workload, members: int) -> Steps | None:
    made = [torch_steps(work, 1) for _ in range(members)]

    def run() -> None:
        for step in made:
            for _ in range(TORCH_STEPS):
                step[0]()

    return None if None in made else (run, TORCH_STEPS)


def contestants(work: Workload, orders: np.ndarray) -> dict[str, Steps]:
    """Return for each name a function that trains all networks, and its number of steps."""
    runs = {
        ONE: population(work, orders, 1),
        TWO: population(work, orders, 2),
        "single runs": single_runs(work, orders),
        "jax.vmap": jax_population(work, orders),
        "PyTorch": torch_in_turn(work, len(orders)),
    }
    return {name: steps for name, steps in runs.items() if steps is not None}


def measure(work: Workload, orders: np.ndarray, rounds: int) -> dict[str, list[float]]:
    """Return microseconds per step of one network, by name and round."""
    runs = contestants(work, orders)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run, _ in runs.values():
        run()
    for _ in range(rounds):
        for name, (run, steps) in runs.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / steps / len(orders) * 1e6)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two members, one network, one round")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    add_option(parser)
    args = parser.parse_args()
    if args.smoke:
        args.members, args.rounds = 2, 1
    if args.against:
        describe()
        only, seconds = ([WORKLOADS[0][0].name], 0.001) if args.smoke else ([""], 0.05)
        compare("population", args.against, only=only, seconds=seconds, members=args.members)
        return
    rng, lines = np.random.default_rng(0), []
    with threadpool_limits(1, user_api="blas"):
        for work, steps in WORKLOADS[: 1 if args.smoke else None]:
            orders = rng.integers(0, 4 * work.batch, (args.members, steps * work.batch))
            times = measure(work, orders, args.rounds)
            gain = statistics.median(a / b for a, b in zip(times[ONE], times[TWO], strict=True))
            medians = {name: figure(statistics.median(values)) for name, values in times.items()}
            print(f"{work.name}: {medians}, gain by the second thread {gain:.2f}", flush=True)
            lines.append([work.label, *medians.values(), f"{gain:.2f}"])
        describe()
    head = [f"{args.members} members, us a step of each", *medians, "gain by the second thread"]
    print(f"\n{table(head, lines)}")


if __name__ == "__main__":
    restart_clean()
    main()
