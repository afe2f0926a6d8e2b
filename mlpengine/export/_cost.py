"""What a prediction costs in C: seconds on this machine, and bytes of code and constants."""

import platform
import struct
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from tempfile import TemporaryDirectory

from mlpengine.backends.compiled.cache import compiler
from mlpengine.backends.compiled.target import run_compilers
from mlpengine.backends.scalar.text import real_constant
from mlpengine.core.errors import CompileError
from mlpengine.export._model_c import model_code
from mlpengine.export.network_c import c_file
from mlpengine.models.model import Model

SIZE_FLAGS = ("-std=c99", "-Os", "-fno-asynchronous-unwind-tables", "-c")
SPEED_FLAGS = ("-std=c99", "-O2")

ALLOCATED, NO_BITS = 2, 8
"""Of a section of ELF: the flag of those in memory, and the type of those that are zeros.
Source: System V ABI, chapter 4, "Sections"."""

TIMING = """\
#include <stdio.h>
#include <time.h>
#include "model.c"

int main(void)
{{
  static const real x[{inputs}] = {{{row}}};
  static real out[{outputs}];
  int (*volatile call)(const real *, real *) = {predict};
  double least = 1e30, took = 0.0;
  long rows = 1;
  for (int k = 0; k < 20 || took < 1e-3; k++) {{
    const clock_t start = clock();
    for (long i = 0; i < rows; i++) call(x, out);
    took = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (took < 1e-3) rows *= 2, k = 0, least = 1e30;
    else if (took / (double)rows < least) least = took / (double)rows;
  }}
  printf("%.9g\\n", least);
  return 0;
}}
"""
"""Least of twenty repetitions of a millisecond or more."""


@dataclass(frozen=True)
class RowCost:
    """What a prediction of one row costs in C.

    Attributes:
        seconds: processor time on this machine, with ``-O2``.
        flash: bytes of code and constants, with ``-Os``, without the mathematics library.
        machine: compiler and processor that these hold for.
    """

    seconds: float
    flash: int
    machine: str


def row_cost(model: Model) -> RowCost:
    """Compile the C of a model, preprocessing included, measure its size, and time a usual row.

    Raises: CompileError if there is no compiler, or its programs do not run here or are not ELF.
    """
    code, command = model_code(model), compiler()
    timing = TIMING.format(
        inputs=code.table.inputs,
        outputs=code.table.outputs,
        row=", ".join(map(real_constant, code.example[1])),
        predict=code.predict,
    )
    with TemporaryDirectory(prefix="mlpengine-") as name:
        folder = Path(name)
        text = c_file(code.network, f"{code.table.definitions}\n{code.text}")
        (folder / "model.c").write_text(text, encoding="ascii")
        (folder / "timing.c").write_text(timing, encoding="ascii")
        _run([*command, *SIZE_FLAGS, "model.c", "-o", "model.o"], folder)
        flash = section_bytes((folder / "model.o").read_bytes())
        _run([*command, *SPEED_FLAGS, "timing.c", "-o", "timing", "-lm"], folder)
        seconds = float(_run([str(folder / "timing")], folder))
    return RowCost(seconds, flash, f"{Path(command[0]).name} for {platform.machine()}")


def section_bytes(data: bytes) -> int:
    """Return the bytes of code and constants of an ELF object, as ``size`` counts text and data.

    Raises: CompileError for another format.
    """
    if data[:4] != b"\x7fELF":
        raise CompileError("size in flash: the compiler must write ELF objects, as on Linux")
    order, is_wide = "<" if data[5] == 1 else ">", data[4] == 2
    place, counts, section = (40, 58, "8xQ16xQ") if is_wide else (32, 46, "8xI8xI")
    (start,) = struct.unpack_from(f"{order}{'Q' if is_wide else 'I'}", data, place)
    length, count = struct.unpack_from(f"{order}HH", data, counts)
    total = 0
    for k in range(count):
        (kind,) = struct.unpack_from(f"{order}4xI", data, start + k * length)
        flags, size = struct.unpack_from(f"{order}{section}", data, start + k * length)
        total += size if flags & ALLOCATED and kind != NO_BITS else 0
    return total


def _run(command: list[str], folder: Path) -> str:
    """Return what a program prints.  Raises: CompileError."""
    try:
        (done,) = run_compilers([command], folder)
    except (OSError, SubprocessError) as error:
        raise CompileError(f"a row in C: {Path(command[0]).name} must run ({error})") from error
    if done.returncode:
        reason = done.stderr.strip()[-300:] or f"exit code {done.returncode}"
        raise CompileError(f"a row in C: {Path(command[0]).name} must succeed ({reason})")
    return done.stdout
