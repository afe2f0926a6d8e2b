"""Units that never fire."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlpengine.spec import Array

ROWS = 256
"""Minimum number of rows of a window: a unit that is 0 on a few rows may fire on others."""


class UnitWindow:
    """Which units of a rectifier layer were positive at least once over a window of steps.

    A window ends when it spans `steps_per_epoch` steps and covers `ROWS` rows; the next window
    begins there.

    Attributes:
        dead: (units,), which units never fired in the last complete window; None before its end.
        fired: (units,), which units have fired in the current window.
    """

    def __init__(self, units: int, dtype: np.dtype[Any], steps_per_epoch: int) -> None:
        self.fired: Array = np.zeros(units, np.bool_)
        self.dead: Array | None = None
        self.began = self.rows = 0
        self.steps_per_epoch = steps_per_epoch
        self._largest = np.empty(units, dtype)
        self._mask = np.empty(units, np.bool_)

    def add(self, y: Array, step: int) -> None:
        """Add the activations (batch, units) of a step to the window."""
        np.maximum.reduce(y, 0, out=self._largest)
        np.greater(self._largest, 0.0, self._mask)
        np.logical_or(self.fired, self._mask, self.fired)
        self.rows += len(y)
        if self.rows >= ROWS and step - self.began >= self.steps_per_epoch:
            self._close(step)

    def _close(self, step: int) -> None:
        self.dead = ~self.fired
        self.fired.fill(False)
        self.began, self.rows = step, 0

    @property
    def dead_share(self) -> float:
        """Share of the units that never fired in the last complete window; NaN before its end."""
        return float("nan") if self.dead is None else float(np.mean(self.dead))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current window and the result of the last one."""
        return {
            "fired": self.fired.tolist(),
            "dead": None if self.dead is None else self.dead.tolist(),
            "began": self.began,
            "rows": self.rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.fired[...] = state["fired"]
        self.dead = None if state["dead"] is None else np.array(state["dead"], np.bool_)
        self.began, self.rows = int(state["began"]), int(state["rows"])
