"""Pieces of messages that many modules write: numbers with their nouns, and near misses."""

from collections.abc import Iterable
from difflib import get_close_matches


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: "1 row", "1,234 rows"; `many` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def suggestion(wrong: object, names: Iterable[str]) -> str:
    """Return `` - did you mean 'x'?`` for the nearest of `names`, or nothing."""
    by_case = {name.lower(): name for name in names}
    near = get_close_matches(str(wrong).lower(), by_case, 1, 0.6)
    return f" - did you mean {by_case[near[0]]!r}?" if near else ""
