"""Training as C for devices, put to the test: random networks, two compilers, two processors.

    python benchmarks/device.py            # all of it, some minutes
    python benchmarks/device.py --smoke    # a sample, under 10 seconds

Each of 40 random networks is exported, compiled with GCC and Clang as strict C99 without a warning,
for float and double, with and without the address and undefined-behavior sanitizers, and trained
for 100 steps, which must agree with Python's to 1e-5 and 1e-12.  The same files are then compiled
for a Cortex-M4F and a Cortex-M0 and run in QEMU, where a network that trains is compared with one
that only predicts.  What did not run is said, loudly.

Debian: apt-get install gcc clang libclang-rt-14-dev gcc-arm-none-eabi libnewlib-arm-none-eabi
    qemu-system-arm
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from cortex import SCRIPT, START

from mlpengine import Adam, Mlp, Sgd, ops
from mlpengine.core.wording import plural
from mlpengine.export._device import DeviceStep
from mlpengine.export._device_test import golden_of
from mlpengine.export.device import device_step, export_training
from mlpengine.export.network_c import export_c
from mlpengine.nn.layers import ACTIVATIONS

NETS = 40
WARNINGS = ["pedantic", "Wall", "Wextra", "Wconversion", "Wdouble-promotion", "Wshadow", "Werror"]
STRICT = ["-std=c99", *(f"-{name}" for name in WARNINGS)]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1"]
LIBM = ("cos", "erfc", "exp", "expm1", "log", "log1p", "pow", "sin", "sqrt", "tanh")
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}

COUNT = """\
#include <stdint.h>
#include <stdio.h>
#ifdef PREDICTS_ONLY
void net(const float *input, float *output);
#define NET_INPUTS 64
static float x[64], out[64];
#define INIT
#define TRAIN
#define PREDICT net(x, out)
#else
#include "net.h"
static net_state state;
static float x[NET_BATCH * NET_INPUTS], y[NET_BATCH * NET_TARGETS], out[NET_OUTPUTS];
#define INIT net_init(&state)
#define TRAIN net_train(&state, x, y)
#define PREDICT net_predict(&state, x, out)
#endif
#define TICKS (*(volatile uint32_t *)0xe000e018)
static uint32_t since(uint32_t before) { return (before - TICKS) & 0xffffff; }
/* Calls a function on a painted stack; returns the bytes that it used. */
__attribute__((noinline)) static uint32_t stack_of(int trains)
{
  volatile uint8_t *const top = (uint8_t *)__builtin_frame_address(0) - 64;
  volatile uint8_t *p = top - 4096;
  for (int i = 0; i < 4096; i++) p[i] = 0xa5;
  if (trains) TRAIN;
  else PREDICT;
  while (*p == 0xa5) p++;
  return (uint32_t)(top - p);
}
int main(void)
{
  *(volatile uint32_t *)0xe000e014 = 0xffffff;
  TICKS = 0;
  *(volatile uint32_t *)0xe000e010 = 5;
  for (int i = 0; i < NET_INPUTS; i++) x[i] = (float)(i % 7) / 4 - 0.6f;
  INIT;
  TRAIN;
  uint32_t before = TICKS;
  for (int i = 0; i < 50; i++) TRAIN;
  const uint32_t train = since(before);
  before = TICKS;
  for (int i = 0; i < 50; i++) PREDICT;
  const uint32_t predict = since(before);
  printf("%lu %lu %lu %lu\\n", (unsigned long)train, (unsigned long)predict,
         (unsigned long)stack_of(1), (unsigned long)stack_of(0));
  return 0;
}
"""
"""Prints ticks of 50 steps and of 50 predictions, and the bytes of stack of one of each."""


@dataclass(frozen=True)
class Board:
    """A processor and the machine of QEMU that has it; a tick of its clock in instructions."""

    name: str
    flags: tuple[str, ...]
    machine: str
    flash: int
    ram: int
    tick: float


BOARDS = (
    Board(
        "Cortex-M4F",
        ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
        "mps2-an386",
        4096,
        4096,
        40.0,
    ),
    Board("Cortex-M0", ("-mcpu=cortex-m0", "-mthumb"), "microbit", 256, 16, 62.5),
)


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


# ---------------------------------------------------------------- processors
def board_net(sizes: Sequence[int], folder: Path, **options: object) -> DeviceStep:
    mlp = Mlp(sizes, activation="tanh", seed=0)
    given = {"loss": ops.MeanSquaredError(), "optimizer": partial(Sgd, lr=0.01), **STEP, **options}
    return export_net(mlp, given, folder)


STEP: dict[str, object] = {"clip_norm": None, "batch_size": 1, "freeze": [], "libm": True}


def build(
    board: Board, folder: Path, *files: str, flags: Sequence[str] = ("-Os",)
) -> subprocess.CompletedProcess[str]:
    """Compile and link a program for a board, ``program.elf``."""
    (folder / "start.c").write_text(START)
    (folder / "board.ld").write_text(SCRIPT.format(flash=board.flash, ram=board.ram))
    words = ["arm-none-eabi-gcc", *board.flags, "-std=c99", *flags, "-ffunction-sections"]
    words += ["--specs=rdimon.specs", "-nostartfiles", "-Wl,--gc-sections", "-Tboard.ld"]
    return command([*words, "start.c", *files, "-o", "program.elf", "-lm"], folder)


def emulate(board: Board, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run ``program.elf`` in QEMU, with its exit code."""
    machine = ["qemu-system-arm", "-M", board.machine, "-display", "none", "-serial", "none"]
    semihosting = ["-monitor", "none", "-semihosting-config", "enable=on,target=native"]
    return command([*machine, *semihosting, *more, "-kernel", "program.elf"], folder)


def object_size(board: Board, folder: Path, *flags: str) -> int:
    """Return the bytes of flash of ``net.o``, code and constants."""
    words = ["arm-none-eabi-gcc", *board.flags, "-std=c99", "-Os", *flags, "-c", "net.c"]
    command(words, folder)
    shown = command(["arm-none-eabi-size", "net.o"], folder).stdout.splitlines()[1].split()
    return int(shown[0]) + int(shown[1])


def declared(folder: Path, name: str, board: Board) -> int:
    """Return a size that the header declares, as the compiler for a board sees it."""
    (folder / "size.c").write_text(f'#include "net.h"\nint at = {name};\n')
    words = ["arm-none-eabi-gcc", *board.flags, "-std=c99", "-Os", "-S", "-o", "-", "size.c"]
    listed = re.search(r"\.word\s+(\d+)", command(words, folder).stdout)
    return int(listed[1]) if listed else 0


def try_boards(report: Report, sizes: Sequence[Sequence[int]]) -> None:
    """Run the self-test on every board, and count instructions and bytes."""
    tools = "arm-none-eabi-gcc", "qemu-system-arm"
    if sum(report.need(tool, "Cortex-M4F and Cortex-M0") for tool in tools) < len(tools):
        return
    print(
        f"\n{'processor':<11} {'network':<10} {'flash':>6} {'said':>6} {'RAM':>6} {'stack':>6} "
        f"{'said':>6} {'train':>8} {'predict':>8}  instructions"
    )
    for board in BOARDS:
        for shape in sizes:
            try_board(report, board, shape)


def try_board(report: Report, board: Board, shape: Sequence[int]) -> None:
    name = "-".join(map(str, shape))
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        board_net(shape, folder)
        where = f"{board.name} {name}"
        built = build(board, folder, "net.c", "net_test.c")
        if not report.check(built.returncode == 0, f"{where}: {built.stderr[:800]}"):
            return
        ran = emulate(board, folder)
        report.check(ran.returncode == 0, f"{where}: {ran.stdout}{ran.stderr}")
        train, predict, stack, _ = counted(report, board, folder, where)
        said_stack = declared(folder, "NET_SCRATCH_BYTES", board)
        report.check(stack <= said_stack + 512, f"{where}: stack of {stack}")
        flash = object_size(board, folder)
        said = declared(folder, "NET_FLASH_BYTES", board)
        report.check(abs(flash - said) <= 0.05 * flash, f"{where}: flash {flash}, said {said}")
        ram = declared(folder, "(int)sizeof(net_state)", board)
        report.check(ram == declared(folder, "NET_STATE_BYTES", board), f"{where}: RAM {ram}")
        print(
            f"{board.name:<11} {name:<10} {flash:>6} {said:>6} {ram:>6} {stack:>6} "
            f"{said_stack:>6} {train:>8.0f} {predict:>8.0f}"
        )


def counted(
    report: Report, board: Board, folder: Path, where: str, *flags: str
) -> tuple[float, float, int, int]:
    """Return the instructions of a step and of a prediction, and the bytes of stack of both."""
    (folder / "count.c").write_text(COUNT)
    built = build(board, folder, "net.c", "count.c", flags=flags or ("-Os",))
    report.check(built.returncode == 0, f"{where}: {built.stderr[:800]}")
    numbers = emulate(board, folder, "-icount", "shift=0").stdout.split()
    if not report.check(len(numbers) == 4, f"{where}: counting printed {numbers}"):
        return 0, 0, 0, 0
    train, predict = (int(n) * board.tick / 50 for n in numbers[:2])
    return train, predict, int(numbers[2]), int(numbers[3])


def compare(report: Report) -> None:
    """Print what training costs beside predicting alone, with Adam on the first board."""
    if shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None:
        return  # `try_boards` has said so
    board, shape = BOARDS[0], [4, 32, 32, 2]
    print(f"\n{'-'.join(map(str, shape))} on a {board.name}, flash without the weights")
    print(f"{'':<16} {'flash':>6} {'RAM':>6} {'stack':>6} {'train':>8} {'-O3':>8} {'predict':>8}")
    fast = "-O3", "-ffast-math"
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        step = board_net(shape, folder, optimizer=partial(Adam, lr=0.001))
        weights = 4 * len(step.mlp.params)
        train, predict, stack, _ = counted(report, board, folder, "Adam")
        faster, *_ = counted(report, board, folder, "Adam, -O3", *fast)
        flash = object_size(board, folder) - weights
        ram = declared(folder, "(int)sizeof(net_state)", board)
        row = f"{flash:>6} {ram:>6} {stack:>6} {train:>8.0f} {faster:>8.0f} {predict:>8.0f}"
        print(f"{'trains, Adam':<16} {row}")
        (folder / "net.c").write_text(export_c(step.mlp, name="net"))
        _, predict, _, stack = counted(report, board, folder, "c", "-Os", "-DPREDICTS_ONLY")
        flash = object_size(board, folder) - weights
        print(f"{'only predicts':<16} {flash:>6} {0:>6} {stack:>6} {'':>8} {'':>8} {predict:>8.0f}")


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
    try_boards(report, [[2, 16, 1]] if args.smoke else [[2, 16, 1], [4, 32, 32, 2]])
    if not args.smoke:
        compare(report)
        if report.need("make", "examples/device"):
            try_example(report)
    for what in report.missing:
        print(f"\nDID NOT RUN: {what}; see the top of {Path(__file__).name} for what to install")
    if report.failed:
        sys.exit(f"{len(report.failed)} failures")


if __name__ == "__main__":
    main()
