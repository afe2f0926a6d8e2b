"""A network in ONNX: one node or several nodes for each recorded op."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.export._onnx_graph import Graph
from mlpengine.formula import onnx_node, variable
from mlpengine.nn import Network
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.ops import (
    BatchMatMul,
    BatchNorm,
    Cast,
    Cat,
    Chunk,
    Conv2d,
    Detach,
    Elementwise,
    Embedding,
    Gather,
    GradOp,
    IndexSelect,
    LayerNorm,
    Linear,
    LogSumExp,
    MapLookup,
    MatMul,
    Max,
    MaxPool2d,
    Mean,
    Min,
    Reshape,
    Slice,
    StructField,
    Sum,
    Transpose,
    Var,
)
from mlpengine.ops.reductions import Reduction
from mlpengine.tape.record import Record, Value


def write_network(
    graph: Graph, network: Network, inputs: Mapping[str, str], prefix: str = ""
) -> str:
    """Add the network after its `inputs` (rows, ...); return the output (rows, out_dim).

    `inputs` maps the names of the network's inputs to names of float32 or int64 values.  The
    parameters become float32 constants; their names begin with `prefix`.
    """
    views = network.params.views.items()
    check_finite({name: _float32(view) for name, view in views}, "export", UsageError)
    return _Writer(graph, network, prefix).write(inputs)


class _Writer:
    """Adds the nodes of a network, recorded with 2 rows; `names` maps indices of values to names.

    The recording with 3 rows shows which sizes are the number of rows.
    """

    def __init__(self, graph: Graph, network: Network, prefix: str) -> None:
        self.graph, self.network, self.prefix = graph, network, prefix
        self.recording = network.recorded(2, training=False)
        longer = network.recorded(3, training=False).tape.nodes
        self.nodes = {node.index: node for node in longer}
        self.names: dict[int, str] = {}

    def write(self, inputs: Mapping[str, str]) -> str:
        """Add all nodes; return the name of the output."""
        self.names = {x.index: inputs[name] for name, x in self.recording.inputs.items()}
        for record in self.recording.tape.records:
            made = _node(self, record)
            values = [made] if isinstance(made, str) else made
            self.names |= {y.index: name for y, name in zip(record.outputs, values, strict=True)}
        return self.names[self.recording.output.index]

    def name(self, value: Value | None) -> str:
        """Return the name of a value, "" for None; add a parameter's constant at its first use."""
        if value is None:
            return ""
        if value.index not in self.names:
            parameter = value.kind == "parameter"
            array: Array | None = getattr(value, "array", None)
            array = self.network.params.views[value.name] if parameter else array
            if array is None or self.nodes[value.index].spec != value.spec:
                raise UsageError(
                    f"export: {value.name} must not depend on the number of rows (it is "
                    f"{value.spec} for 2, and {self.nodes[value.index].spec} for 3)"
                )
            name = self.prefix + value.name if parameter else None
            kept = array if array.dtype.kind == "i" else _float32(array)
            self.names[value.index] = self.graph.constant(kept, name)
        return self.names[value.index]

    def shape(self, value: Value) -> str:
        """Return the name of a constant: the shape of a value, with -1 for the axis of rows."""
        sizes = zip(value.spec.shape, self.nodes[value.index].spec.shape, strict=True)
        shape = [-1 if one != other else one for one, other in sizes]
        if shape.count(-1) > 1:
            raise UsageError(f"export: rows must be one axis (got {value.spec} for 2 rows)")
        return self.graph.constant(np.array(shape, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.graph.node(op, *inputs, **attributes)


FLOAT = 1
"""ONNX's number for the type float32."""

STANDARD = {
    "elu": "Elu",
    "leaky_relu": "LeakyRelu",
    "log_softmax": "LogSoftmax",
    "relu": "Relu",
    "selu": "Selu",
    "softmax": "Softmax",
}
"""ONNX operators with the same operand and options as the op of this name."""


def _node(writer: _Writer, record: Record) -> str | list[str]:
    """Add the nodes of an op; return the names of its outputs."""
    op, operands = record.op, [writer.name(x) for x in record.operands]
    if op.name in STANDARD:
        return write_activation(writer.graph, op, *operands)
    if isinstance(op, Elementwise):
        named = {name: writer.name(x) for name, x in record.named_operands.items()}
        return write_formula(writer.graph, op, named)
    rule = next((ONNX_OPS[kind] for kind in type(op).__mro__ if kind in ONNX_OPS), None)
    if rule is None:
        raise UsageError(f"export: every op must have an ONNX form (got {op.name!r})")
    return rule(writer, record, op, *operands)


def write_activation(graph: Graph, op: GradOp, x: str) -> str:
    """Add an activation to `x`: one ONNX operator, or the nodes of its formula."""
    if op.name in STANDARD:
        return graph.node(STANDARD[op.name], x, **(asdict(op) if is_dataclass(op) else {}))
    assert isinstance(op, Elementwise)
    return write_formula(graph, op, {"x": x})


def write_formula(graph: Graph, op: Elementwise, operands: Mapping[str, str]) -> str:
    """Add the nodes of an op's formula; `operands` maps names of operands to names of values."""
    given = {variable(name): value for name, value in operands.items()}
    y = onnx_node(op.formulas.y, given, graph.node, lambda value: scalar(graph, value))
    if op.formulas.y.number is None:
        return y
    # a constant formula, such as x**0, needs the shape of its operand
    return graph.node("Expand", y, graph.node("Shape", *operands.values()))


def scalar(graph: Graph, value: float) -> str:
    """Return a float32 constant."""
    return graph.constant(_float32(value))


def _float32(array: Any) -> Any:
    with np.errstate(over="ignore"):  # a constant beyond float32 is infinite
        return np.asarray(array, np.float32)


def _linear(writer: _Writer, record: Record, op: Linear, x: str, w: str, b: str = "") -> str:
    if len(record.outputs[0].spec.shape) == 2:
        bias = [b] if b else []
        return writer.node("Gemm", x, w, *bias, transB=1)
    y = writer.node("MatMul", x, writer.node("Transpose", w, perm=[1, 0]))
    return writer.node("Add", y, b) if b else y


def _layer_norm(
    writer: _Writer, record: Record, op: LayerNorm, x: str, scale: str = "", bias: str = ""
) -> str:
    features = record.outputs[0].spec.shape[-1]
    scale = scale or writer.graph.constant(np.ones(features, np.float32))
    shift = [bias] if bias else []
    return writer.node("LayerNormalization", x, scale, *shift, axis=-1, epsilon=op.eps)


def _batch_norm(
    writer: _Writer, record: Record, op: BatchNorm, x: str, scale: str = "", bias: str = ""
) -> str:
    running = op.running
    if running is None or op.training:
        raise UsageError("export: batch_norm must have running statistics, and not train")
    mean, variance = (writer.graph.constant(_float32(a)) for a in (running.mean, running.variance))
    scale = scale or writer.graph.constant(np.ones(running.mean.shape, np.float32))
    bias = bias or writer.graph.constant(np.zeros(running.mean.shape, np.float32))
    return writer.node("BatchNormalization", x, scale, bias, mean, variance, epsilon=op.eps)


def _convolution(writer: _Writer, record: Record, op: Conv2d, x: str, w: str, b: str = "") -> str:
    options = {"strides": _pair(op.stride), "dilations": _pair(op.dilation), "group": op.groups}
    bias = [b] if b else []
    return writer.node("Conv", x, w, *bias, pads=_pair(op.padding) * 2, **options)


def _max_pool(writer: _Writer, record: Record, op: MaxPool2d, x: str) -> str:
    kernel = _pair(op.kernel)
    strides = kernel if op.stride is None else _pair(op.stride)
    pads = _pair(op.padding) * 2
    return writer.node("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads)


def _pair(size: int | tuple[int, int]) -> list[int]:
    return [size, size] if isinstance(size, int) else [*size]


def _cast(writer: _Writer, record: Record, op: Cast, x: str) -> str:
    """Return floats unchanged, because all are float32, and integers as float32."""
    operand = record.operands[0]
    assert operand is not None
    return x if operand.spec.is_float else writer.node("Cast", x, to=FLOAT)


def _chunk(writer: _Writer, record: Record, op: Chunk, x: str) -> list[str]:
    length = record.outputs[0].spec.shape[op.axis]
    return [
        _sliced(writer, x, {op.axis: slice(k * length, (k + 1) * length)}) for k in range(op.parts)
    ]


def _section(writer: _Writer, record: Record, op: StructField | MapLookup, x: str) -> str:
    operand = record.operands[0]
    assert operand is not None
    return _sliced(writer, x, {op.axis: slice(*op.bounds(operand.spec.shape[op.axis]))})


def _slice(writer: _Writer, record: Record, op: Slice, x: str) -> str:
    """Slice along the axes, then reshape, because integer indices remove their axes."""
    operand = record.operands[0]
    assert operand is not None
    entries = [one for one in op.entries() if one is not None]
    rank = len(operand.spec.shape)
    if ... in entries:
        at = entries.index(...)
        entries[at : at + 1] = [slice(None)] * (rank - len(entries) + 1)
    parts: dict[int, slice] = {}
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            if entry != slice(None):
                parts[axis] = entry
        else:
            first = int(entry)
            parts[axis] = slice(first, None if first == -1 else first + 1)
    y = _sliced(writer, x, parts) if parts else x
    return writer.node("Reshape", y, writer.shape(record.outputs[0]))


def _sliced(writer: _Writer, x: str, parts: Mapping[int, slice]) -> str:
    """Add a slice along axes; a start or stop of None is the end of the axis."""
    far = np.iinfo(np.int64).max
    steps = [1 if part.step is None else part.step for part in parts.values()]
    starts = [
        (0 if step > 0 else far) if part.start is None else part.start
        for part, step in zip(parts.values(), steps, strict=True)
    ]
    stops = [
        (far if step > 0 else -far) if part.stop is None else part.stop
        for part, step in zip(parts.values(), steps, strict=True)
    ]
    each = (np.array(numbers, np.int64) for numbers in (starts, stops, [*parts], steps))
    return writer.node("Slice", x, *map(writer.graph.constant, each))


def _transpose(writer: _Writer, record: Record, op: Transpose, x: str) -> str:
    return writer.node("Transpose", x, **({} if op.axes is None else {"perm": list(op.axes)}))


def _gather(writer: _Writer, record: Record, op: Gather, x: str, index: str) -> str:
    """Repeat the axes of length 1, then gather, because GatherElements does not broadcast."""
    first = {op.axis: slice(0, 1)}
    shapes = [writer.node("Shape", _sliced(writer, value, first)) for value in (index, x)]
    wide = [writer.node("Expand", *pair) for pair in zip((x, index), shapes, strict=True)]
    return writer.node("GatherElements", *wide, axis=op.axis)


def _reduction(writer: _Writer, record: Record, op: Reduction, x: str) -> str:
    operand = record.operands[0]
    assert operand is not None
    keepdims = int(op.keepdims)
    axes = writer.graph.constant(np.array([*op.axes(operand.spec)], np.int64))
    if isinstance(op, Var):
        centered = writer.node("Sub", x, writer.node("ReduceMean", x, axes, keepdims=1))
        square = writer.node("Mul", centered, centered)
        mean = writer.node("ReduceMean", square, axes, keepdims=keepdims)
        count = op.count(operand.spec)
        if not op.ddof:
            return mean
        return writer.node("Mul", mean, scalar(writer.graph, count / (count - op.ddof)))
    return writer.node(REDUCTIONS[type(op)], x, axes, keepdims=keepdims)


REDUCTIONS: dict[type, str] = {
    LogSumExp: "ReduceLogSumExp",
    Max: "ReduceMax",
    Mean: "ReduceMean",
    Min: "ReduceMin",
    Sum: "ReduceSum",
}

ONNX_OPS: dict[type, Callable[..., str | list[str]]] = {
    BatchMatMul: lambda writer, _record, _op, a, b: writer.node("MatMul", a, b),
    BatchNorm: _batch_norm,
    Cast: _cast,
    Cat: lambda writer, _record, op, *xs: writer.node("Concat", *xs, axis=op.axis),
    Chunk: _chunk,
    Conv2d: _convolution,
    Detach: lambda _writer, _record, _op, x: x,
    LayerNorm: _layer_norm,
    Linear: _linear,
    MapLookup: _section,
    MatMul: lambda writer, _record, _op, a, b: writer.node("MatMul", a, b),
    MaxPool2d: _max_pool,
    Gather: _gather,
    Embedding: lambda writer, _record, _op, x, index: writer.node("Gather", x, index, axis=0),
    IndexSelect: lambda writer, _record, op, x, index: writer.node(
        "Gather", x, index, axis=op.axis
    ),
    Reduction: _reduction,
    Reshape: lambda writer, record, _op, x: writer.node(
        "Reshape", x, writer.shape(record.outputs[0])
    ),
    Slice: _slice,
    StructField: _section,
    Transpose: _transpose,
}
"""Functions that add the nodes of an op, by class of the op.

They get the writer, the record, the op and the names of the operands, and return the name of the
output, or a list of names.
"""
