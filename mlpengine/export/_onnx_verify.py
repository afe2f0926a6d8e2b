"""Compare an ONNX model with mlpengine on random rows."""

from typing import Any

import numpy as np
import onnxruntime

from mlpengine.core.errors import NumericalError, UsageError
from mlpengine.core.spec import Array
from mlpengine.export._agreement import EXPORT_TOLERANCE, largest_difference, row_errors
from mlpengine.export._onnx_feed import RANDOM_ROWS, onnx_inputs, probe_table
from mlpengine.models.model import Model
from mlpengine.nn import Network

TEXT = 10_000_000
"""Maximum characters in a column of random rows; long labels reduce the number of rows."""

ROUNDING = 10.0
"""A difference of a row may be this many times the effect of rounding."""


def verify(data: bytes, model: Model | Network) -> float:
    """Return the largest difference between the outputs of an ONNX model and our own."""
    if isinstance(model, Network):
        rng, inputs = np.random.default_rng(0), dict[str, Array]()
        for name, shape in model.in_shapes.items():
            if model.in_dtypes[name].kind == "i":  # -1 and 0 are indices of every table
                inputs[name] = rng.integers(-1, 1, (RANDOM_ROWS, *shape))
            else:
                inputs[name] = rng.standard_normal((RANDOM_ROWS, *shape)).astype(np.float32)
        (outputs,) = run_onnx(data, {name or "input": x for name, x in inputs.items()})
        errors = row_errors(outputs, ours := model.predict(inputs.get("", inputs)))
        if not errors.max() <= EXPORT_TOLERANCE:  # a random row may divide by almost 0
            errors[errors <= ROUNDING * rounding_effect(model, inputs, ours)] = 0.0
        difference = float(errors.max())
    else:
        table = probe_table(model.preprocessor)
        texts = [level for column in table.columns.values() for level in column.levels]
        longest = max(map(len, [*texts, *getattr(model.task, "labels", ())]), default=0)
        rows = max(8, TEXT // max(1, longest))
        table = table.rows(np.arange(min(table.n_rows, rows)))
        difference = largest_difference(
            model, table, run_onnx(data, onnx_inputs(model.preprocessor, table))
        )
    if not difference <= EXPORT_TOLERANCE:
        raise NumericalError(
            f"export: onnxruntime and mlpengine must agree to {EXPORT_TOLERANCE:g} (their outputs "
            f"differ by {difference:.3g})"
        )
    return difference


def rounding_effect(model: Network, inputs: dict[str, Array], ours: Array) -> Array:
    """Return how much rounding to float32 changes each row of the outputs `ours`, (rows,).

    This is the largest change in 8 draws; a draw moves each input to one of its two neighbors.
    """
    rng, effect = np.random.default_rng(1), np.zeros(len(ours))
    rounded = model.without_dropout("float32")
    for _ in range(8):
        moved = {
            n: x if x.dtype.kind == "i" else x + np.spacing(x) * rng.choice([-1, 1], x.shape)
            for n, x in inputs.items()
        }
        effect = np.fmax(effect, row_errors(rounded.predict(moved.get("", moved)), ours))
    return effect


def run_onnx(data: bytes, feed: dict[str, Array]) -> list[Any]:
    """Return the outputs of an ONNX model, computed on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # messages are in the exception
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no base class
        reason = f"{error}".partition("\n")[0]
        raise UsageError(
            f"export: onnxruntime must load the model (it says {reason}); shorten long levels"
        ) from None
    outputs: list[Any] = session.run(None, feed)
    return outputs
