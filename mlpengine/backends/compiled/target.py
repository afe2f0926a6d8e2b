"""The compiler and the processor that code is generated for."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

from mlpengine.errors import CompileError

FLAGS = (
    "-O2",
    "-march=native",
    "-std=gnu11",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
    "-pthread",
)
"""No -ffast-math: a NaN must stay visible, and linking with it would change the whole process."""

SECONDS = 120
"""After which a compiler counts as hung."""


@dataclass(frozen=True)
class Target:
    """A compiler and what it compiles for.

    Attributes:
        command: the compiler, as arguments.
        version: its first line about itself.
        cpu: the processor, with its features.
        vector_bytes: size of a vector register: 16, 32 or 64.
        registers: how many vector registers there are.
    """

    command: tuple[str, ...]
    version: str
    cpu: str
    vector_bytes: int
    registers: int

    @property
    def tile_rows(self) -> int:
        """Rows of a product's tile, which is two vectors wide.

        They leave registers for a row of b and an entry of a; 16 sums hide the latency of any
        multiplier, and lower tiles fit more shapes.
        """
        return min(8, (self.registers - 4) // 2)

    @property
    def identity(self) -> str:
        """Everything but the source that the machine code depends on."""
        return "\n".join([*self.command, self.version, self.cpu, *FLAGS])


def compiler_command() -> tuple[str, ...] | None:
    """Return the C compiler: $CC, then cc, gcc or clang from PATH, then that of the ziglang wheel.

    None if there is none.
    """
    named = os.environ.get("CC")
    if named:
        words = tuple(shlex.split(named))
        return words if words and shutil.which(words[0]) else None
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def find_target(command: tuple[str, ...]) -> Target:
    """Return what `command` compiles for, asking it.

    Raises: CompileError if it does not answer.
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
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=True, env=environment()
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"compiler: {shlex.join(command[:4])} must run ({error})") from error
    if not done.stdout.strip():
        raise CompileError(f"compiler: {shlex.join(command[:4])} must answer (got nothing)")
    return done.stdout


def environment() -> dict[str, str]:
    """Return the environment for the compiler: this one, with messages in English."""
    return {**os.environ, "LC_ALL": "C"}


def compiler_stamp(command: tuple[str, ...]) -> str:
    """Return what changes when the compiler or the processor does, without asking the compiler."""
    found = shutil.which(command[0]) or command[0]
    parts = [*command, os.path.realpath(found), platform.machine(), cpu_model()]
    with suppress(OSError):
        file = os.stat(found)
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
