"""A simulator replaced by a network: the error, and how much faster the network answers.

The simulator integrates the swing of a double pendulum over a quarter of a second; the network
4-40-40-4 with tanh learns from 2,000 random starts what the simulator returns.  L-BFGS sees all
of them in each step, in float64, because such data have no noise.

Run ``python examples/surrogate.py``: under a minute.  ``--smoke`` takes 200 starts and few steps.
"""

import argparse
import time
from math import cos, sin

import numpy as np

from mlpengine import MeanSquaredError, Mlp, TrainingStep
from mlpengine.core.spec import Array
from mlpengine.optim import Lbfgs

GRAVITY, SECONDS, STEP, SEED = 9.81, 0.25, 0.001, 0
LIMITS = np.array([1.5, 1.5, 2.0, 2.0])
"""Largest angles (radians) and speeds (radians per second) at the start."""


def accelerations(a: float, b: float, u: float, v: float) -> tuple[float, float]:
    """Return angular accelerations of two equal masses on rods of 1 m."""
    d, s = cos(a - b), sin(a - b)
    first = -v * v * s - 2 * GRAVITY * sin(a)
    second = u * u * s - GRAVITY * sin(b)
    size = 2 - d * d
    return (first - d * second) / size, (2 * second - d * first) / size


def simulate(a: float, b: float, u: float, v: float) -> tuple[float, float, float, float]:
    """Return angles and speeds after `SECONDS`, by symplectic Euler steps."""
    for _ in range(round(SECONDS / STEP)):
        du, dv = accelerations(a, b, u, v)
        u, v = u + STEP * du, v + STEP * dv
        a, b = a + STEP * u, b + STEP * v
    return a, b, u, v


def starts(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Return random starts and what the simulator makes of them, both (count, 4)."""
    x = rng.uniform(-LIMITS, LIMITS, (count, 4))
    return x, np.array([simulate(*row) for row in x.tolist()])


def main() -> None:
    """Train, and print errors relative to the deviation of the outputs, and times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    count, steps = (200, 30) if parser.parse_args().smoke else (2000, 6000)
    rng = np.random.default_rng(SEED)
    x, y = starts(rng, count)
    mean, deviation = y.mean(axis=0), y.std(axis=0)
    network = Mlp([4, 40, 40, 4], activation="tanh", seed=SEED, dtype="float64")
    step = TrainingStep(network, MeanSquaredError(), Lbfgs(network), count)
    start = time.perf_counter()
    for _ in range(steps):
        step(x / LIMITS, (y - mean) / deviation)
    trained = time.perf_counter() - start

    start = time.perf_counter()
    x, y = starts(rng, 200)
    simulated = (time.perf_counter() - start) / len(x)
    error = network.predict(x / LIMITS) - (y - mean) / deviation
    many = rng.uniform(-1, 1, (100_000, 4))
    network.predict(many[:1])
    start = time.perf_counter()
    network.predict(many)
    answered = (time.perf_counter() - start) / len(many)
    print(f"trained on {count} runs in {trained:.1f} s")
    print(f"error {np.sqrt(np.mean(error**2)):.5f} of the deviation, worst {abs(error).max():.4f}")
    print(f"simulator {simulated * 1e6:.0f} us a run, network {answered * 1e6:.2f} us: ", end="")
    print(f"{simulated / answered:.0f} times as fast")


if __name__ == "__main__":
    main()
