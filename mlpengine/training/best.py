"""The best epoch of a run: the metric that selects it, and its weights."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from mlpengine.core.errors import CheckpointError
from mlpengine.core.spec import Array
from mlpengine.models.metrics import higher_is_better
from mlpengine.settings import EarlyStopping
from mlpengine.training.history import EpochRow


class Best:
    """The best epoch so far, with its weights; the newest epoch if there is no validation."""

    def __init__(self, params: Array, rule: EarlyStopping) -> None:
        self.params, self.weights = params, params.copy()
        self.sign = -1.0 if higher_is_better(rule.monitor) else 1.0
        self.rule = rule
        self.epoch = 0
        self.value = self.reference = inf
        self.waited = 0

    def value_of(self, validation: Mapping[str, float]) -> float:
        """Return the monitored metric, negated if higher is better; -inf without validation."""
        return self.sign * validation[self.rule.monitor] if validation else -inf

    def update(self, epoch: int, validation: Mapping[str, float]) -> None:
        """Compare an epoch with the best epoch so far.

        An epoch with a nonfinite validation loss or monitored metric is never the best.  The best
        epoch is the one with the best value; waiting begins anew when the value is better by more
        than `min_delta` than when it last began.
        """
        value, self.waited = self.value_of(validation), self.waited + 1
        if validation and not (isfinite(value) and isfinite(validation["loss"])):
            return
        if value < self.value or not validation:
            self.value, self.epoch = value, epoch
            self.weights[...] = self.params
        if value < self.reference - self.rule.min_delta or not validation:
            self.reference, self.waited = value, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the best epoch, its value and its weights, without copying the weights."""
        names = ("weights", "epoch", "value", "reference", "waited")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        if state["weights"].shape != self.weights.shape:
            raise CheckpointError(
                f"best: the weights must be of this network (got {state['weights'].shape})"
            )
        self.weights[...] = state["weights"]
        self.epoch, self.waited = int(state["epoch"]), int(state["waited"])
        self.value, self.reference = float(state["value"]), float(state["reference"])


def choose_together(group: Sequence[Best], rows: Sequence[EpochRow]) -> None:
    """Update the best epoch of each network by the mean scores of the other networks.

    Networks with nonfinite scores in `rows` are left out of the means.
    """
    keys = {"loss", group[0].rule.monitor}
    measured = [row.validation for row in rows]
    sound = [all(isfinite(row[key]) for key in keys) for row in measured]
    for k, best in enumerate(group):
        others = [row for j, row in enumerate(measured) if sound[j] and j != k]
        chosen = measured[k]
        if sound[k]:
            chosen = {
                key: float(np.mean([row[key] for row in others])) if others else nan for key in keys
            }
        best.update(rows[k].epoch, chosen)
