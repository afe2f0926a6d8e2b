"""Tuned numbers; each room keeps its own in `thresholds.py`."""

from typing import TypeVar

T = TypeVar("T")

BY_HAND = "chosen by hand"
"""Origin of a number that no script chose."""


def tuned(value: T, unit: str, meaning: str, chosen_by: str = BY_HAND) -> T:
    """Return a tuned number; its unit, meaning and origin are for readers only."""
    return value
