"""Backends: NumExpr and compiled C instead of NumPy."""

from typing import Literal

BackendName = Literal["auto", "numpy", "numexpr", "compiled"]
"""Name of the backend of a training step.

``auto`` means ``compiled`` if there is a compiler and the run is long enough to pay for compiling,
otherwise ``numpy``.  ``auto`` never chooses ``numexpr``, because it was never the fastest."""
