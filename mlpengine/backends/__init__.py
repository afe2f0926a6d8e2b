"""Backends of tape programs; an op for which one has no rule runs its own NumPy rules.

A backend's rule is a function ``rule(*arrays, out=..., **work)`` that yields calls, exactly as the
op's own rule does.  It is chosen while a program is bound, by the op and the direction; nothing is
chosen in a replay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mlpengine.errors import UsageError
from mlpengine.ops._op import Direction, GradOp
from mlpengine.spec import Calls

BackendName = Literal["auto", "numpy", "numexpr"]

Rule = Callable[..., Calls]


@dataclass(frozen=True)
class Backend:
    """A name, and what finds the rule that replaces an op's own, or None."""

    name: str
    find: Callable[[GradOp, Direction], Rule | None] = lambda op, direction: None

    def rule(self, op: GradOp, direction: Direction) -> Rule:
        """Return the rule for `op`: this backend's, or the op's own."""
        own: Rule = getattr(op, direction)
        return self.find(op, direction) or own


NUMPY = Backend("numpy")


def find_backend(name: str) -> Backend:
    """Return the backend called `name`; `auto` is NumPy.

    NumExpr won nowhere, as measured by ``benchmarks/backends.py``, and is not even imported.
    Raises: UsageError for an unknown name.
    """
    if name in ("numpy", "auto"):
        return NUMPY
    if name == "numexpr":
        from mlpengine.backends.numexpr import NUMEXPR

        return NUMEXPR
    raise UsageError(f"backend: must be one of auto, numpy, numexpr (got {name!r})")
