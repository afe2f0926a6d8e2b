"""Backends of tape programs: functions that replace the NumPy implementation of ops.

A rule (an implementation of an op) is a function ``rule(*arrays, out=..., **work)`` that yields
calls.  Rules are chosen once, when a program is bound to arrays.
"""

from collections.abc import Callable
from typing import NamedTuple

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Calls
from mlpengine.ops.op import Direction, GradOp

Rule = Callable[..., Calls]


class Backend(NamedTuple):
    """A backend; ``find(op, "forward")`` or ``find(op, "backward")`` returns a rule or None."""

    name: str
    find: Callable[[GradOp, Direction], Rule | None] = lambda op, direction: None

    def rule(self, op: GradOp, direction: Direction) -> Rule:
        """Return this backend's rule for `op`; if there is none, the op's NumPy rule."""
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
