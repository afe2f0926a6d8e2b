"""Training as C for devices, put to the test: random networks, two compilers, sanitizers.

    python benchmarks/device.py            # all of it, some minutes
    python benchmarks/device.py --smoke    # a sample, under 10 seconds

Each of 40 random networks is exported, compiled with GCC and Clang as strict C99 without a warning,
for float and double, with and without the address and undefined-behavior sanitizers, and trained
for 100 steps, which must agree with Python's to 1e-5 and 1e-12.  What did not run is said, loudly.

Debian: apt-get install gcc clang libclang-rt-14-dev
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mlpengine import Adam, Mlp, Sgd, ops
from mlpengine.core.wording import plural
from mlpengine.export._device import DeviceStep
from mlpengine.export._device_test import golden_of
from mlpengine.export.device import device_step, export_training
from mlpengine.nn.layers import ACTIVATIONS

NETS = 40
WARNINGS = ["pedantic", "Wall", "Wextra", "Wconversion", "Wdouble-promotion", "Wshadow", "Werror"]
STRICT = ["-std=c99", *(f"-{name}" for name in WARNINGS)]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
LIBM = ("cos", "erfc", "exp", "expm1", "log", "log1p", "pow", "sin", "sqrt", "tanh")
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


@dataclass
class Report:
    """What failed, and what did not run."""

    failed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def need(self, tool: str, what: str) -> bool:
        """Return whether a tool is installed; note what does not run without it."""
        if shutil.which(tool):
            return True
        self.missing.append(f"{what} (no {tool})")
        return False

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
    """Return a network, the options of its export, and both in words."""
    rng = np.random.default_rng(seed)
    names = [n for n in ACTIVATIONS if n not in ("softmax", "log_softmax")]
    layers = 1 + seed % 5
    sizes = [int(n) for n in rng.integers(1, 13, layers + 1)]
    activations = [names[(5 * seed + i) % len(names)] for i in range(layers - 1)]
    loss, outputs = [
        (ops.MeanSquaredError(), 2),
        (ops.Huber(0.7), 1),
        (ops.SoftmaxCrossEntropy(), 4),
        (ops.BinaryCrossEntropyWithLogits(), 1),
    ][seed % 4]
    sizes[-1] = outputs
    optimizer = [
        partial(Sgd, lr=0.01),
        partial(Sgd, lr=0.005, momentum=0.9),
        partial(Adam, lr=0.002, weight_decay=float(rng.choice([0.0, 0.1]))),
    ][seed % 3]
    freeze = [i for i in range(layers) if rng.random() < 0.3]
    options = {
        "loss": loss,
        "optimizer": optimizer,
        "clip_norm": float(rng.uniform(0.3, 2)) if seed % 2 else None,
        "batch_size": int(rng.choice([1, 1, 3, 8])),
        "freeze": freeze if len(freeze) < layers else freeze[1:],
        "libm": bool(seed % 7 % 2 == 0),
    }
    text = (
        f"{'-'.join(map(str, sizes))} {','.join(activations) or 'linear'}, {loss.name}, "
        f"{optimizer.func.__name__}{' momentum' if 'momentum' in optimizer.keywords else ''}, "
        f"batch {options['batch_size']}, clip {options['clip_norm'] is not None}, "
        f"freeze {options['freeze']}, {'libm' if options['libm'] else 'own functions'}"
    )
    return Mlp(sizes, activation=activations, seed=seed), options, text


def export_net(mlp: Mlp, options: dict[str, object], folder: Path) -> DeviceStep:
    export_training(mlp, folder / "net.c", **options)  # type: ignore[arg-type]
    return device_step(mlp, name="net", real="float", **options)  # type: ignore[arg-type]


def printed(folder: Path, compiler: str) -> np.ndarray:
    """Return every number that the self-test compares, as the compiled file computes it."""
    text = (folder / "net_test.c").read_text()
    start, end = text.index("static int differs("), text.index("/* Damaged copies")
    prints = (
        "static int differs(const char *what, size_t place, NET_REAL is, double e, double s)\n"
        '{ (void)what, (void)place, (void)e, (void)s; printf("%.17g\\n", (double)is); return 0; }\n'
    )
    (folder / "print.c").write_text(text[:start] + prints + text[end:])
    built = command([compiler, "-std=c99", "-O2", "net.c", "print.c", "-o", "print", "-lm"], folder)
    lines = command(["./print"], folder).stdout.splitlines()[:-1]
    return np.array([float(line) for line in lines]) if not built.returncode else np.empty(0)


def difference(step: DeviceStep, folder: Path, compiler: str) -> float:
    """Return the largest difference from Python's float32 steps, relative as in the self-test."""
    _, golden = golden_of(step, "float32")
    ours = printed(folder, compiler)
    parts = [golden.losses, golden.params, golden.outputs]
    scales = [np.sqrt(np.mean(p**2)) for p in parts[:2]] + [golden.output_scale]
    expected = np.concatenate(parts)
    size = np.maximum(np.abs(expected), np.repeat(scales, [len(p) for p in parts]))
    return float((np.abs(ours - expected) / size).max()) if len(ours) == len(size) else np.inf


def try_net(seed: int, compilers: Sequence[str], report: Report, *, sanitize: bool) -> float:
    """Export, compile and run one network in every way; return its difference from float32."""
    mlp, options, text = random_net(seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        step = export_net(mlp, options, folder)
        for compiler in compilers:
            for real in ("float", "double"):
                sanitized = sanitize and compiler == compilers[seed % len(compilers)]
                for flags in ([], SANITIZED) if sanitized else ([],):
                    words = [compiler, *STRICT, f"-DNET_REAL={real}", "-O1", *flags]
                    done = command([*words, "net.c", "net_test.c", "-o", "test", "-lm"], folder)
                    where = f"net {seed} ({text}), {compiler} {real} {'sanitized' * bool(flags)}"
                    clean = not (done.returncode or done.stderr)
                    if report.check(clean, where + done.stderr[:500]):
                        ran = command(["./test"], folder)
                        report.check(ran.returncode == 0, f"{where}: {ran.stdout}{ran.stderr}")
        largest = difference(step, folder, compilers[0])
        report.check(largest < TOLERANCE["float32"], f"net {seed} ({text}): differs by {largest:g}")
    return largest


def try_corruption(report: Report, compiler: str) -> None:
    """Flip 1,000 bits of a saved state, and truncate it 1,000 times."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        mlp = Mlp([4, 8, 2], activation="tanh", seed=0)
        export_net(mlp, {**random_net(0)[1], "optimizer": Adam, "freeze": []}, folder)
        words = [compiler, *STRICT, "-O1", *SANITIZED, "-DFLIPS=1000"]
        done = command([*words, "net.c", "net_test.c", "-o", "test", "-lm"], folder)
        ran = command(["./test"], folder) if not done.returncode else done
        if report.check(ran.returncode == 0, f"damaged states: {ran.stdout}{ran.stderr}"):
            print("1,000 flipped bits and 1,000 truncations of a saved state were refused")


def try_symbols(report: Report, compiler: str, seeds: Sequence[int]) -> None:
    """List what the object files need from elsewhere, with libm and without."""
    for libm in (True, False):
        names: set[str] = set()
        for seed in seeds:
            with TemporaryDirectory() as name:
                mlp, options, _ = random_net(seed)
                export_net(mlp, {**options, "libm": libm}, Path(name))
                command([compiler, "-std=c99", "-Os", "-c", "net.c"], Path(name))
                listed = command(["nm", "-u", "net.o"], Path(name)).stdout
                names |= {line.split()[-1] for line in listed.splitlines()}
        allowed = {"memcpy", "memset", "memcmp", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
        if libm:
            allowed |= {f"{name}{suffix}" for name in LIBM for suffix in ("f", "")}
        report.check(names <= allowed, f"symbols: {names - allowed}")
        print(f"undefined symbols {'with' if libm else 'without'} libm: {', '.join(sorted(names))}")


def try_example(report: Report) -> None:
    """Make and run the example: the controller that learns must beat the one that does not."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "device"
        shutil.copytree(Path(__file__).parents[1] / "examples" / "device", folder)
        program = Path(sys.executable).with_name("mlpengine")
        tools = [f"MLPENGINE={program}", f"PYTHON={sys.executable}"]
        for target in ("run", "test"):
            ran = command(["make", "-s", target, *tools], folder)
            report.check(ran.returncode == 0, f"examples/device, make {target}: {ran.stderr}")
        print("examples/device: the controller learns, and its self-test agrees")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    report = Report()
    compilers = [c for c in ("gcc", "clang") if report.need(c, f"everything with {c}")]
    seeds = [1] if args.smoke else range(NETS)
    largest = []
    for seed in seeds:
        largest.append(try_net(seed, compilers, report, sanitize=not args.smoke))
        print(f"{seed:>3} {largest[-1]:.1e}  {random_net(seed)[2]}")
    difference = f"largest difference from Python's float32: {max(largest):.2g}"
    print(f"{plural(len(seeds), 'network')}; {difference}")
    if compilers:
        try_corruption(report, compilers[0])
        try_symbols(report, compilers[0], seeds[:8])
    if not args.smoke and report.need("make", "examples/device"):
        try_example(report)
    for what in report.missing:
        print(f"\nDID NOT RUN: {what}; see the top of {Path(__file__).name} for what to install")
    if report.failed:
        sys.exit(f"{len(report.failed)} failures")


if __name__ == "__main__":
    main()
