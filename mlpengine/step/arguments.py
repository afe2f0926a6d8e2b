"""Checks of a training step's arguments, and the error messages."""

import logging
from collections.abc import Mapping
from typing import Any, NoReturn, get_args

import numpy as np

from mlpengine.backends import BackendName
from mlpengine.core.buffers import unmasked
from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.named import as_rows, check_rows, need_array, need_names
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.network import Network
from mlpengine.ops import Loss, MeanSquaredError
from mlpengine.ops.loss_sum import LossSum
from mlpengine.optim import FullBatch, Optimizer

_log = logging.getLogger("mlpengine")


def loss_of(mlp: Network, loss: Any, weights: Mapping[str, float] | None) -> Any:
    """Return `loss`, or the `LossSum` of a mapping of losses by output name."""
    need("mlp", mlp, Network, "a network such as Mlp([4, 8, 3])")
    if isinstance(loss, Mapping):
        loss = LossSum(loss, weights)
    elif weights is not None:
        raise UsageError("training step: loss_weights must come with a loss for each output")
    else:
        need("loss", loss, Loss, "a loss such as SoftmaxCrossEntropy()")
        if not loss.takes_target:
            text = "name the output in record, and write the loss {'penalty': MeanOutput()}"
            raise UsageError(f"training step: loss must have a target (got {loss.title}); {text}")
    losses = [*loss.losses] if isinstance(loss, LossSum) else [""]
    if {*mlp.out_sizes} != {*losses}:
        wanted = ", ".join(f"{name!r}: ..." for name in mlp.out_sizes if name)
        given = ", ".join(map(repr, filter(None, losses))) or "one loss"
        right = f"a loss for each output, {{{wanted}}}" if wanted else "one loss"
        raise UsageError(f"training step: loss must be {right} (got {given})")
    return loss


def optimizer_of(mlp: Network, optimizer: Any) -> Optimizer:
    """Return `optimizer`.  Raises: UsageError unless the optimizer is made for `mlp`."""
    need("optimizer", optimizer, Optimizer, "an optimizer such as Adam(mlp)")
    if optimizer.params is not mlp.params:
        raise UsageError("training step: optimizer must be made for this network; write Adam(mlp)")
    made: Optimizer = optimizer
    return made


def need(name: str, value: object, kind: type, text: str) -> None:
    """Raise UsageError unless `value` is a `kind`; the message says "`name` must be `text`"."""
    if not isinstance(value, kind):
        raise UsageError(f"training step: {name} must be {text} (got {quoted(value)})")


def backend_of(backend: str) -> tuple[str, str]:
    """Return the backend to use; for ``auto``, also the reason for NumPy, or ""."""
    if backend not in get_args(BackendName):
        names = ", ".join(get_args(BackendName))
        raise UsageError(f"backend: must be one of {names} (got {backend!r})")
    if backend != "auto":
        return backend, ""
    from mlpengine.step.auto_backend import auto_backend  # imported late, because it is slow

    return auto_backend()


def check_full_batch(step: Any, asked: str) -> str:
    """Check a step with a full-batch optimizer; return why only NumPy can run the step, or ""."""
    optimizer, network = step.optimizer, step.mlp
    if not isinstance(optimizer, FullBatch):
        return ""
    name, recording = optimizer.name, network.recorded(2, training=True)
    for option, problem in (
        ("clip_norm", step.clip_norm is not None),
        ("shards", step.shards > 1),
        ("ranks", step.ranks is not None),
        ("dropout", recording.draws),
        ("batch norm", recording.statistics),
    ):
        if problem:
            raise UsageError(f"training step: {name} takes no {option}; leave it out")
    if optimizer.needs_rows:
        if not isinstance(step.loss, MeanSquaredError):
            raise UsageError(
                f"training step: {name} needs the loss mse (got {step.loss.title}); lbfgs takes "
                "every loss"
            )
        network.check_rows(training=True)
        reason = f"{name} has no C code"
        if asked == "compiled":
            from mlpengine.step.auto_backend import NUMPY_RUNS  # a slow import

            _log.warning(NUMPY_RUNS, reason)
        return reason
    return ""


def check_names(mlp: Network, loss: Any, x: Any, y: Any) -> None:
    """Raise ShapeError unless `x` and `y` have the names of the inputs and outputs."""
    targets = loss.targets if isinstance(loss, LossSum) else None
    for name, value, wanted in (("x", x, mlp.in_shape), ("y", y, targets)):
        if isinstance(wanted, dict | list):
            need_names(value, dict.fromkeys(wanted), f"training step: {name}")
        else:
            need_array(value, f"training step: {name}")


def rows_of(mlp: Network, loss: Any, x: Any, y: Any) -> Any:
    """Return `x` as an array (rows, ...), or as `NamedRows` if inputs have names."""
    check_names(mlp, loss, x, y)
    if isinstance(mlp.in_shape, Mapping):
        rows = as_rows(x)
        check_rows(rows, len(rows), "training step: x")
        return rows
    array, shape = unmasked(x, "training step: x"), mlp.in_shape
    if array.ndim != len(shape) + 1:
        wanted = ", ".join(map(str, ("rows", *shape)))
        advice = "; for one row write step([x], [y])" if array.shape == shape else ""
        raise ShapeError(f"training step: x must be ({wanted}) (got {array.shape}){advice}")
    return array


def targets_of(loss: Any, y: Any) -> Any:
    """Return targets as rows.  Raises: ShapeError, or DataError for masked entries."""
    if isinstance(loss, LossSum):
        return as_rows(y)
    need_array(y, "training step: y")
    return unmasked(y, "training step: y")


def check_order(order: Any, rows: int, where: str) -> None:
    """Raise ShapeError unless `order` is int64 (steps * rows,); `where` begins the message."""
    known = isinstance(order, np.ndarray) and order.dtype == np.int64 and order.ndim == 1
    if not known or order.size % rows:
        raise ShapeError(
            f"{where}: order must be an int64 array with a multiple of {rows} entries "
            f"(got {quoted(order)}); for example, write np.arange({rows})"
        )


def too_many_rows(rows: int, batch_size: int) -> str:
    """Return the message for a batch without rows, or with more rows than the batch size."""
    if not rows:
        return "training step: x needs at least one row (got 0)"
    return (
        f"training step: takes up to {plural(batch_size, 'row')} (got {rows}); make it with "
        f"batch_size={rows}, or write step(x[:{batch_size}], y[:{batch_size}]) for each batch"
    )


def refuse_weights(weight: Array | None) -> NoReturn:
    """Raise UsageError for sample weights that are missing or unexpected."""
    if weight is None:
        raise UsageError("training step: was made with weighted=True and needs sample_weight")
    raise UsageError(
        "training step: takes no sample_weight unless it is weighted; write "
        "TrainingStep(mlp, loss, optimizer, batch_size=32, weighted=True)"
    )


def advice_on_y(y: Array, buffer: Array) -> str:
    """Return what to write for targets that do not fit the buffer, or ""."""
    classes = buffer.dtype.kind == "i"
    if y.shape[:1] != buffer.shape[:1]:
        return f"; write one target for each of {plural(len(buffer), 'row')}"
    if classes and y.dtype.kind not in "biuf":
        return "; write labels, y = np.unique(y, return_inverse=True)"
    if classes and y.shape == buffer.shape:
        return "; write y.astype('int64')"
    if y.size == buffer.size and y.shape != buffer.shape:
        return "; write y.ravel()" if classes else f"; write y.reshape(-1, {buffer.shape[1]})"
    if classes and y.ndim == 2:
        return "; write y.argmax(axis=1)"
    return "; for class labels the loss is SoftmaxCrossEntropy()" if y.dtype.kind == "i" else ""
