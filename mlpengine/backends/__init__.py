"""Sparse tables of faster rules; an op without an entry runs its own NumPy rules.

A backend's rule is a function ``rule(op, *arrays, out=..., **work)`` that yields calls, exactly as
the op's own rule does.  It is chosen while a program is bound, by the op, the direction and the
number of elements; nothing is chosen in a replay.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from mlpengine.errors import UsageError
from mlpengine.ops._op import Direction, GradOp
from mlpengine.spec import Calls

BackendName = Literal["auto", "numpy", "numexpr"]

Rule = Callable[..., Calls]


@dataclass(frozen=True)
class Backend:
    """A name and the rules it replaces, keyed by op name and direction.

    `smallest` gives, by the same key, the number of elements from which the rule is used.
    """

    name: str
    rules: Mapping[tuple[str, Direction], Rule] = field(default_factory=dict)
    smallest: Mapping[tuple[str, Direction], int] = field(default_factory=dict)

    def rule(self, op: GradOp, direction: Direction, size: int) -> Rule:
        """Return the rule for `op` on `size` elements: this backend's, or the op's own."""
        key = (op.name, direction)
        if key in self.rules and size >= self.smallest.get(key, 0):
            return partial(self.rules[key], op)
        own: Rule = getattr(op, direction)
        return own


NUMPY = Backend("numpy")

CROSSOVER: Mapping[tuple[str, Direction], int] = {}
"""Elements from which NumExpr's rule beats NumPy's, where it does; `auto` uses those alone.

Empty, as measured by ``benchmarks/backends.py``; NumExpr is then not even imported.
"""


def find_backend(name: str) -> Backend:
    """Return the backend called `name`; `auto` is NumExpr where it was measured to win.

    Raises: UsageError for an unknown name.
    """
    if name == "numpy" or (name == "auto" and not CROSSOVER):
        return NUMPY
    if name in ("numexpr", "auto"):
        from mlpengine.backends.numexpr import NUMEXPR

        faster = {key: NUMEXPR.rules[key] for key in CROSSOVER}
        return NUMEXPR if name == "numexpr" else Backend("auto", faster, CROSSOVER)
    raise UsageError(f"backend: must be one of auto, numpy, numexpr (got {name!r})")
