"""`dataclass`: the standard library's, whose classes share the methods that compare and print.

The standard one writes and compiles a `__repr__`, an `__eq__` and a `__hash__` for every class,
about half of what it writes; a start of the command line makes two hundred classes.
"""

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any


def _repr(self: Any) -> str:
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return self.__compared__(self) == self.__compared__(other)


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _nothing(self: object) -> tuple[()]:
    return ()


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, repr=True, frozen=False, **options):
        """Make a dataclass; arguments and behavior are those of `dataclasses.dataclass`."""
        if cls is None:
            return lambda cls: dataclass(cls, eq=eq, repr=repr, frozen=frozen, **options)
        own = vars(cls)
        methods = {"__repr__": _repr} if repr else {}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        # Python itself leaves a hash of None in a class that defines only `__eq__`
        methods = {name: method for name, method in methods.items() if own.get(name) is None}
        made = dataclasses.dataclass(eq=False, repr=False, frozen=frozen, **options)(cls)
        for name, method in methods.items():
            setattr(made, name, method)
        if eq:
            compared = [f.name for f in dataclasses.fields(made) if f.compare]
            made.__compared__ = staticmethod(attrgetter(*compared) if compared else _nothing)
        return made
