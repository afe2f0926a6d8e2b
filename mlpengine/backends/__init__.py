"""Backends: other implementations than NumPy for training steps and for single rules."""

from typing import Literal

BackendName = Literal["auto", "numpy", "numexpr", "compiled"]
"""Name of the backend of a training step.

``auto`` is ``compiled`` if there is a compiler and the run is long enough to pay for compiling,
else ``numpy``.  ``auto`` is never ``numexpr``, the fastest backend in no measured case."""
