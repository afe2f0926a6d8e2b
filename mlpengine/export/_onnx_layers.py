"""The network in ONNX: front, dense layers and every activation."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.export._onnx_graph import Graph
from mlpengine.formula import onnx_node, variable
from mlpengine.nn import Mlp
from mlpengine.nn.front import EMBEDDING, MASK, SCALE
from mlpengine.nn.layers import activation_to_dict
from mlpengine.ops import Elementwise, GradOp, LearnedActivation


def write_network(graph: Graph, mlp: Mlp, x: str, prefix: str = "") -> str:
    """Add the network after float32 `x` (rows, in_dim); return the output (rows, out_dim).

    Parameters are float32 whatever the network's dtype, and keep their names, after `prefix`.
    """

    def parameter(name: str) -> str:
        return graph.constant(_float32(mlp.params.views[name]), prefix + name)

    if mlp.front is not None:
        x = _write_front(graph, mlp, x, parameter)
    for layer in mlp.layers:
        weight, bias = parameter(layer.weight_name), parameter(layer.bias_name)
        x = graph.node("Gemm", x, weight, bias, transB=1, alpha=layer.factor)
        if layer.alpha_name is not None and isinstance(layer.activation, Elementwise):
            learned = LearnedActivation.of(layer.activation)
            x = write_formula(graph, learned, {"x": x, "alpha": parameter(layer.alpha_name)})
        else:
            x = write_activation(graph, layer.activation, x)
    return x


def _write_front(graph: Graph, mlp: Mlp, x: str, parameter: Callable[[str], str]) -> str:
    """Add the embedding, the scaling layer and the mask."""
    views = mlp.params.views
    if f"{EMBEDDING}.frequency" in views:
        embedded, waves = views[f"{EMBEDDING}.frequency"].shape
        ends = (graph.constant(np.array([n])) for n in (0, embedded, 1))
        part = graph.node("Slice", x, *ends)
        columns = graph.node("Reshape", part, graph.constant(np.array([-1, embedded, 1])))
        angle = graph.node("Mul", columns, parameter(f"{EMBEDDING}.frequency"))
        angle = graph.node("Mul", angle, scalar(graph, 2 * np.pi))
        made = graph.node("Cos", graph.node("Add", angle, parameter(f"{EMBEDDING}.phase")))
        outputs = waves
        if f"{EMBEDDING}.weight" in views:
            outputs = views[f"{EMBEDDING}.weight"].shape[1]
            weight = parameter(f"{EMBEDDING}.weight")
            made = graph.node("Einsum", made, weight, equation="rjk,jqk->rjq")
            made = graph.node("Add", made, parameter(f"{EMBEDDING}.bias"))
        flat = graph.constant(np.array([-1, embedded * outputs]))
        x = graph.node("Concat", x, graph.node("Reshape", made, flat), axis=1)
    for name in (SCALE, MASK):
        if name in views:
            x = graph.node("Mul", x, parameter(name))
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
        raise UsageError(f"export: an activation must have an ONNX form (got {name!r})")
    return write_formula(graph, op, {"x": x})


def write_formula(graph: Graph, op: Elementwise, operands: Mapping[str, str]) -> str:
    """Add the nodes of an op's formula; `operands` are the names of its operands' values."""
    given = {variable(name): value for name, value in operands.items()}
    return onnx_node(op.formulas.y, given, graph.node, lambda value: scalar(graph, value))
