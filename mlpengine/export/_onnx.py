"""A model as one ONNX graph: preprocessing, network, and conversion of the outputs."""

import json

from mlpengine.core.errors import importing
from mlpengine.export._exported import Exported
from mlpengine.models.model import Model
from mlpengine.nn import Network

with importing("export to ONNX", "onnx"):
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

from mlpengine.export._onnx_columns import write_preprocessing
from mlpengine.export._onnx_graph import Graph
from mlpengine.export._onnx_network import write_network
from mlpengine.export._onnx_outputs import write_mean, write_outputs
from mlpengine.export._onnx_verify import verify


def to_onnx(model: Model | Network) -> tuple[bytes, Exported]:
    """Return an ONNX model and its description; compare its outputs with mlpengine's outputs.

    The ONNX model of a `Network` reads its inputs (rows, ...), float32 or int64, by name, and
    returns ``output``; a single input has the name ``input``.  The ONNX model of a `Model` reads
    the table's columns by name, each (rows, 1), and returns the outputs of `write_outputs`.

    Raises: UsageError for a part without an ONNX form; NumericalError if the outputs differ.
    """
    if isinstance(model, Network):
        graph = Graph(model.in_shapes)
        kinds = {n: "int64" if d.kind == "i" else "float32" for n, d in model.in_dtypes.items()}
        inputs = {
            name: graph.input(name or "input", kinds[name], *shape)
            for name, shape in model.in_shapes.items()
        }
        graph.output(write_network(graph, model, inputs), "output", "float32", model.outputs)
        data = graph.build(repr(model), {})
    else:
        graph = Graph(model.preprocessor.columns)
        x = write_preprocessing(graph, model.preprocessor)
        outputs = [
            write_network(graph, network, {"": x}, f"member_{k}." if model.populations else "")
            for k, network in enumerate(model.networks)
        ]
        combined = write_mean(graph, model, outputs) if model.populations else outputs[0]
        write_outputs(graph, model, combined)
        data = graph.build(repr(model), _metadata(model))
    return data, Exported("onnx", graph.inputs, graph.outputs, verify(data, model))


def _metadata(model: Model) -> dict[str, str]:
    target = model.preprocessor.target
    return {
        "task": str(model.preprocessor.task),
        "target": json.dumps(target.columns if target else []),
        "columns": json.dumps(getattr(model.task, "column_names", [])),
        "classes": json.dumps(model.preprocessor.classes),
        "where": model.preprocessor.options.where or "",
    }
