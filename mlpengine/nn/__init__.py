"""Networks, their buffers and their gradients."""

from mlpengine.nn.gradients import Gradients
from mlpengine.nn.initializers import INITIALIZERS
from mlpengine.nn.layers import ACTIVATIONS
from mlpengine.nn.mlp import Mlp
from mlpengine.nn.network import Network
from mlpengine.nn.population import Population
from mlpengine.nn.residual import Residual
from mlpengine.nn.scratch import Scratch
from mlpengine.nn.tabular import TabularNetwork

NETWORKS: dict[str, type[TabularNetwork]] = {"mlp": Mlp, "residual": Residual}
"""Network classes by the name in a config."""

__all__ = [
    "ACTIVATIONS",
    "INITIALIZERS",
    "NETWORKS",
    "Gradients",
    "Mlp",
    "Network",
    "Population",
    "Residual",
    "Scratch",
    "TabularNetwork",
]
