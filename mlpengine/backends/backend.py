"""Backends of tape programs; an op without a rule of the backend uses its own NumPy rules.

Like an op's own rule, a backend's rule is a function ``rule(*arrays, out=..., **work)`` that yields
calls.  It is chosen by op and direction when a program is bound, never during a replay.
"""

from collections.abc import Callable
from typing import NamedTuple

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Calls
from mlpengine.ops.op import Direction, GradOp

Rule = Callable[..., Calls]


class Backend(NamedTuple):
    """A name, and a function that returns a replacement for an op's rule, or None."""

    name: str
    find: Callable[[GradOp, Direction], Rule | None] = lambda op, direction: None

    def rule(self, op: GradOp, direction: Direction) -> Rule:
        """Return this backend's rule for `op`, or else the op's own."""
        own: Rule = getattr(op, direction)
        return self.find(op, direction) or own


NUMPY = Backend("numpy")


def find_backend(name: str) -> Backend:
    """Return the backend ``numpy`` or ``numexpr``; raise UsageError for another name."""
    if name == "numpy":
        return NUMPY
    if name == "numexpr":
        from mlpengine.backends.numexpr import find_rule

        return Backend(name, find_rule)
    raise UsageError(f"backend: must be numpy or numexpr (got {name!r})")
