"""`frozen`: ``@dataclass(frozen=True)`` for the price of one compiled method instead of six.

The package has some 150 such classes, and a command imports nearly all: 80 of 400 ms of its
imports on a two-core Xeon under Python 3.11 (November 2026).
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@overload
def frozen(cls: type[T], /) -> type[T]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@overload
def frozen(*, eq: bool = True, repr: bool = True) -> Callable[[type[T]], type[T]]: ...


def frozen(cls: Any = None, /, *, eq: bool = True, repr: bool = True) -> Any:
    """Make a class a frozen dataclass, whose methods but `__init__` are shared by all.

    It must not derive from another dataclass; a class derived from it is a
    ``@dataclass(frozen=True)``.  Fields are those of `dataclasses.dataclass`, without `InitVar`.
    """

    def make(cls: type) -> type:
        dataclass(init=False, repr=False, eq=False)(cls)
        given = vars(cls)
        methods: dict[str, Any] = {"__init__": _initializer(cls)}
        if repr:
            methods["__repr__"] = _text
        if eq:
            methods |= {"__eq__": _is_equal, "__hash__": _hash}
            cls._compared = _getter([f.name for f in fields(cls) if f.compare])  # type: ignore[attr-defined]
        for name, method in methods.items():
            if name not in given or given[name] is None:
                setattr(cls, name, method)
        cls.__dataclass_params__ = _PARAMETERS  # type: ignore[attr-defined]  # for derived classes
        cls.__setattr__ = _refuse_to_set  # type: ignore[assignment, method-assign]
        cls.__delattr__ = _refuse_to_delete  # type: ignore[method-assign, assignment]
        return cls

    return make if cls is None else make(cls)


class _Default:
    """The default of a parameter in place of what a field's factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Default()


def _initializer(cls: type) -> Callable[..., None]:
    """Return `__init__`, compiled, with the annotations of the fields."""
    names: dict[str, Any] = {"set_field": object.__setattr__, "FACTORY": _FACTORY}
    positional: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    for one in fields(cls):
        value = name = one.name
        default = ""
        if one.default_factory is not MISSING:
            names[f"make_{name}"], default = one.default_factory, "=FACTORY"
            made = f"make_{name}()"
            value = f"{made} if {name} is FACTORY else {name}" if one.init else made
        elif one.default is not MISSING:
            names[f"default_{name}"] = one.default
            default = f"=default_{name}"
        if one.init:
            (by_name if one.kw_only else positional).append(f"{name}{default}")
        if one.init or one.default_factory is not MISSING:
            lines.append(f" set_field(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n" + ("\n".join(lines) or " pass"), names)
    method: Callable[..., None] = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__annotations__ = {f.name: f.type for f in fields(cls) if f.init}
    method.__annotations__["return"] = None
    return method


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the fields of these names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(lambda self: tuple(getattr(self, name) for name in names))


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    if _is_field(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_field(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_field(self: Any, name: str) -> bool:
    """Whether a name is a field, or any name in an object of a dataclass."""
    return "__dataclass_fields__" in vars(type(self)) or name in self.__dataclass_fields__


@dataclass(frozen=True)
class _Frozen:
    pass


_PARAMETERS = vars(_Frozen)["__dataclass_params__"]
