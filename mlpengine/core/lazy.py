"""Lazy imports: a package imports a module at the first use of one of its names."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules
from typing import Any


def lazy_names(
    package: str, places: Mapping[str, Sequence[str]], subpackages: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `places` maps modules to their names."""
    place_of = {name: place for place, names in places.items() for name in names}

    def find(name: str) -> Any:
        if name in subpackages:
            return import_module(f"{package}.{name}")
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value = getattr(import_module(f"{package}.{place_of[name]}"), name)
        return vars(modules[package]).setdefault(name, value)

    def listed() -> list[str]:
        return sorted({*vars(modules[package]), *subpackages, *place_of})

    return find, listed
