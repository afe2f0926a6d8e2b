"""Comparison of an ONNX model with mlpengine's forward on random rows."""

from typing import Any

import numpy as np
import onnxruntime

from mlpengine.errors import NumericalError
from mlpengine.export._onnx_feed import RANDOM_ROWS, onnx_inputs, probe_table
from mlpengine.export._onnx_outputs import label_array
from mlpengine.models.model import Model
from mlpengine.models.task import MultiLabel, Regression
from mlpengine.nn import Network
from mlpengine.spec import Array
from mlpengine.tables import Table

EXPORT_TOLERANCE = 1e-5
"""Largest difference allowed: of probabilities, or of numbers as the network learned them, and
then relative to the largest of them if that is beyond 1."""


def verify(data: bytes, model: Model | Network) -> float:
    """Return the largest difference between an ONNX model and our own forward.

    Raises: NumericalError if it exceeds `EXPORT_TOLERANCE`.
    """
    if isinstance(model, Network):
        x = (
            np.random.default_rng(0)
            .standard_normal((RANDOM_ROWS, *model.in_shape))
            .astype(np.float32)
        )
        (outputs,) = run_onnx(data, {"input": x})
        difference = _largest(outputs, model.predict(x))
    else:
        table = probe_table(model.preprocessor)
        difference = largest_difference(
            model, table, run_onnx(data, onnx_inputs(model.preprocessor, table))
        )
    if not difference <= EXPORT_TOLERANCE:
        raise NumericalError(
            f"export: onnxruntime must return what our own forward does, to {EXPORT_TOLERANCE:g} "
            f"(they differ by {difference:.3g})"
        )
    return difference


def run_onnx(data: bytes, feed: dict[str, Array]) -> list[Any]:
    """Return the outputs of an ONNX model, computed on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    outputs: list[Any] = session.run(None, feed)
    return outputs


def largest_difference(model: Model, table: Table, outputs: list[Any]) -> float:
    """Return how far `outputs` for a table are from our own; infinity where a label differs."""
    ours, task = model.forward(model.features(table)), model.task
    if isinstance(task, Regression):
        expected = np.stack([*task.columns(ours).values()], axis=1)
        count, theirs = len(task.loss.predictions), outputs[0]
        if task.target.log:
            expected, theirs = np.log(expected), np.log(theirs)
        center, scale = (np.repeat(a, count) for a in (task.target.center, task.target.scale))
        return _largest((theirs - center) / scale, (expected - center) / scale)
    chances = task.probabilities(ours)
    assert chances is not None
    labels = task.predict(ours)
    if isinstance(task, MultiLabel):
        sure = np.abs(chances - 0.5) > EXPORT_TOLERANCE
    else:
        labels = label_array(model.preprocessor.classes)[labels]
        ordered = np.sort(chances, axis=1)
        sure = ordered[:, -1] - ordered[:, -2] > 2 * EXPORT_TOLERANCE
    agree = bool((outputs[1] == labels)[sure].all())
    return _largest(outputs[0], chances) if agree else np.inf


def _largest(outputs: Array, ours: Array) -> float:
    """Return the largest difference, relative to our own largest value if that is beyond 1."""
    wide = ours.astype(np.float64)
    scale = np.abs(wide).max(axis=0, initial=1.0)
    return float((np.abs(outputs - wide) / scale).max(initial=0.0))
