"""Samples over a whole run in a fixed amount of memory."""

from typing import Any

import numpy as np

from mlpengine.diagnostics.quantities import Columns
from mlpengine.spec import Array

CAPACITY = 512
"""Samples that are kept."""


class Series:
    """The samples of a run, evenly spread: when the memory is full, every second one goes.

    Attributes:
        steps: (samples,), the steps of the kept samples.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._steps = np.zeros(CAPACITY, np.int64)
        self._values = np.full((CAPACITY, len(columns)), np.nan)
        self._stride, self._met, self._kept = 1, 0, 0

    def __len__(self) -> int:
        return self._kept

    @property
    def steps(self) -> Array:
        """The steps of the kept samples, oldest first."""
        return self._steps[: self._kept]

    def append(self, step: int, values: list[float]) -> None:
        """Keep a sample if its turn has come."""
        self._met += 1
        if (self._met - 1) % self._stride:
            return
        if self._kept == CAPACITY:
            half = CAPACITY // 2
            self._steps[:half] = self._steps[::2]
            self._values[:half] = self._values[::2]
            self._kept, self._stride = half, 2 * self._stride
            if (self._met - 1) % self._stride:
                return
        self._steps[self._kept] = step
        self._values[self._kept] = values
        self._kept += 1

    def of(self, quantity: str, layer: int | None = None) -> Array:
        """Return a quantity over the kept samples; NaN where it was not measured."""
        return self._values[: self._kept, self.columns.place(quantity, layer)]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything."""
        return {
            "steps": self.steps.copy(),
            "values": self._values[: self._kept].copy(),
            "stride": self._stride,
            "met": self._met,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._kept = len(state["steps"])
        self._steps[: self._kept] = state["steps"]
        self._values[: self._kept] = state["values"]
        self._stride, self._met = state["stride"], state["met"]
