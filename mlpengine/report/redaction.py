"""Texts without the directories of a machine, for pages that travel."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DIRECTORIES = re.compile(
    r"""(?<![^\s"'=:,;({\[])(?:/(?:[^/\s"',;]+/)+|[A-Za-z]:\\(?:[^\\\s"',;]+\\)+)"""
)


def without_directories(value: Any) -> Any:
    """Return texts, also in lists and mappings, with each absolute path as its last part."""
    if isinstance(value, str):
        for known in {str(Path.cwd()), str(Path.home())} - {"/"}:
            value = value.replace(f"{known}/", "")
        return _DIRECTORIES.sub("", value)
    if isinstance(value, Mapping):
        return {key: without_directories(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_directories(one) for one in value]
    return value
