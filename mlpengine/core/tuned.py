"""Tuned numbers, which stand in the `thresholds` of a room."""

from typing import TypeVar

T = TypeVar("T")

BY_HAND = "chosen by hand"
"""The origin of a number that no script chose."""


def tuned(value: T, unit: str, meaning: str, chosen_by: str = BY_HAND) -> T:
    """Return a tuned number.

    For readers: its unit, its meaning, and the script whose results chose it.
    """
    return value
