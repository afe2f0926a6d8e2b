"""A config that begins with another one: ``base: common.yaml`` and what differs."""

from pathlib import Path
from typing import Any

from mlpengine.config.presets import fill_missing
from mlpengine.config.reader import Document, KeyPath, dotted, read_document

FILES = ("source", "validation_source", "test_source")
"""Keys of the section `data` that name files, which are looked for beside the config."""


def fill_from_base(document: Document, path: Path) -> dict[str, tuple[Any, Any]]:
    """Put what the document's base says, and the document does not, into it.

    Return the settings of the base that the document replaces, by dotted name, each with the value
    of the base and the new one.

    Raises: ConfigError if the base cannot be read or has a base itself.
    """
    name = document.data.get("base")
    if not isinstance(name, str):
        return {}
    below = path.parent / name
    base = read_document(below)
    if "base" in base.data:
        base.report(("base",), "the base of a config has no base itself: write one level")
        base.check()
    data = base.data.get("data")
    if isinstance(data, dict):
        data |= {
            key: str((below.parent / data[key]).absolute())
            for key in FILES
            if isinstance(data.get(key), str) and (below.parent / data[key]).exists()
        }
    replaced = dict(_replaced(document.data, base.data))
    fill_missing(document.data, base.data)
    for key, place in base.places.items():
        document.places.setdefault(key, place)
    return replaced


def _replaced(new: dict[str, Any], old: dict[str, Any], at: KeyPath = ()) -> Any:
    """Yield the settings that both trees have, unless they are equal."""
    for key in old.keys() & new.keys():
        one, other, here = old[key], new[key], (*at, key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _replaced(other, one, here)
        elif one != other:
            yield dotted(here), (one, other)
