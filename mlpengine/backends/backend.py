"""Backends of tape programs; an op without a rule of the backend runs its own NumPy rules.

A backend's rule is a function ``rule(*arrays, out=..., **work)`` that yields calls, as the op's own
rule does.  It is selected by op and direction while a program is bound, never during a replay.
"""

from collections.abc import Callable
from typing import NamedTuple

from mlpengine.core.spec import Calls
from mlpengine.ops.op import Direction, GradOp

Rule = Callable[..., Calls]


class Backend(NamedTuple):
    """A name, and a function that returns the rule that replaces an op's own rule, or None."""

    name: str
    find: Callable[[GradOp, Direction], Rule | None] = lambda op, direction: None

    def rule(self, op: GradOp, direction: Direction) -> Rule:
        """Return the rule for `op`: this backend's, or the op's own."""
        own: Rule = getattr(op, direction)
        return self.find(op, direction) or own


NUMPY = Backend("numpy")
