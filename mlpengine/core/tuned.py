"""Tuned numbers; each room keeps them in its `thresholds`."""

from typing import TypeVar

T = TypeVar("T")

BY_HAND = "chosen by hand"
"""The origin of a number that was chosen by hand."""


def tuned(value: T, unit: str, meaning: str, chosen_by: str = BY_HAND) -> T:
    """Return a tuned number.

    Unit, meaning and the script that chose the number are for readers only.
    """
    return value
