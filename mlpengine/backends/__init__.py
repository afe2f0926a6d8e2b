"""The backends by name; they run training steps and replace NumPy rules in programs."""

from typing import Literal

BackendName = Literal["auto", "numpy", "numexpr", "compiled"]
"""Name of a backend that may run a training step.

``auto`` is ``compiled`` if there is a compiler and the run is long enough to be worth a
compilation, else ``numpy``.  It is never ``numexpr``, the fastest backend in no measured case."""
