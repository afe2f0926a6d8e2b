"""Time of a step of PyTorch that is watched, beside one that is not, interleaved in pairs.

    python benchmarks/watching.py [--smoke]

Prints the ratio of blocks of 400 steps at 784-256-128-10: the minimum and the median over the
pairs.  The network is watched from its first step; the blocks at once after it are sampled most.
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
    steps, pairs = (20, 2) if parser.parse_args().smoke else (400, 8)
    torch.set_num_threads(1)
    plain, watched = make(False), make(True)
    plain(20)
    ratios = np.array([watched(steps) / plain(steps) for _ in range(pairs)])
    print(f"time of a step: {1e3 * plain(steps) / steps:.2f} ms")
    for name, part in (("first 800 steps", ratios[:2]), ("later", ratios[2:])):
        if len(part):
            print(f"watched / plain, {name}: {part.min():.3f} min, {np.median(part):.3f} median")


if __name__ == "__main__":
    main()
