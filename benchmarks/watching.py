"""Time PyTorch steps with and without the diagnostics of mlpengine.

    python benchmarks/watching.py [--smoke]

The script prints the ratio of both times for a 784-256-128-10 network: median, minimum and maximum
over nine runs.  Blocks of 50 steps with and without diagnostics alternate.  Most measurements are
made in the first 800 steps.
"""

import argparse
from time import process_time

import numpy as np

from mlpengine.diagnostics import watch

try:
    import torch
    from torch import nn
except ImportError:
    raise SystemExit(print("watching.py: left out, PyTorch is not installed")) from None


def make(watched: bool):
    """Return a function that trains for a number of steps, watched or not."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    optimizer, loss = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    x, y = torch.randn(20, 64, 784), torch.randint(10, (20, 64))
    watcher = watch(model, optimizer) if watched else None

    def train(steps: int) -> float:
        start = process_time()
        for number in range(steps):
            rows, targets = x[number % 20], y[number % 20]
            optimizer.zero_grad()
            value = loss(model(rows), targets)
            value.backward()
            optimizer.step()
            if watcher is not None:
                watcher.step(value, targets=targets)
        return process_time() - start

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few steps")
    steps, blocks, runs = (5, 21, 1) if parser.parse_args().smoke else (50, 40, 9)
    torch.set_num_threads(1)
    times = np.empty((runs, blocks, 2))
    for run in times:
        plain, watched = make(False), make(True)
        plain(steps)
        run[:] = [(watched(steps), plain(steps)) for _ in range(blocks)]
    print(f"time of a step: {1e3 * np.median(times[:, :, 1]) / steps:.2f} ms")
    for name, part in (("first 800 steps", slice(16)), ("steps 1,001 to 2,000", slice(20, None))):
        sums = times[:, part].sum(1)
        ratio = sums[:, 0] / sums[:, 1]
        span = f"{ratio.min():.3f} to {ratio.max():.3f}"
        print(f"watched / plain, {name}: {np.median(ratio):.3f} median, {span}")


if __name__ == "__main__":
    main()
