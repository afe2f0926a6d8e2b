"""The compiler and the processor that code is generated for."""

import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mlpengine.errors import CompileError

_log = logging.getLogger("mlpengine")

FLAGS = (
    "-O2",
    "-march=native",
    "-std=gnu11",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-pthread",
    "-Werror=implicit-function-declaration",
)
"""Without -ffast-math, which hides NaN and, when linked, changes the mode of the whole process."""

SECONDS = 600.0
"""Time limit of the compiler in seconds: more than a busy machine takes, because a step on NumPy
instead has other bits."""

NOTICE_SECONDS = 10.0
"""Seconds after which a message reports that the compiler is still running."""

VECTORS = ((64, 32), (32, 16), (16, 32), (16, 16))
"""Bytes and number of vector registers of the supported processors."""


MANY_ROWS = 64
FEW_TERMS = 16384
"""Rows, and multiplications for each of them, from which the tiles of a product are as high as the
registers allow.

The products of 784-256-128-10 with a batch of 128 take a tenth less time by it, those of wider
layers too (Xeon with AVX-512, one thread, interleaved, November 2026).  With a batch of 64 its step
takes 2.6% less, and those of four other shapes, with 64 or 96 rows, 4 to 5% less.  Each height is
an instance to compile, which takes 0.1 to 0.5 s more for these five: 64-256-128-10 with a batch of
32, whose weight gradients have 8,192 terms for each row, compiles in 0.83 s with tiles of 8 rows in
place of 0.96 s with 12 and 13, and a step takes as long (the same machine, GCC 12)."""


@dataclass(frozen=True)
class Target:
    """A compiler and the processor that it compiles for.

    Attributes:
        command: the compiler, as arguments.
        version: the first line of its version message.
        cpu: the processor, with its features.
        vector_bytes: size of a vector register: 16, 32 or 64.
        registers: number of vector registers.

    Raises: ValueError for values that no compiler reports, such as those of a damaged file.
    """

    command: tuple[str, ...]
    version: str
    cpu: str
    vector_bytes: int
    registers: int

    def __post_init__(self) -> None:
        texts = (*self.command, self.version, self.cpu)
        sizes = (self.vector_bytes, self.registers)
        if sizes not in VECTORS or {*map(type, sizes)} != {int} or {*map(type, texts)} != {str}:
            raise ValueError(f"target: {self} is of no processor")

    def tile_rows(self, rows: int, terms: int = FEW_TERMS) -> int:
        """Return the rows of a tile, two vectors wide, of a product with so many rows.

        Each row takes `terms` multiplications.

        The tile leaves registers for a row of b and an entry of a.  16 sums hide the latency of any
        multiplier, and low tiles fit more shapes; with vectors of 64 bytes, higher ones read panels
        less often than the second-level cache can deliver them, and one may do for all rows.
        """
        limit = self.highest_tile
        if self.vector_bytes < 64 or (rows > limit and (rows < MANY_ROWS or terms < FEW_TERMS)):
            return min(8, limit)
        tiles = max(1, -(-rows // limit))
        return -(-rows // tiles)  # all tiles have these rows or one less

    @property
    def highest_tile(self) -> int:
        """The rows of a tile that the registers allow."""
        return (self.registers - 4) // 2

    @property
    def reads_columns(self) -> bool:
        """Whether columns of a matrix are read as fast as a panel, unless rows are pages apart.

        So it is on AMD's family 26, Zen 5: without packing, input gradients take 1 to 20% less time
        with batches of 16 to 256, weight gradients 2 to 10% (nine networks of 64 to 2,048 units,
        one thread, November 2026).  Others pack as was measured on a Xeon.
        """
        return "AMD" in self.cpu and "cpu family\t: 26" in self.cpu

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler.

        The programs are written in vectors: GCC's search for more takes a tenth of the time to
        compile, and makes no step faster.  Vectors of 16 bytes need it, because v_sqrt is written
        lane by lane for them.
        """
        return (*FLAGS, "-fno-tree-vectorize") if self.vector_bytes >= 32 else FLAGS

    @property
    def identity(self) -> str:
        """Everything that the machine code depends on, except the source."""
        return "\n".join([*self.command, self.version, self.cpu, *self.flags])


def compiler_command() -> tuple[str, ...] | None:
    """Return the C compiler: $CC, then cc, gcc or clang from PATH, then that of the ziglang wheel.

    None if there is none.
    """
    named = os.environ.get("CC")
    if named:
        try:
            words = tuple(shlex.split(named))
        except ValueError:  # an unclosed quotation
            return None
        return words if words and shutil.which(words[0]) else None
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (path,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def find_target(command: tuple[str, ...]) -> Target:
    """Return the target of the compiler `command`, by running it.

    Raises: CompileError if it cannot be queried.
    """
    about = _ask([*command, "--version"]).splitlines()[0]
    macros = _ask([*command, "-march=native", "-dM", "-E", "-x", "c", os.devnull])
    defined = {line.split()[1] for line in macros.splitlines() if line.startswith("#define")}
    if "__AVX512F__" in defined:
        size, registers = 64, 32
    elif "__AVX2__" in defined and "__FMA__" in defined:
        size, registers = 32, 16
    else:
        size, registers = 16, 32 if "__aarch64__" in defined else 16
    features = sorted(m for m in defined if m.startswith(("__AVX", "__FMA", "__ARM_FEATURE")))
    cpu = " ".join([platform.machine(), cpu_model(), *features])
    return Target(command, about, cpu, size, registers)


def _ask(command: list[str]) -> str:
    try:
        (done,) = run_compilers([command])
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"compiler: {shlex.join(command[:4])} must run ({error})") from error
    if done.returncode or not done.stdout.strip():
        raise CompileError(
            f"compiler: {shlex.join(command[:4])} must run and answer (exit code {done.returncode})"
        )
    return done.stdout


def run_compilers(
    commands: Sequence[list[str]], folder: Path | None = None
) -> "list[subprocess.CompletedProcess[str]]":
    """Run compilers at the same time, in process groups that end with them or with `SECONDS`.

    Raises: OSError or subprocess.SubprocessError if one cannot run or does not end.
    """
    start, noticed, done = time.monotonic(), False, []

    def left(limit: float) -> float:
        return max(0.0, start + limit - time.monotonic())

    with ExitStack() as running:
        processes = [running.enter_context(_running(command, folder)) for command in commands]
        for command, process in zip(commands, processes, strict=True):
            try:
                outputs = process.communicate(timeout=left(SECONDS if noticed else NOTICE_SECONDS))
            except subprocess.TimeoutExpired:
                if noticed:
                    raise
                noticed = True
                _log.warning(
                    "compiler: %s still runs after %g s; it is ended after %g s",
                    shlex.join(command[:1]),
                    NOTICE_SECONDS,
                    SECONDS,
                )
                outputs = process.communicate(timeout=left(SECONDS))
            done.append(subprocess.CompletedProcess(command, process.returncode, *outputs))
    return done


@contextmanager
def _running(command: list[str], folder: Path | None) -> "Iterator[subprocess.Popen[str]]":
    """Start a process; an error ends its group."""
    # Messages are in English; nothing waits for input.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        cwd=folder,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        except BaseException:
            _end_group(process)
            raise


def _end_group(process: "subprocess.Popen[str]") -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def compiler_stamp(command: tuple[str, ...]) -> str:
    """Return a text that changes with compiler and processor, without running the compiler."""
    path = shutil.which(command[0]) or command[0]
    parts = [*command, os.path.realpath(path), platform.machine(), cpu_model()]
    with suppress(OSError):
        file = os.stat(path)
        parts += [str(file.st_size), str(file.st_mtime_ns), str(file.st_ino)]
    if "ziglang" in command:
        from importlib.metadata import PackageNotFoundError, version  # 20 ms that few need

        with suppress(PackageNotFoundError):
            parts.append(version("ziglang"))
    return "\n".join(parts)


def cpu_model() -> str:
    """Return name and features of the processor, as the system reports them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            keep = ("model name", "cpu family", "model\t", "CPU part", "CPU implementer", "flags")
            return " ".join(sorted({ln.strip() for ln in lines if ln.startswith(keep)}))
    except OSError:
        return platform.processor()
