"""The backends by name; they run training steps and replace NumPy rules in programs."""

from typing import TYPE_CHECKING, Literal

from mlpengine.core.errors import UsageError
from mlpengine.core.lazy import lazy_names

if TYPE_CHECKING:
    from mlpengine.backends.backend import NUMPY, Backend, Rule

BackendName = Literal["auto", "numpy", "numexpr", "compiled"]
"""Name of a backend that may run a training step.

``auto`` is ``compiled`` if there is a compiler and the run is long enough to be worth a
compilation, else ``numpy``.  It is never ``numexpr``, the fastest backend in no measured case."""

__all__ = ["NUMPY", "Backend", "BackendName", "Rule", "find_backend"]

__getattr__, __dir__ = lazy_names(  # lazy: readers of tables need only the cache
    __name__, {"backend": ("NUMPY", "Backend", "Rule")}
)


def find_backend(name: str) -> "Backend":
    """Return the backend of tape programs called `name`, ``numpy`` or ``numexpr``.

    Raises: UsageError for another name; ``compiled`` exists for whole training steps only.
    """
    if name == "numpy":
        from mlpengine.backends.backend import NUMPY

        return NUMPY
    if name == "numexpr":
        from mlpengine.backends.numexpr import NUMEXPR

        return NUMEXPR
    raise UsageError(f"backend: must be numpy or numexpr (got {name!r})")
