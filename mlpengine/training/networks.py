"""Creation of networks from settings."""

from typing import Any

import numpy as np

from mlpengine.core.errors import at_setting
from mlpengine.core.spec import Array
from mlpengine.nn import Mlp, Residual, TabularNetwork
from mlpengine.nn.tabular import Ranges
from mlpengine.settings import NetworkSettings
from mlpengine.settings.network import OWN_OPTIONS


def ranges_of(read: Array) -> Ranges:
    """Return the ranges where a mask is True; () if it is True everywhere."""
    ends = np.flatnonzero(np.diff(read, prepend=False, append=False)).tolist()
    return () if read.all() else tuple(zip(ends[::2], ends[1::2], strict=True))


def make_network(
    network: NetworkSettings, ends: tuple[int, int], *, seed: int, dtype: Any
) -> TabularNetwork:
    """Return a network; `ends` are the numbers of features and outputs.  Raises: UsageError."""
    layers, activation, dropout = len(network.hidden), network.activation, network.dropout
    own = {name: getattr(network, name) for name in OWN_OPTIONS[network.network]}
    sizes = own.pop("hidden", ())
    own |= {"initializer": network.initializer, "seed": seed, "dtype": dtype}
    with at_setting("network"):
        if network.network == "residual":
            return Residual(*ends, activation=activation[0], dropout=dropout[0], **own)
        return Mlp(
            [ends[0], *sizes, ends[1]],
            activation=activation * (layers if len(activation) == 1 else 1),
            dropout=dropout * (layers if len(dropout) == 1 else 1),
            **own,
        )
