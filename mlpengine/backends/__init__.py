"""The backends of tape programs, by name."""

from typing import Literal

from mlpengine.backends.backend import NUMPY, Backend, Rule
from mlpengine.errors import UsageError

BackendName = Literal["auto", "numpy", "numexpr"]

__all__ = ["NUMPY", "Backend", "BackendName", "Rule", "find_backend"]


def find_backend(name: str) -> Backend:
    """Return the backend called `name`; `auto` is NumPy.

    `auto` does not import NumExpr, which was not faster anywhere in ``benchmarks/backends.py``.
    Raises: UsageError for an unknown name.
    """
    if name in ("numpy", "auto"):
        return NUMPY
    if name == "numexpr":
        from mlpengine.backends.numexpr import NUMEXPR

        return NUMEXPR
    raise UsageError(f"backend: must be one of auto, numpy, numexpr (got {name!r})")
