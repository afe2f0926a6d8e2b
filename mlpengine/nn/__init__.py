"""Networks, their buffers and their gradients."""

from mlpengine.nn.front import Front
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.initializers import INITIALIZERS
from mlpengine.nn.layers import ACTIVATIONS
from mlpengine.nn.mlp import Mlp
from mlpengine.nn.network import Network
from mlpengine.nn.scratch import Scratch

__all__ = ["ACTIVATIONS", "INITIALIZERS", "Front", "Gradients", "Mlp", "Network", "Scratch"]
