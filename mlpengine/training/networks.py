"""Networks from settings."""

from dataclasses import replace
from typing import Any

import numpy as np

from mlpengine.core.errors import at_setting
from mlpengine.core.spec import Array
from mlpengine.data.features.numbers import Numbers
from mlpengine.nn import InputLayer, Mlp, Residual, TabularNetwork
from mlpengine.settings import NetworkSettings
from mlpengine.settings.network import OWN_OPTIONS


def input_layer_of(network: NetworkSettings, numbers: Numbers | None = None) -> InputLayer | None:
    """Return the input layer (embedding); None if networks read the features themselves.

    The input layer embeds the features in `numbers`, or all features.
    """
    input_layer = network.input_layer
    if input_layer.embedding != "none" and numbers is not None:
        input_layer = replace(input_layer, embedded=len(numbers.sources))
    return None if input_layer == InputLayer() else input_layer


def input_layer_reading(network: TabularNetwork, read: Array) -> InputLayer | None:
    """Return the input layer of a network that reads the inputs of `network` where `read` is True.

    An embedding that is not read is left out.
    """
    input_layer = network.input_layer or InputLayer()
    if not read[network.in_dim :].any():
        input_layer, read = replace(input_layer, embedding="none"), read[: network.in_dim]
    ends = np.flatnonzero(np.diff(read, prepend=False, append=False)).tolist()
    ranges = () if read.all() else tuple(zip(ends[::2], ends[1::2], strict=True))
    input_layer = replace(input_layer, ranges=ranges)
    return None if input_layer == InputLayer() else input_layer


def make_network(
    network: NetworkSettings,
    ends: tuple[int, int],
    *,
    seed: int,
    dtype: Any,
    input_layer: InputLayer | None,
) -> TabularNetwork:
    """Return a network; `ends` are the numbers of features and outputs.  Raises: UsageError."""
    layers, activation, dropout = len(network.hidden), network.activation, network.dropout
    own = {name: getattr(network, name) for name in OWN_OPTIONS[network.network]}
    sizes = own.pop("hidden", ())
    own |= {
        "initializer": network.initializer,
        "seed": seed,
        "dtype": dtype,
        "input_layer": input_layer,
    }
    with at_setting("network"):
        if network.network == "residual":
            return Residual(*ends, activation=activation[0], dropout=dropout[0], **own)
        return Mlp(
            [ends[0], *sizes, ends[1]],
            activation=activation * (layers if len(activation) == 1 else 1),
            dropout=dropout * (layers if len(dropout) == 1 else 1),
            **own,
        )
