"""Names of a package whose modules are imported when a name is first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from sys import modules
from typing import Any


def lazy_names(
    package: str, places: Mapping[str, Sequence[str]], rooms: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        places: its modules, each with the public names that it defines.
        rooms: modules that are public themselves.
    """

    def find(name: str) -> Any:
        if name in rooms or (name[0] != "_" and find_spec(f"{package}.{name}")):
            return import_module(f"{package}.{name}")
        for place, names in places.items():
            if name in names:
                value = getattr(import_module(f"{package}.{place}"), name)
                return vars(modules[package]).setdefault(name, value)
        text = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(text if name[0] == "_" else text + place_of(name), name=name)

    def listed() -> list[str]:
        return sorted({*vars(modules[package]), *rooms}.union(*places.values()))

    def place_of(name: str) -> str:
        """Return where a name is, or the nearest one, for a message."""
        from mlpengine.core.foreign import FOREIGN_LAYERS  # which no import needs
        from mlpengine.core.wording import suggestion

        if name.lower() in FOREIGN_LAYERS:
            return f"; {FOREIGN_LAYERS[name.lower()]}"
        for part in rooms:
            if name in getattr(import_module(f"{package}.{part}"), "__all__", ()):
                return f"; it is in {package}.{part}"
        return suggestion(name, listed())

    return find, listed
