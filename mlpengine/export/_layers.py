"""The network in ONNX: dense layers and every activation."""

from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.export._graph import Graph
from mlpengine.nn import Mlp
from mlpengine.nn.layers import describe_activation

Write = Callable[..., str]


def write_network(graph: Graph, mlp: Mlp, x: str) -> str:
    """Add the layers after float32 `x` (rows, in_dim); return the output (rows, out_dim).

    Weights are float32 whatever the network's dtype, and keep their names.
    """
    for layer in mlp.layers:
        names = layer.weight_name, layer.bias_name
        parameters = (graph.constant(_float32(mlp.params.views[n]), n) for n in names)
        x = graph.node("Gemm", x, *parameters, transB=1)
        options = describe_activation(layer.activation)
        name = options.pop("name")
        if name not in ACTIVATIONS:
            raise UsageError(
                f"export: activation {name!r} has no ONNX form (there is: {', '.join(ACTIVATIONS)})"
            )
        x = ACTIVATIONS[name](graph, x, **options)
    return x


def scalar(graph: Graph, value: float) -> str:
    """Return a float32 constant."""
    return graph.constant(np.array(value, np.float32))


def _float32(array: Any) -> Any:
    return np.asarray(array, np.float32)


def _node(op: str) -> Write:
    def write(graph: Graph, x: str, **attributes: Any) -> str:
        return graph.node(op, x, **attributes)

    return write


def _identity(graph: Graph, x: str) -> str:
    return x


def _silu(graph: Graph, x: str) -> str:
    return graph.node("Mul", x, graph.node("Sigmoid", x))


def _gelu(graph: Graph, x: str, approximate: str) -> str:
    if approximate == "none":
        inner = graph.node("Erf", graph.node("Mul", x, scalar(graph, sqrt(0.5))))
    else:
        cube = graph.node("Mul", x, graph.node("Mul", x, x))
        cube = graph.node("Mul", cube, scalar(graph, 0.044715))
        inner = graph.node("Mul", graph.node("Add", x, cube), scalar(graph, sqrt(2 / pi)))
        inner = graph.node("Tanh", inner)
    half = graph.node("Mul", x, scalar(graph, 0.5))
    return graph.node("Mul", half, graph.node("Add", inner, scalar(graph, 1.0)))


ACTIVATIONS: dict[str, Write] = {
    "identity": _identity,
    "elu": _node("Elu"),
    "gelu": _gelu,
    "leaky_relu": _node("LeakyRelu"),
    "log_softmax": _node("LogSoftmax"),
    "relu": _node("Relu"),
    "selu": _node("Selu"),
    "sigmoid": _node("Sigmoid"),
    "silu": _silu,
    "softmax": _node("Softmax"),
    "softplus": _node("Softplus"),
    "tanh": _node("Tanh"),
}
"""By the name of our activation; called with its options."""
