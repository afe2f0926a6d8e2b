"""The quantities of a sample, their positions in the sample, and the samples of a run.

A sample is a list of floats: first the quantities of the whole network, then a block of equal
length for each layer.  NaN marks a quantity that a layer lacks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.diagnostics.thresholds import CAPACITY

NET_QUANTITIES = {
    "loss": "mean loss of the batch",
    "lr": "learning rate of the step",
    "gradient_norm": "global norm of the gradients before clipping",
    "clipped_norm": "global norm of the gradients after clipping",
    "clipped_share": "share of the steps since the last sample that were clipped",
    "spikes": "steps so far with a norm far above the running mean",
    "depth_slope": "log10 of (gradient RMS of the first layer / gradient RMS of the last layer)",
    "input_mean": "mean of the input",
    "input_std": "standard deviation of the input",
    "example_norm_median": "median of the norms of the rows' gradients",
    "example_norm_max": "largest norm of a row's gradient",
    "hardest_row": "row with the largest norm",
    "gradient_variance": "trace S of the covariance of the rows' gradients",
    "squared_gradient_norm": "unbiased squared norm of the expected gradient",
    "noise_scale": "running mean of S / running mean of the unbiased squared norm, in rows",
}
"""Quantities of the whole network."""

LAYER_QUANTITIES = {
    "gradient_rms": "root mean square of the gradient of the weights, before clipping",
    "update_ratio": "norm of the update of the weights / norm of the weights",
    "activation_mean": "mean of the activations",
    "activation_std": "standard deviation of the activations",
    "dead_share": "share of the units that were 0 on the last 256 measured rows and for an epoch",
    "saturated_share": "share of the activations beyond 0.97 of the range, if it is bounded",
}
"""Quantities of each layer."""

NET_INDEX = {name: index for index, name in enumerate(NET_QUANTITIES)}
LAYER_INDEX = {name: index for index, name in enumerate(LAYER_QUANTITIES)}


def median(values: Array) -> float:
    """Return the median of the entries that are not NaN, or NaN if there are none."""
    known = np.sort(values[~np.isnan(values)])  # np.median would import numpy.ma in 9 ms
    middle = known[(known.size - 1) // 2 : known.size // 2 + 1]
    return float(middle.mean()) if known.size else nan


@dataclass(frozen=True, repr=False)
class Columns:
    """Positions of the quantities in a sample of a network with `layers` layers."""

    layers: int

    def __len__(self) -> int:
        return len(NET_QUANTITIES) + self.layers * len(LAYER_QUANTITIES)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield layer ("" for the network, else its number as text) and quantity, in order."""
        yield from (("", name) for name in NET_QUANTITIES)
        for layer in range(self.layers):
            yield from ((str(layer), name) for name in LAYER_QUANTITIES)

    def start(self, layer: int) -> int:
        """Return the start of a layer's block."""
        return len(NET_QUANTITIES) + layer * len(LAYER_QUANTITIES)

    def index(self, quantity: str, layer: int | None = None) -> int:
        """Return the position of a quantity of a layer, or of the network for None."""
        if layer is None:
            return NET_INDEX[quantity]
        return self.start(layer) + LAYER_INDEX[quantity]

    def indices(self, quantity: str) -> list[int]:
        """Return the positions of a quantity, one for each layer."""
        return [self.index(quantity, layer) for layer in range(self.layers)]


class Series:
    """Evenly spaced samples of a run; if the list is full, every second sample is dropped."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._steps = np.zeros(CAPACITY, np.int64)
        self._values = np.full((CAPACITY, len(columns)), np.nan)
        self._stride, self._appended, self._length = 1, 0, 0

    def __len__(self) -> int:
        return self._length

    @property
    def steps(self) -> Array:
        """Steps of the kept samples, oldest first.  Shape: (samples,)."""
        return self._steps[: self._length]

    def append(self, step: int, values: list[float]) -> None:
        """Keep every `stride`-th sample; a full list doubles the stride."""
        self._appended += 1
        if (self._appended - 1) % self._stride:
            return
        if self._length == CAPACITY:
            half = CAPACITY // 2
            self._steps[:half] = self._steps[::2]
            self._values[:half] = self._values[::2]
            self._length, self._stride = half, 2 * self._stride
            if (self._appended - 1) % self._stride:
                return
        self._steps[self._length] = step
        self._values[self._length] = values
        self._length += 1

    def of(self, quantity: str, layer: int | None = None) -> Array:
        """Return the values of a quantity in all kept samples; NaN if not measured."""
        return self._values[: self._length, self.columns.index(quantity, layer)]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all samples and the stride."""
        return {
            "steps": self.steps.copy(),
            "values": self._values[: self._length].copy(),
            "stride": self._stride,
            "appended": self._appended,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._length = len(state["steps"])
        self._steps[: self._length] = state["steps"]
        self._values[: self._length] = state["values"]
        self._stride, self._appended = max(1, int(state["stride"])), int(state["appended"])
