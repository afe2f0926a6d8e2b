"""Test exported C that trains: random networks, two compilers, sanitizers.

    python benchmarks/device.py                 # all networks, some minutes
    python benchmarks/device.py --smoke         # a sample, under 10 seconds
    python benchmarks/device.py --bounds 250    # differences from Python of 250 networks

Each of 40 random networks is exported for float and double.  GCC and Clang compile the files as
strict C99 without a warning, with and without the address and undefined-behavior sanitizers.  Each
program must pass its self-test.  ``--bounds`` prints how far C is from Python; the bounds of the
self-test were chosen from these differences.  The script lists everything that it could not run.

Debian: apt-get install gcc clang libclang-rt-14-dev
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mlpengine import Mlp, ops
from mlpengine.export.c_train import export_training
from mlpengine.nn.layers import ACTIVATIONS
from mlpengine.optim import OPTIMIZERS, FullBatch

NETS = 40
WARNINGS = ["pedantic", "Wall", "Wextra", "Wconversion", "Wdouble-promotion", "Wshadow", "Werror"]
STRICT = ["-std=c99", *(f"-{name}" for name in WARNINGS)]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
LOSSES = [
    (ops.MeanSquaredError(), 2),
    (ops.Huber(0.7), 1),
    (ops.SoftmaxCrossEntropy(), 4),
    (ops.BinaryCrossEntropyWithLogits(), 1),
    (ops.MeanAbsoluteError(), 1),
    (ops.LogCosh(), 2),
    (ops.GaussianNll(), 4),
    (ops.Poisson(), 1),
    (ops.Quantile((0.1, 0.9)), 2),
]
"""Losses, each with the number of outputs of its networks."""


@dataclass
class Report:
    """The checks that failed."""

    failed: list[str] = field(default_factory=list)

    def check(self, right: bool, what: str) -> bool:
        """Note a failure."""
        if not right:
            self.failed.append(what)
            print(f"FAILED: {what}")
        return right


def command(words: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(w) for w in words], cwd=folder, capture_output=True, text=True, timeout=300
    )


# ---------------------------------------------------------------- random networks
def random_net(seed: int) -> tuple[Mlp, dict[str, object], str]:
    """Return a network, the options of its export, and a description of both."""
    rng = np.random.default_rng(seed)
    names = [n for n in ACTIVATIONS if n not in ("softmax", "log_softmax")]
    layers = int(rng.integers(1, 5))
    sizes = [int(n) for n in rng.choice([1, 2, 3, 5, 8, 12, 16, 32], layers + 1)]
    activations = [str(rng.choice(names)) for _ in range(layers - 1)]
    loss, sizes[-1] = LOSSES[rng.integers(len(LOSSES))]
    by_rows = [name for name, kind in OPTIMIZERS.items() if not issubclass(kind, FullBatch)]
    name = str(rng.choice([*by_rows, "adam", "adam", "adam"]))
    optimizer = partial(OPTIMIZERS[name], lr=float(rng.choice([1e-3, 3e-3, 1e-2])))
    if name == "sgd" and rng.random() < 0.5:
        optimizer = partial(optimizer, momentum=0.9)
    freeze = [i for i in range(layers) if rng.random() < 0.2]
    options = {
        "loss": loss,
        "optimizer": optimizer,
        "clip_norm": float(rng.uniform(0.3, 2)) if rng.random() < 0.4 else None,
        "freeze": freeze if len(freeze) < layers else freeze[1:],
    }
    text = (
        f"{'-'.join(map(str, sizes))} {','.join(activations) or 'linear'}, {loss.name}, "
        f"{name} {optimizer.keywords}, "
        f"clip {options['clip_norm'] is not None}, freeze {options['freeze']}"
    )
    return Mlp(sizes, activation=activations, seed=seed), options, text


def export_net(mlp: Mlp, options: dict[str, object], folder: Path) -> None:
    export_training(mlp, folder / "net.c", **options)  # type: ignore[arg-type]


def self_test(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile and run a self-test."""
    done = command([*words, "net.c", "net_test.c", "-o", "test", "-lm"], folder)
    return done if done.returncode or done.stderr else command(["./test"], folder)


def try_bounds(count: int, report: Report) -> None:
    """Print how far random networks are from Python, in float."""
    apart = []
    for seed in range(count):
        mlp, options, text = random_net(seed)
        with TemporaryDirectory() as name:
            export_net(mlp, options, Path(name))
            ran = self_test(["gcc", "-std=c99", "-O1"], Path(name))
        if report.check(ran.returncode == 0, f"net {seed} ({text}): {ran.stdout}{ran.stderr}"):
            apart.append([float(number) for number in re.findall(r"to ([\d.e+-]+\d)", ran.stdout)])
    for share in (50, 90, 99, 100):
        two, losses = np.percentile(apart, share, axis=0)
        print(f"{share:>3} % of {len(apart)}: two steps {two:.1e}, losses {losses:.1e}")


def try_net(seed: int, compilers: Sequence[str], report: Report, *, sanitize: bool) -> None:
    """Export, compile and run one network in every way."""
    mlp, options, text = random_net(seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        export_net(mlp, options, folder)
        for compiler in compilers:
            for real in ("float", "double"):
                sanitized = sanitize and compiler == compilers[seed % len(compilers)]
                for flags in ([], SANITIZED) if sanitized else ([],):
                    ran = self_test(
                        [compiler, *STRICT, f"-DNET_REAL={real}", "-O1", *flags], folder
                    )
                    where = f"net {seed} ({text}), {compiler} {real} {'sanitized' * bool(flags)}"
                    agrees = report.check(ran.returncode == 0, f"{where}: {ran.stdout}{ran.stderr}")
                    if agrees and (compiler, real, flags) == (compilers[0], "float", []):
                        print(f"{seed:>3} {ran.stdout.strip()}: {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--bounds", type=int, metavar="NETS")
    args = parser.parse_args()
    report = Report()
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    if args.bounds:
        try_bounds(args.bounds, report)
        sys.exit(f"{len(report.failed)} failures" if report.failed else 0)
    seeds = [1] if args.smoke else range(NETS)
    for seed in seeds:
        try_net(seed, compilers, report, sanitize=not args.smoke)
    for compiler in {"gcc", "clang"} - {*compilers}:
        print(f"\nDID NOT RUN: everything with {compiler}, which is not installed")
    if report.failed:
        sys.exit(f"{len(report.failed)} failures")


if __name__ == "__main__":
    main()
