"""Removal of private text from messages and pages: passwords and names of directories."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The lookbehind lets a match begin only at the start of a word.  Without it, the search would try
# each character of a long word, in quadratic time.
_SCHEME = re.compile(r"(?<![\w+.-])[+.-]*\w[\w+.-]+:/{1,2}")
_TOKEN = re.compile(r"""[^\s"\\]+""")
_HOST = re.compile(
    rf"(?P<scheme>^|{_SCHEME.pattern})(?P<host>\[[^\]/]*\]|[^/?\#:]*)(?P<port>:[^/?\#]*)?"
)
_SECRET = re.compile(
    r"""(?i)((?:password|passphrase|passwd|pwd|secret|token)=)"""
    r"""[^&\s"'\\]+?(?=:\s|[&\s"'\\]|$)"""  # the secret ends before a colon and a blank
)


def redacted(text: str) -> str:
    """Return text, such as a URL or a command line, with ``***`` in place of each password.

    A password is the text between ``:`` and ``@`` in a URL, the text after ``:`` in a URL without
    ``@`` (``scheme://user:password``), or the text after ``password=`` and similar keys.  Port
    numbers stay.
    """
    return _SECRET.sub(r"\1***", _TOKEN.sub(_without_password, text) if ":/" in text else text)


def _without_password(token: re.Match[str]) -> str:
    """Return a word of the text with ``***`` in place of passwords of URLs."""
    text = token[0]
    first = _SCHEME.search(text)
    if first is None:
        return text
    end = max(first.end(), text.rfind("@") + 1)
    user = text[first.end() : end]
    name, _, password = user.removesuffix("@").partition(":")
    if password:
        user = f"{name}:***@"
    return text[: first.end()] + user + _HOST.sub(_without_port, text[end:])


def _without_port(place: re.Match[str]) -> str:
    port = place["port"] or ""
    if not re.fullmatch(r":\d*\W*", port):
        port = port and ":***"
    return f"{place['scheme']}{place['host']}{port}"


_DIRECTORIES = re.compile(
    r"""(?<![^\s"'=:,;({\[])(?:/(?:[^/\s"',;]+/)+|[A-Za-z]:\\(?:[^\\\s"',;]+\\)+)"""
)


def shown_path(path: Path) -> Path:
    """Return a path relative to the working directory, or its last part for a path outside."""
    here = Path.cwd()
    path = path.relative_to(here) if path.is_relative_to(here) else path
    return Path(path.name) if path.is_absolute() else path


def without_directories(value: Any) -> Any:
    """Return `value` (text, list or mapping) without the directories of absolute paths in it."""
    return _without(value, [f"{one}/" for one in {str(Path.cwd()), str(Path.home())} - {"/"}])


def _without(value: Any, directories: Sequence[str]) -> Any:
    if isinstance(value, str):
        for known in directories:
            value = value.replace(known, "")
        return _DIRECTORIES.sub("", value) if "/" in value or "\\" in value else value
    if isinstance(value, Mapping):
        return {key: _without(one, directories) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without(one, directories) for one in value]
    return value
