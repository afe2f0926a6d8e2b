"""The outputs of a model in ONNX: numbers in the target's units, or probabilities and labels."""

from collections.abc import Sequence

import numpy as np

from mlpengine.export._agreement import label_array
from mlpengine.export._onnx_graph import Graph
from mlpengine.formula import onnx_node
from mlpengine.models.model import Model
from mlpengine.models.task import BinaryClassification, Classification, MultiLabel, Regression


def write_outputs(graph: Graph, model: Model, x: str) -> None:
    """Add the nodes that convert the network's outputs (rows, out_dim) to predictions.

    Regression: ``prediction`` (rows, columns) float64, in the units of the targets and in the order
    of `Regression.column_names`.  Classification: ``probabilities`` (rows, classes) float32 and
    ``label`` (rows,), int64 if all classes are whole numbers, else text.  Multilabel
    classification: ``probabilities`` (rows, labels) float32 and ``label`` (rows, labels) int64, 0
    or 1.  If a column has the same name, an underscore is appended to the name of the output.
    """
    task = model.task
    if isinstance(task, Regression):
        graph.output(_numbers(graph, task, x), "prediction", "float64", len(task.column_names))
    elif isinstance(task, MultiLabel):
        graph.output(graph.node("Sigmoid", x), "probabilities", "float32", task.outputs)
        graph.output(_positive(graph, x), "label", "int64", task.outputs)
    elif isinstance(task, Classification):
        labels = label_array(model.preprocessor.classes)
        if isinstance(task, BinaryClassification):
            both = [graph.node("Sigmoid", value) for value in (graph.node("Neg", x), x)]
            chances = graph.node("Concat", *both, axis=1)
            codes = graph.node("Reshape", _positive(graph, x), graph.constant(np.array([-1])))
        else:
            chances = graph.node("Softmax", x, axis=1)
            codes = graph.node("ArgMax", x, axis=1, keepdims=0)
            if task.predicts_median:
                ends = [np.array([n], np.int64) for n in (0, len(labels) - 1, 1)]
                below = graph.node("CumSum", chances, graph.constant(np.array(1)))
                below = graph.node("Slice", below, *map(graph.constant, ends))
                half = graph.constant(np.array(0.5, np.float32))
                passed = graph.cast(graph.node("Less", below, half), "int64")
                axis = graph.constant(np.array([1]))
                codes = graph.node("ReduceSum", passed, axis, keepdims=0)
        if threshold := task.threshold:
            place = graph.constant(np.array([threshold.positive]))
            chance = graph.node("Gather", chances, place, axis=1)
            chance = graph.node("Reshape", chance, graph.constant(np.array([-1])))
            limit = graph.constant(np.array(threshold.value, np.float32))
            codes = graph.cast(graph.node("Greater", chance, limit), "int64")
            labels = labels[[1 - threshold.positive, threshold.positive]]
        graph.output(chances, "probabilities", "float32", len(labels))
        dtype = "string" if labels.dtype == object else "int64"
        graph.output(graph.node("Gather", graph.constant(labels), codes), "label", dtype, None)


def _numbers(graph: Graph, task: Regression, x: str) -> str:
    loss, target = task.loss, task.target
    wide, given = graph.cast(x, "float64"), {}
    for k, leaf in enumerate(loss.formulas.outputs):
        ends = [np.array([n], np.int64) for n in (k, task.outputs, 1, loss.columns)]
        given[leaf] = graph.node("Slice", wide, *map(graph.constant, ends))
    values = []
    for prediction in loss.predictions:
        number = lambda value: graph.constant(np.array(value))  # noqa: E731
        y = onnx_node(prediction.formula, given, graph.node, number)
        y = graph.node("Mul", y, graph.constant(target.scale))
        if prediction.location:
            y = graph.node("Add", y, graph.constant(target.center))
            y = graph.node("Exp", y) if target.log else y
            if target.bounds is not None:
                low, high = map(graph.constant, target.bounds)
                y = graph.node("Min", graph.node("Max", y, low), high)
        values.append(graph.node("Unsqueeze", y, graph.constant(np.array([2]))))
    shape = graph.constant(np.array([-1, len(task.column_names)]))
    numbers = graph.node("Concat", *values, axis=2)
    if task.orders:
        numbers = graph.ascending(numbers, len(values), axis=2)
    return graph.node("Reshape", numbers, shape)


def write_mean(graph: Graph, model: Model, outputs: Sequence[str]) -> str:
    """Add the nodes that combine the outputs of several networks, as `Task.combine` does."""
    task = model.task
    weights = [graph.constant(np.array(one, np.float32)) for one in model.mean.network_weights]

    def mean(values: Sequence[str]) -> str:
        parts = (graph.node("Mul", *pair) for pair in zip(values, weights, strict=True))
        return graph.node("Sum", *parts)

    if task.log_link:
        return graph.node("Log", mean([graph.node("Exp", y) for y in outputs]))
    return mean(outputs)


def _positive(graph: Graph, x: str) -> str:
    return graph.cast(graph.node("Greater", x, graph.constant(np.array(0, np.float32))), "int64")
