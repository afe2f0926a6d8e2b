"""Shared by all benchmarks: a clean environment, a description of the machine, load, tables.

``restart_clean()`` starts a script again without environment variables that select slower kernels
of a library, limit its threads, or keep Python from storing bytecode.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from mlpengine.core import system
from mlpengine.step.blas_threads import cores

PREFIXES = (
    *("ARMPL_", "ATEN_", "BLIS_", "DNNL_", "GOTO_", "KMP_", "MKL_", "NPY_DISABLE_", "NPY_ENABLE_"),
    *("NUMEXPR_", "NVPL_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCHINDUCTOR_", "VECLIB_", "XLA_"),
    "PYTHONDONTWRITEBYTECODE",  # a package run from its sources is compiled in each process
)
"""Prefixes of the names of variables that are removed."""

RESTARTED = "BENCHMARK_RESTARTED"
"""Variable of a restarted script: a script restarts once, even if a library sets a variable."""


def restart_clean() -> None:
    """Start this script again without variables that change how libraries compute, if any."""
    changed = sorted(name for name in os.environ if name.startswith(PREFIXES))
    changed = [name for name in changed if name != "KMP_DUPLICATE_LIB_OK"]  # threadpoolctl's own
    if not changed or RESTARTED in os.environ:
        return
    print(f"started anew without {', '.join(changed)}", file=sys.stderr, flush=True)
    clean = {name: value for name, value in os.environ.items() if name not in changed}
    os.execve(sys.executable, [sys.executable, *sys.argv], clean | {RESTARTED: "1"})


def processor() -> str:
    """Return the name of the processor."""
    return system.processor() or platform.processor() or platform.machine()


def kernels() -> list[str]:
    """Return a line for each loaded linear algebra library, with its kernels."""
    lines = []
    for library in threadpool_info():
        name = f"{library['internal_api']} {library.get('version') or ''}".strip()
        chosen = library.get("architecture")
        lines.append(
            f"{name} in {Path(library['filepath']).name}"
            f"{f', {chosen} kernels' if chosen else ''}, threads: {library['num_threads']}"
        )
    return lines


def describe() -> None:
    """Print machine, versions and kernels in use; call this after all libraries are imported."""
    print(f"processor: {processor()}, cores: {cores()}; {platform.platform(terse=True)}")
    versions = [f"Python {platform.python_version()}", f"NumPy {np.__version__}"]
    for name, title in (("torch", "PyTorch"), ("jax", "JAX"), ("sklearn", "scikit-learn")):
        if name in sys.modules:
            versions.append(f"{title} {sys.modules[name].__version__}")
    print(", ".join(versions))
    for line in kernels():
        print(f"  {line}")
    if "torch" in sys.modules:
        print(f"  PyTorch's own kernels: {sys.modules['torch'].backends.cpu.get_cpu_capability()}")
    sys.stdout.flush()


@contextmanager
def busy_loops(count: int, nice: int = 0) -> Iterator[None]:
    """Run endless loops on the cores of this process during a ``with`` block.

    The priority of the loops is lower by `nice` (0 to 19).
    """
    loop = f"import os; {nice} and os.nice({nice})\nwhile True: pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()


def figure(value: float | None) -> str:
    """Return a number as text: no decimals from 100 on, one from 1 on, else two."""
    if value is None:
        return "-"
    return (
        f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    restart_clean()
    describe()
