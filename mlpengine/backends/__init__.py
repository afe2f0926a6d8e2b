"""Backends: implementations of training steps and of single rules besides NumPy."""

from typing import Literal

BackendName = Literal["auto", "numpy", "numexpr", "compiled"]
"""Name of the backend of a training step.

``auto`` is ``compiled`` if there is a compiler and the run is long enough to pay for compiling,
else ``numpy``.  ``auto`` is never ``numexpr``, because no measurement found it the fastest."""
