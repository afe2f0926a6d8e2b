"""Steps of several threads against those of one: the same bits, by every compiler and target.

``python benchmarks/bits.py`` takes each compiler that is installed (GCC tuned for four processors,
Clang, zig) and each target that the processor has.  For three networks whose rows threads divide in
many ways, and 40 random ones, it forces 2 and 4 threads, makes a step of every number of rows from
1 to the batch, and compares loss, gradients and parameters with those of one thread.  That is some
2,500 programs to compile; ``--count`` takes so many random networks, ``--smoke`` the three with 2
threads and every eighth number of rows, by the compiler of the system, also tuned for Zen 3.  The
last column tells which compilers and targets agree with each other.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from mlpengine import Adam, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.backends.compiled import available_targets, emitter

TUNED_FOR = ("native", "haswell", "znver2", "znver3")
"""Processors of x86 for which GCC orders and fuses operations differently."""


class Case(NamedTuple):
    """A network and its batch."""

    sizes: tuple[int, ...]
    batch: int
    activation: str = "relu"
    dtype: str = "float32"
    dropout: float = 0.0

    def step(self, threads: int) -> TrainingStep:
        """Return a compiled step that up to `threads` threads share."""
        mlp = Mlp(
            self.sizes,
            activation=self.activation,
            dropout=self.dropout,
            seed=0,
            dtype=self.dtype,
        )
        loss = SoftmaxCrossEntropy() if self.sizes[-1] > 1 else MeanSquaredError()
        return TrainingStep(mlp, loss, Adam(mlp), self.batch, backend="compiled", threads=threads)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((self.batch, self.sizes[0])).astype(self.dtype)
        if self.sizes[-1] > 1:
            return x, rng.integers(0, self.sizes[-1], self.batch)
        return x, rng.standard_normal((self.batch, 1)).astype(self.dtype)


CASES = [
    Case((200, 200, 24, 2), 128),
    Case((200, 256, 256, 1), 50),
    Case((33, 24, 8, 15, 1), 11, dropout=0.2),
]
"""With GCC tuned for Zen 3 and fused operations left to it, two threads changed the bits of 127 of
127 and 48 of 49 numbers of rows of the first two.  In the third, a thread without rows begins in
the same block of random bytes as the last row."""


def draw(count: int) -> list[Case]:
    """Return random networks; their widths lie around multiples of a vector."""
    rng = np.random.default_rng(1)  # with 0, the first one is among CASES
    widths = [1, 2, 3, 5, 8, 15, 16, 17, 24, 31, 33, 48, 64, 100, 128, 200, 257]
    return [
        Case(
            tuple(int(w) for w in rng.choice(widths, rng.integers(2, 6))),
            int(rng.integers(2, 130)),
            str(rng.choice(["relu", "tanh", "gelu", "silu"])),
            str(rng.choice(["float32", "float32", "float64"])),
            float(rng.choice([0, 0, 0.2])),
        )
        for _ in range(count)
    ]


def compilers() -> dict[str, str]:
    """Return the values of $CC for the installed compilers."""
    commands = {}
    if shutil.which("gcc"):
        tuned = TUNED_FOR if os.uname().machine == "x86_64" else ()
        commands |= {"gcc": "gcc", **{f"gcc for {p}": f"gcc -mtune={p}" for p in tuned}}
    if shutil.which("clang"):
        commands["clang"] = "clang"
    if find_spec("ziglang"):
        commands["zig"] = f"{sys.executable} -m ziglang cc"
    return commands


@contextmanager
def chosen(**variables: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def state(step: TrainingStep) -> bytes:
    """Return the bits that a step left behind."""
    arrays = (np.float64(step.loss_value), step.grads.flat, step.mlp.params.flat)
    return b"".join(a.tobytes() for a in arrays)


def differences(case: Case, threads: Sequence[int], every: int = 1) -> tuple[list[int], int, str]:
    """Return how many batch sizes give other bits for each of `threads` than for one thread.

    The number of compared batch sizes and a digest of the bits follow.
    """
    rows_of_thread, emitter.STEP_TERMS_PER_THREAD = (
        emitter.STEP_TERMS_PER_THREAD,
        1,
    )  # small shapes as well
    try:
        alone, *together = steps = [case.step(number) for number in (1, *threads)]
    finally:
        emitter.STEP_TERMS_PER_THREAD = rows_of_thread
    if not all(step.fused for step in steps):
        raise SystemExit(f"bits: {case} must be one program")
    x, y = case.data()
    wrong, counts = [0] * len(threads), range(case.batch, 0, -every)
    for rows in counts:
        for step, used in zip(steps, (1, *threads), strict=True):
            step.bound(rows).fused.call.threads = used
            step(x[:rows], y[:rows])
        for place, step in enumerate(together):
            wrong[place] += state(alone) != state(step)
            step.optimizer.load_state_dict(alone.optimizer.state_dict())
            step.mlp.params.flat[:] = alone.mlp.params.flat
    return wrong, len(counts), sha256(state(alone)).hexdigest()[:12]


def main() -> int:
    """Print a line for each compiler and target; return 1 if threads changed a bit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="random networks")
    parser.add_argument("--compiler", action="append", help="such as 'gcc for znver3'; all if none")
    parser.add_argument("--target", action="append", help="such as avx2; all, and native, if none")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    cases = CASES if args.smoke else [*CASES, *draw(args.count)]
    threads = (2,) if args.smoke else (2, 4)
    commands, failed = compilers(), 0
    names = args.compiler or [
        n for n in commands if not args.smoke or n in ("gcc", "gcc for znver3")
    ]
    print(f"{'compiler':16} {'target':9} {'threads':>7} {'compared':>8} {'differ':>6}  bits")
    for name in names:
        with chosen(CC=commands[name]):
            levels = [target.level for target in available_targets()]
        for level in args.target or [*levels, "native"]:
            with chosen(CC=commands[name], MLPENGINE_TARGET=level):
                each = [differences(c, threads, 8 if args.smoke else 1) for c in cases]
            compared = sum(e[1] for e in each)
            digest = sha256("".join(e[2] for e in each).encode()).hexdigest()[:8]
            for number, *wrong in zip(threads, *(e[0] for e in each), strict=True):
                text = f"{name:16} {level:9} {number:7} {compared:8,} {sum(wrong):6}  {digest}"
                print(text, flush=True)
                failed += sum(wrong)
    print(f"{failed} differences")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
