"""One thousand tiny networks, one for each sensor, each trained to the last digit.

Each sensor bends and shifts the true value in its own way; a network 1-8-1 with tanh learns from 64
readings of that sensor how to correct it.  `LevenbergMarquardt` needs some ten steps on all
readings.  A pool of threads takes one network after the other.

Run ``python examples/many_nets.py``: some seconds.  ``--smoke`` takes 20 networks.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from mlpengine import MeanSquaredError, Mlp, Population, TrainingStep
from mlpengine.core.spec import Array
from mlpengine.optim import LevenbergMarquardt

READINGS, STEPS, SEED = 64, 40, 0


def readings(rng: np.random.Generator, count: int, traits: Array) -> tuple[Array, Array]:
    """Return what sensors read and the true values, both (sensors, count, 1)."""
    true = rng.uniform(-1, 1, (traits.shape[1], count, 1))
    gain, bend, shift = traits[:, :, None, None]
    return gain * true + bend * np.sin(3 * true) + shift, true


def main() -> None:
    """Train a network for each sensor, and print errors before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="20 networks, to see that it runs")
    sensors = 20 if parser.parse_args().smoke else 1000
    rng = np.random.default_rng(SEED)
    traits = rng.uniform([[0.8], [0.0], [-0.2]], [[1.2], [0.15], [0.2]], (3, sensors))
    read, true = readings(rng, READINGS, traits)
    loss = MeanSquaredError()

    def train(network: Mlp, x: Array, y: Array) -> None:
        step = TrainingStep(network, loss, LevenbergMarquardt(network), READINGS)
        for _ in range(STEPS):
            step(x, y)

    start = time.perf_counter()
    networks = Population(Mlp([1, 8, 1], activation="tanh", dtype="float64"), sensors)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(train, networks, read, true))
    seconds = time.perf_counter() - start

    read, true = readings(rng, 200, traits)
    corrected = np.stack([net.predict(rows) for net, rows in zip(networks, read, strict=True)])
    before, after = (np.sqrt(np.mean((x - true) ** 2, axis=(1, 2))) for x in (read, corrected))
    print(f"{sensors} networks of {len(networks[0].params)} parameters in {seconds:.1f} s")
    print(
        f"median error {np.median(before):.4f} -> {np.median(after):.5f}, worst {after.max():.4f}"
    )


if __name__ == "__main__":
    with threadpool_limits(1):  # the pool shares the networks, not the products
        main()
