"""Keys of configs that have a new name: the old one is accepted for one version, with a warning."""

import logging
from typing import Any

from mlpengine.config.reader import Document, KeyPath, dotted

RENAMED: dict[tuple[str, ...], str] = {
    ("training", "checkpointing"): "rematerialization",
}
"""The old key path and the key that replaces it."""

_log = logging.getLogger("mlpengine")


def rename_keys(document: Document) -> None:
    """Give old keys of a document their new names; report those that are given twice."""
    for path, new in RENAMED.items():
        *parents, old = path
        section: Any = document.data
        for key in parents:
            section = section.get(key) if isinstance(section, dict) else None
        if not isinstance(section, dict) or old not in section:
            continue
        new_path: KeyPath = (*parents, new)
        if new in section:
            document.report(path, f"is called {dotted(new_path)} now: give one of the two")
            del section[old]
            continue
        source, line = document.places.get(path, (document.source, 0))
        place = f"{source}:{line}" if line else source
        _log.warning("warning: %s: %s is called %s now", place, dotted(path), dotted(new_path))
        section[new] = section.pop(old)
        document.places[new_path] = (source, line)
