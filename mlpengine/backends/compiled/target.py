"""The C compiler, and the processor for which it generates code."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mlpengine.core import system
from mlpengine.core.errors import CompileError, UsageError

FLAGS = (
    "-O2",
    "-g0",  # with debug information, zig would write the path of the build into the library
    "-std=gnu11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-pthread",
    "-Werror=implicit-function-declaration",
)
"""Flags of all compilers.

-ffast-math is missing, because it hides NaN, and a library linked with it changes the
floating-point mode of the whole process.  -ffp-contract=off keeps the compiler from fusing
multiplications and additions: it would fuse in some places only, so that results would depend on
the number of threads.  `multiply_add` of prelude.h fuses explicitly.
"""

SECONDS = 600.0
"""Time limit of the compiler in seconds, long enough for a busy machine.

After this time, NumPy runs the steps.  Its results differ in the last bits."""


class Level(NamedTuple):
    """A level of an architecture, such as AVX2: the instructions that a processor must have.

    Attributes:
        vector_bytes: size of a vector register.
        registers: number of vector registers.
        macros: macros that compilers define for this level.
        flags: the compiler flag for this level, as different compilers spell it.
    """

    vector_bytes: int
    registers: int
    macros: frozenset[str]
    flags: tuple[str, ...]


def _level(vector_bytes: int, registers: int, macros: str, *flags: str) -> Level:
    return Level(vector_bytes, registers, frozenset(macros.split()), flags)


TARGET_LEVELS = {
    "x86_64": {
        "avx512": _level(
            64,
            32,
            "__AVX512F__ __AVX512BW__ __AVX512CD__ __AVX512DQ__ __AVX512VL__ __AVX2__ __FMA__",
            "-march=x86-64-v4",
            "-march=x86_64_v4",
        ),
        "avx2": _level(32, 16, "__AVX2__ __FMA__", "-march=x86-64-v3", "-march=x86_64_v3"),
        "baseline": _level(16, 16, "__SSE2__", "-march=x86-64", "-march=x86_64"),
    },
    "aarch64": {"baseline": _level(16, 32, "__ARM_FEATURE_FMA", "-march=armv8-a", "-mcpu=generic")},
    "": {"baseline": _level(16, 16, "", "-O2")},
}
"""The levels of each architecture, highest first; the key "" is for all other architectures.

The first spelling of a flag is for GCC and Clang, the second for zig.  Sources: x86-64 psABI,
microarchitecture levels 3 and 4; Arm C Language Extensions."""

LEVEL_NAMES = tuple(dict.fromkeys(name for levels in TARGET_LEVELS.values() for name in levels))
"""The names of all levels, highest first."""

NATIVE_FLAGS = ("-march=native", "-mcpu=native")
"""Flags for this processor.  Clang for Arm may accept only the second one; a cross compiler may
accept none."""

TARGET_VARIABLE = "MLPENGINE_TARGET"
"""Environment variable that selects a level."""


@dataclass(frozen=True)
class CompileTarget:
    """A compiler and the processor that it compiles for.

    Attributes:
        command: the command of the compiler, as words.
        version: the first line of the compiler's version message.
        cpu: text with the name and the features of the processor.
        level: name of the level in `TARGET_LEVELS`.
        flag: compiler flag for this level, or for all features of this processor.
        vector_bytes: size of a vector register: 16, 32 or 64.
        registers: number of vector registers.

    Raises: ValueError for impossible values, such as values from a damaged file.
    """

    command: tuple[str, ...]
    version: str
    cpu: str
    level: str
    flag: str
    vector_bytes: int
    registers: int

    def __post_init__(self) -> None:
        texts = (*self.command, self.version, self.cpu, self.level, self.flag)
        sizes = (self.vector_bytes, self.registers)
        known = {
            (name, *each[:2]) for levels in TARGET_LEVELS.values() for name, each in levels.items()
        }
        if (self.level, *sizes) not in known or {*map(type, sizes)} != {int}:
            raise ValueError(f"target: {self} fits no level")
        if {*map(type, texts)} != {str}:
            raise ValueError(f"target: {self} has fields that are not text")

    @property
    def reads_columns(self) -> bool:
        """Whether the processor reads columns of b as fast as a panel, unless rows are pages apart.

        This is true for AMD's Zen 5 (family 26).  Without packing, input gradients take 1 to 20%
        less time there, and weight gradients 2 to 10% (batches of 16 to 256, nine networks of 64 to
        2,048 units, one thread, November 2026).  On a Xeon, packing is faster.
        """
        return "AMD" in self.cpu and "cpu family\t: 26" in self.cpu

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler.

        GCC need not vectorize loops, because programs already use vectors: this saves a tenth of
        the compile time, and costs no speed.  With vectors of 16 bytes, GCC must vectorize, because
        v_sqrt is then written lane by lane.
        """
        more = ("-fno-tree-vectorize",) if self.vector_bytes >= 32 else ()
        return (*FLAGS, self.flag, *more)

    @property
    def fuses(self) -> bool:
        """Whether the processor multiplies and adds with one rounding (multiply_add, prelude.h)."""
        return any(macro in self.cpu for macro in ("__FMA__", "__ARM_FEATURE_FMA"))

    @property
    def identity(self) -> str:
        """Text with everything, besides the source, that the machine code depends on."""
        return "\n".join([*self.command, self.version, self.cpu, *self.flags])


def compiler_command() -> tuple[str, ...] | None:
    """Return the command in $CC; None if there is no such command.

    If $CC is not set, return the first of cc, gcc, clang and zig (of ziglang) that exists, or None.
    """
    named = os.environ.get("CC")
    if named:
        try:
            words = tuple(system.words_of(named))
        except ValueError:  # an unclosed quotation
            return None
        return words if words and shutil.which(words[0]) else None
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (path,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def chosen_level() -> str:
    """Return the level in $MLPENGINE_TARGET; by default "native", the highest level."""
    name = os.environ.get(TARGET_VARIABLE) or "native"
    if name not in ("native", *LEVEL_NAMES):
        names = ", ".join((*LEVEL_NAMES, "native"))
        raise UsageError(f"{TARGET_VARIABLE}: must be one of {names} (got {name!r})")
    return name


def find_target(command: tuple[str, ...], level: str = "native") -> CompileTarget:
    """Return the target for a level of this processor; run the compiler `command` to find out."""
    about = _ask([*command, "--version"]).splitlines()[0]
    flag, macros = _first_accepted(command, NATIVE_FLAGS)
    if flag is None:  # a cross compiler
        macros = _macros(command, "-O2")
    levels = next(
        levels for name, levels in TARGET_LEVELS.items() if f"__{name}__" in macros or not name
    )
    present = [name for name, each in levels.items() if each.macros <= macros]
    if flag is None or not present:
        present = ["baseline"]
    if level != "native" and level not in present:
        raise UsageError(
            f"{TARGET_VARIABLE}: this processor, as {shlex.join(command)} knows it, must have "
            f"{level} (it has {', '.join(present)})"
        )
    name = present[0] if level == "native" else level
    if level != "native" or flag is None:
        flag, macros = _first_accepted(command, levels[name].flags)
        if flag is None or not levels[name].macros <= macros:
            flags = " or ".join(levels[name].flags)
            raise CompileError(f"compiler: {shlex.join(command)} must accept {flags}")
    features = sorted(m for m in macros if m.startswith(("__AVX", "__FMA", "__ARM_FEATURE")))
    cpu = " ".join([platform.machine(), cpu_model(), *features])
    return CompileTarget(command, about, cpu, name, flag, *levels[name][:2])


def _first_accepted(
    command: tuple[str, ...], flags: Sequence[str]
) -> tuple[str | None, frozenset[str]]:
    """Return the first flag that the compiler accepts, and the macros that this flag defines."""
    for flag in flags:
        with suppress(CompileError):
            return flag, _macros(command, flag)
    return None, frozenset()


def _macros(command: tuple[str, ...], flag: str) -> frozenset[str]:
    """Return the names of the predefined macros; raise CompileError if the flag is refused."""
    text = _ask([*command, flag, "-dM", "-E", "-x", "c", os.devnull])
    return frozenset(line.split()[1] for line in text.splitlines() if line.startswith("#define"))


def _ask(command: list[str]) -> str:
    """Return the output of a compiler; it runs in a temporary folder, because zig makes files."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            (done,) = run_compilers([command], Path(folder))
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
    """Run compilers in parallel, each in its own process group; all must end within `SECONDS`."""
    end, done = time.monotonic() + SECONDS, []
    with ExitStack() as running:
        processes = [running.enter_context(_running(command, folder)) for command in commands]
        for command, process in zip(commands, processes, strict=True):
            outputs = process.communicate(timeout=max(0.0, end - time.monotonic()))
            done.append(subprocess.CompletedProcess(command, process.returncode, *outputs))
    return done


@contextmanager
def _running(command: list[str], folder: Path | None) -> "Iterator[subprocess.Popen[str]]":
    """Run a process in a context; an exception in the context ends the process group."""
    # LC_ALL=C: messages in English; no standard input: nothing waits for a key
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
            system.end_group(process)
            raise


def compiler_stamp(command: tuple[str, ...]) -> str:
    """Return text that changes if compiler or processor change, without running the compiler."""
    path = shutil.which(command[0]) or command[0]
    parts = [*command, os.path.realpath(path), platform.machine(), cpu_model()]
    with suppress(OSError):
        file = os.stat(path)
        parts += [str(file.st_size), str(file.st_mtime_ns), str(file.st_ino)]
    if "ziglang" in command:
        from importlib.metadata import PackageNotFoundError, version  # a slow import

        with suppress(PackageNotFoundError):
            parts.append(version("ziglang"))
    return "\n".join(parts)


def cpu_model() -> str:
    """Return the name and the features of the processor, as the system reports them."""
    keep = ("model name", "cpu family", "model\t", "CPU part", "CPU implementer", "flags")
    known = {line.strip() for line in system.processor_lines() if line.startswith(keep)}
    return " ".join(sorted(known)) or platform.processor()
