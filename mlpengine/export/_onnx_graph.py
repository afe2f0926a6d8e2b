"""A builder of ONNX graphs."""

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlpengine.core.spec import Array

OPSET, IR = 20, 9
"""First versions with the operator RegexFullMatch; onnxruntime 1.17 and later read them."""

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "string": TensorProto.STRING,
}


class Graph:
    """An ONNX graph under construction: nodes and constants.

    Methods return names of values; all names are unique.  `taken` has names that are in use.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._numbers = count()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: dict[str, tuple[str, list[str | int]]] = {}
        self._outputs: dict[str, tuple[str, list[str | int]]] = {}

    def input(self, name: str, dtype: str, *shape: int) -> str:
        """Declare an input (rows, *shape) and return its name."""
        self._inputs[name] = (dtype, ["rows", *shape])
        return name

    def constant(self, array: Array, name: str | None = None) -> str:
        """Return the name of a constant."""
        name = self.unique(name or "constant")
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return the name of the output."""
        name = self.unique(op.lower())
        made = helper.make_node(op, list(inputs), [name], **attributes)
        self._nodes.append(made)
        return name

    def ascending(self, value: str, count: int, axis: int) -> str:
        """Add a node that sorts the `count` values along an axis; return the name of its output."""
        inputs, outputs = [value, self.constant(np.array([count]))], [*map(self.unique, ("s", "o"))]
        self._nodes.append(helper.make_node("TopK", inputs, outputs, axis=axis, largest=0))
        return outputs[0]

    def cast(self, value: str, dtype: str) -> str:
        """Add a cast; return the name of its output."""
        return self.node("Cast", value, to=_TYPES[dtype])

    def output(self, value: str, name: str, dtype: str, columns: int | None) -> str:
        """Make a value an output (rows, columns) or (rows,); return the name of the output."""
        name = self.unique(name, plain=True)
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs[name] = (dtype, ["rows"] if columns is None else ["rows", columns])
        return name

    def unique(self, name: str, *, plain: bool = False) -> str:
        """Return an unused name: `name`, or `name` with a number or underscores appended."""
        free = name if plain or "." in name else f"{name}/{next(self._numbers)}"
        while free in self._taken:
            free += "_"
        self._taken.add(free)
        return free

    @property
    def inputs(self) -> dict[str, str]:
        """Input names with their dtypes."""
        return {name: dtype for name, (dtype, _) in self._inputs.items()}

    @property
    def outputs(self) -> dict[str, str]:
        """Output names with their dtypes."""
        return {name: dtype for name, (dtype, _) in self._outputs.items()}

    def build(self, doc: str, metadata: dict[str, str]) -> bytes:
        """Return the checked model; equal graphs give equal bytes."""
        graph = helper.make_graph(
            self._nodes,
            "mlpengine",
            [helper.make_tensor_value_info(n, _TYPES[t], s) for n, (t, s) in self._inputs.items()],
            [helper.make_tensor_value_info(n, _TYPES[t], s) for n, (t, s) in self._outputs.items()],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR, producer_name="mlpengine", doc_string=doc
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        data: bytes = model.SerializeToString(deterministic=True)
        return data
