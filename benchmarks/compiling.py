"""Measure the time to compile a training step, and compare it with the rule of ``backend: auto``.

``python benchmarks/compiling.py`` compiles the steps of five networks into an empty cache,
``--rounds`` times each.  It prints the smallest processor time of the compiler (two compilers run
at the same time) and the smallest wall time.  ``--smoke`` compiles one step.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from mlpengine import AdamW, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.step.auto_backend import seconds_to_compile

DEPTHS = {"2 layers": 2, "32 layers": 32}
"""Hidden layers of 64 units.  The layers share their code."""


def network(name: str) -> tuple[Mlp, int]:
    """Return the network with this name, and its batch size."""
    if name == "digits":
        return Mlp([64, 256, 128, 10], dropout=0.3), 32
    if name == "medium":
        return Mlp([784, 256, 128, 10]), 128
    if name in DEPTHS:
        return Mlp([20, *[64] * DEPTHS[name], 1]), 32
    return Mlp([10, 256, 256, 256, 1], activation="mish"), 256


def compile_step(name: str) -> None:
    """Compile the step of a network; print processor time of the compiler, and wall time."""
    mlp, batch = network(name)
    loss = MeanSquaredError() if mlp.sizes[-1] == 1 else SoftmaxCrossEntropy()
    optimizer, start = AdamW(mlp, lr=1e-3), time.perf_counter()
    TrainingStep(mlp, loss, optimizer, batch, clip_norm=1.0, backend="compiled")
    passed, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, passed)


def measure(name: str) -> tuple[float, ...]:
    """Return the seconds that a new process with an empty cache prints."""
    with TemporaryDirectory() as cache:
        environment = {**os.environ, "MLPENGINE_CACHE": cache}
        command = [sys.executable, __file__, "--child", name]
        return tuple(
            map(float, subprocess.check_output(command, env=environment, text=True).split())
        )


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        compile_step(args.child)
        return
    for name in ("digits",) if args.smoke else ("digits", "medium", "wide", *DEPTHS):
        runs = [measure(name) for _ in range(1 if args.smoke else args.rounds)]
        used, passed = map(min, zip(*runs, strict=True))
        assumed = seconds_to_compile(network(name)[0])
        print(f"{name:9} {used:.2f} s, assumed {assumed:.2f} s; {passed:.2f} s pass")


if __name__ == "__main__":
    main()
