"""The network in ONNX: dense layers and every activation."""

from typing import Any

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.export._graph import Graph
from mlpengine.formula import onnx_node, variable
from mlpengine.nn import Mlp
from mlpengine.nn.layers import activation_to_dict
from mlpengine.ops import Elementwise, GradOp


def write_network(graph: Graph, mlp: Mlp, x: str, prefix: str = "") -> str:
    """Add the layers after float32 `x` (rows, in_dim); return the output (rows, out_dim).

    Weights are float32 whatever the network's dtype, and keep their names, after `prefix`.
    """
    for layer in mlp.layers:
        names = layer.weight_name, layer.bias_name
        parameters = (graph.constant(_float32(mlp.params.views[n]), prefix + n) for n in names)
        x = graph.node("Gemm", x, *parameters, transB=1)
        x = write_activation(graph, layer.activation, x)
    return x


def scalar(graph: Graph, value: float) -> str:
    """Return a float32 constant."""
    return graph.constant(np.array(value, np.float32))


def _float32(array: Any) -> Any:
    return np.asarray(array, np.float32)


STANDARD = {
    "elu": "Elu",
    "leaky_relu": "LeakyRelu",
    "log_softmax": "LogSoftmax",
    "relu": "Relu",
    "selu": "Selu",
    "softmax": "Softmax",
}
"""ONNX operators that equal an activation with its options, by the activation's name."""


def write_activation(graph: Graph, op: GradOp | None, x: str) -> str:
    """Add an activation to `x`: the operator that it is, or the nodes of its formula."""
    options = activation_to_dict(op)
    name = options.pop("name")
    if op is None:
        return x
    if name in STANDARD:
        return graph.node(STANDARD[name], x, **options)
    if not isinstance(op, Elementwise):
        raise UsageError(f"export: activation {name!r} has no ONNX form")
    given = {variable("x"): x}
    return onnx_node(op.formulas.y, given, graph.node, lambda value: scalar(graph, value))
