"""Units that never fire."""

from typing import Any

import numpy as np

from mlpengine.spec import Array

ROWS = 512
"""A window sees at least so many rows: a unit silent on a few rows may well fire on others."""


class UnitWindow:
    """Which units of a rectifier layer were ever positive over a window of steps.

    A window ends when it spans `steps_per_epoch` steps and has seen `ROWS` rows; the next begins
    there.

    Attributes:
        dead: (units,), which units never fired in the last whole window; None before its end.
        fired: (units,), which units have fired in the current one.
    """

    def __init__(self, units: int, dtype: np.dtype[Any], steps_per_epoch: int) -> None:
        self.fired: Array = np.zeros(units, np.bool_)
        self.dead: Array | None = None
        self.began = self.rows = 0
        self.steps_per_epoch = steps_per_epoch
        self._largest = np.empty(units, dtype)
        self._mask = np.empty(units, np.bool_)

    def look(self, y: Array, step: int) -> None:
        """Take in the activations (batch, units) of a step."""
        np.maximum.reduce(y, 0, out=self._largest)
        np.greater(self._largest, 0.0, self._mask)
        np.logical_or(self.fired, self._mask, self.fired)
        self.rows += len(y)
        if self.rows >= ROWS and step - self.began >= self.steps_per_epoch:
            self.close(step)

    def close(self, step: int) -> None:
        """End the window after `step`."""
        self.dead = ~self.fired
        self.fired.fill(False)
        self.began, self.rows = step, 0

    @property
    def dead_share(self) -> float:
        """Share of the units that never fired in the last whole window; NaN before its end."""
        return float("nan") if self.dead is None else float(np.mean(self.dead))

    def state_dict(self) -> dict[str, Any]:
        """Return what the rest of the window depends on."""
        return {
            "fired": self.fired.tolist(),
            "dead": None if self.dead is None else self.dead.tolist(),
            "began": self.began,
            "rows": self.rows,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.fired[...] = state["fired"]
        self.dead = None if state["dead"] is None else np.array(state["dead"], np.bool_)
        self.began, self.rows = state["began"], state["rows"]
