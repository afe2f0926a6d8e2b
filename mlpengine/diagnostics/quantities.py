"""The names of what diagnostics measure, and where each stands in a sample.

A sample is one list of floats: first the quantities of the whole net, then a block of the same
length for each layer.  NaN stands for what a layer does not have.
"""

from collections.abc import Iterator
from dataclasses import dataclass

NET_QUANTITIES = {
    "loss": "mean loss of the batch",
    "lr": "learning rate of the step",
    "gradient_norm": "global norm of the gradients before clipping",
    "clipped_norm": "global norm of the gradients after clipping",
    "clipped_share": "share of the steps since the last sample that were clipped",
    "spikes": "steps so far whose norm was far above its running mean",
    "depth_slope": "log10 of the gradient RMS of the first layer over that of the last",
    "input_mean": "mean of the input",
    "input_std": "standard deviation of the input",
    "example_norm_median": "median over the rows of the norm of a row's own gradient",
    "example_norm_max": "largest norm of a row's own gradient",
    "example_top_share": "share of the largest hundredth of the rows in the sum of these norms",
    "hardest_row": "row with the largest norm",
    "gradient_variance": "trace S of the covariance of the rows' gradients",
    "squared_gradient_norm": "unbiased squared norm of the expected gradient",
    "noise_scale": "running mean of S over running mean of the unbiased squared norm, in rows",
    "norm_test": "S / (batch size x squared gradient norm)",
}
"""Quantities of the whole net."""

LAYER_QUANTITIES = {
    "gradient_rms": "root mean square of the gradient of the weights, before clipping",
    "update_ratio": "norm of the update of the weights over the norm of the weights",
    "update_cosine": "cosine between the step taken, reversed, and the gradient",
    "activation_mean": "mean of the activations",
    "activation_std": "standard deviation of the activations",
    "pre_activation_max": "largest magnitude of a pre-activation; of relu, largest or 0",
    "zero_share": "share of the activations that are 0 (relu)",
    "dead_share": "share of the units that never fired in the last whole window (relu)",
    "saturated_share": "share of the activations beyond 0.97 of the range (tanh, sigmoid)",
}
"""Quantities of each layer."""

NET_PLACE = {name: place for place, name in enumerate(NET_QUANTITIES)}
LAYER_PLACE = {name: place for place, name in enumerate(LAYER_QUANTITIES)}


@dataclass(frozen=True)
class Columns:
    """Where the quantities of a net with `layers` layers stand in a sample."""

    layers: int

    def __len__(self) -> int:
        return len(NET_QUANTITIES) + self.layers * len(LAYER_QUANTITIES)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield layer ("" for the net, else its number as text) and quantity, in order."""
        yield from (("", name) for name in NET_QUANTITIES)
        for layer in range(self.layers):
            yield from ((str(layer), name) for name in LAYER_QUANTITIES)

    def start(self, layer: int) -> int:
        """Return where the block of a layer begins."""
        return len(NET_QUANTITIES) + layer * len(LAYER_QUANTITIES)

    def place(self, quantity: str, layer: int | None = None) -> int:
        """Return where a quantity stands."""
        if layer is None:
            return NET_PLACE[quantity]
        return self.start(layer) + LAYER_PLACE[quantity]

    def places(self, quantity: str) -> list[int]:
        """Return where a quantity of each layer stands."""
        return [self.place(quantity, layer) for layer in range(self.layers)]
