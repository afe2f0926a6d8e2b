"""Detection of units that never fire or that saturate."""

from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.diagnostics.thresholds import MIN_WINDOW_ROWS, SATURATION_POINT
from mlpengine.formula import evaluate, variable
from mlpengine.ops import Activation, FormulaActivation, GradOp


def range_of(op: GradOp | None) -> tuple[float, float]:
    """Return the bounds of the values of an activation."""
    return op.range if isinstance(op, Activation) else (-inf, inf)


@lru_cache
def rectifies(op: GradOp | None) -> bool:
    """Return whether an activation is 0 for every negative input, so that a unit can die."""
    if not isinstance(op, Activation | FormulaActivation):
        return False
    value = _value(op, np.array([-1e3, -1.0, -1e-3, 1e3]))  # a custom formula has no range
    return not value[:3].any() and bool(value[3])


def is_saturated(op: GradOp | None, y: Array) -> Array:
    """Return a mask of the values of a bounded activation that are near one of its bounds."""
    low, high = range_of(op)
    near: Array = np.abs(2 * y - (low + high)) > SATURATION_POINT * (high - low)
    return near


def _value(op: Any, x: Array) -> Array:
    return evaluate(op.formula(variable("x")), {"x": x})


class UnitWindow:
    """A record of when the units of a rectifier layer were last positive.

    A unit is dead if it was 0 for `steps_per_epoch` steps and `MIN_WINDOW_ROWS` measured rows.

    Attributes:
        dead: (units,), whether a unit is dead, or None before so many steps and rows.
        rows: number of measured rows.
        last_row: (units,), the number of measured rows when a unit was last positive, or 0.
        last_step: (units,), the step when a unit was last positive, or 0.
    """

    def __init__(self, units: int, dtype: np.dtype[Any], steps_per_epoch: int) -> None:
        self.last_row: Array = np.zeros(units, np.int64)
        self.last_step: Array = np.zeros(units, np.int64)
        self.dead: Array | None = None
        self.rows, self.steps_per_epoch = 0, steps_per_epoch
        self._largest = np.empty(units, dtype)

    def add(self, y: Array, step: int) -> None:
        """Add the activations (batch, units) of a step."""
        self.rows += len(y)
        positive = np.maximum.reduce(y, 0, out=self._largest) > 0.0
        self.last_row[positive], self.last_step[positive] = self.rows, step
        if self.rows >= MIN_WINDOW_ROWS and step >= self.steps_per_epoch:
            few = self.rows - self.last_row < MIN_WINDOW_ROWS
            self.dead = ~(few | (step - self.last_step < self.steps_per_epoch))

    @property
    def dead_share(self) -> float:
        """Share of dead units; NaN if too few rows were measured."""
        return float("nan") if self.dead is None else float(np.mean(self.dead))

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {
            "last_row": self.last_row.tolist(),
            "dead": None if self.dead is None else self.dead.tolist(),
            "last_step": self.last_step.tolist(),
            "rows": self.rows,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.last_row[...], self.last_step[...] = state["last_row"], state["last_step"]
        self.dead = None if state["dead"] is None else np.array(state["dead"], np.bool_)
        self.rows = int(state["rows"])
