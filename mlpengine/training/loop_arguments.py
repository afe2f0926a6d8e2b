"""Checks that the steps, the task and the rows of a loop fit together."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlpengine.core.errors import DataError, ShapeError, UsageError
from mlpengine.core.named import NamedRows, need_names
from mlpengine.core.wording import quoted, suggestion
from mlpengine.models.evaluate import loss_names
from mlpengine.models.task import Classification, LossOnly, OutputTasks, Regression, Split, Task
from mlpengine.ops import EntryLoss
from mlpengine.ops.loss_sum import LossSum
from mlpengine.settings import EarlyStopping
from mlpengine.step.arguments import check_names
from mlpengine.step.step import TrainingStep


def checked_task(step: TrainingStep, task: Any) -> Task:
    """Return the task of a step; several tasks by output are joined into one."""
    if isinstance(task, Mapping):
        return _by_output(step, task)
    if not isinstance(task, Task):
        raise UsageError(
            f"loop: task must be a Task (got {quoted(task)}); write "
            "Loop(step, Classification(3), Split(x, y), epochs=20)"
        )
    return _of_loss(task, step.loss)


def _of_loss(task: Task, loss: Any) -> Task:
    """Return the task; a `Regression` without a loss predicts what the loss of the step defines."""
    if not isinstance(task, Regression) or task.has_loss or type(task) is not Regression:
        return task
    known = isinstance(loss, EntryLoss) and "regression" in loss.tasks
    return Regression(task.target, loss) if known else task


def check_stopping(step: TrainingStep, task: Task, stopping: Any, *, validated: bool) -> None:
    """Let the task measure the metric of early stopping, if there are validation rows."""
    if not isinstance(stopping, EarlyStopping | None):
        text = f"loop: early_stopping must be an EarlyStopping (got {quoted(stopping)})"
        raise UsageError(f"{text}; write early_stopping=EarlyStopping(patience=20)")
    if stopping and validated and stopping.monitor not in loss_names(step.loss):
        try:
            task.watch(stopping.monitor)
        except UsageError as error:
            raise UsageError(f"loop: early_stopping: monitor: {error}") from None


def check_fit(step: TrainingStep, task: Task, train: Split, validation: Split | None) -> None:
    """Raise UsageError if the task does not fit the network, ShapeError for wrong data."""
    parts = {"train": train} if validation is None else {"train": train, "validation": validation}
    for name, part in parts.items():
        if not isinstance(part, Split):
            text = f"loop: {name} must be a Split (got {quoted(part)})"
            raise UsageError(f"{text}; write {name}=Split(x, y)")
        check_names(step.mlp, step.loss, part.x, part.y)
    if step.weighted != (train.weights is not None):
        text = "loop: train needs weights, as" if step.weighted else "loop: train has weights, but"
        raise UsageError(f"{text} the step was made with weighted={step.weighted}")
    step.take_targets_as(train.y)
    bound = step.bound(step.batch_size)
    x, y, weights = bound.buffers
    for name, part in parts.items():
        # targets may be probabilities in training and labels in validation
        same = getattr(part.y, "ndim", 0) == getattr(train.y, "ndim", 0)
        data = (
            part.x if isinstance(part.x, np.ndarray | NamedRows) else x,  # else rows are in a file
            part.y if isinstance(part.y, np.ndarray | NamedRows) and same else y,
            weights if part.weights is None or not step.weighted else part.weights,
        )
        for misfit in bound.layout_errors(data, np.arange(0)):
            raise DataError(f"loop: {name}.{misfit}")
        if isinstance(task, OutputTasks):
            need_names(part.truth, task.tasks, "Split: truth", more=True)
        elif isinstance(task, Classification) and np.ndim(part.truth) > 1:
            text = f"loop: {name}.truth must be class indices (got shape {part.truth.shape})"
            raise ShapeError(f"{text}; write Split(x, y, truth=classes), with one for each row")
    outputs = step.mlp.outputs
    if isinstance(task, LossOnly | OutputTasks) or task.outputs == outputs:
        return
    if not isinstance(outputs, int):
        names = ", ".join(outputs)
        raise UsageError(
            f"loop: task must be LossOnly(), or tasks by output (the network has outputs {names})"
        )
    count = outputs // task.loss.columns if isinstance(task, Regression) else outputs
    kind = "BinaryClassification" if isinstance(task, Classification) and outputs == 1 else ""
    raise UsageError(
        f"loop: task must have as many outputs as the network (got {task.outputs} and "
        f"{outputs}); write {kind or type(task).__name__}({count}), or Mlp([..., {task.outputs}])"
    )


def _by_output(step: TrainingStep, tasks: Mapping[str, Task]) -> OutputTasks:
    """Join tasks by output into one.  Raises: UsageError for outputs that the network lacks."""
    outputs = step.mlp.outputs
    if isinstance(outputs, int):
        raise UsageError(
            f"loop: task must be one Task for a network of one output (got {quoted(tasks)})"
        )
    losses = step.loss.losses if isinstance(step.loss, LossSum) else {}
    tasks = {name: _of_loss(task, losses.get(name)) for name, task in tasks.items()}
    for name, task in tasks.items():
        if name not in outputs:
            names = ", ".join(outputs)
            raise UsageError(
                f"loop: task must name outputs, {names} (got {name!r}){suggestion(name, outputs)}"
            )
        if not isinstance(task, Task):
            raise UsageError(f"loop: task of {name!r} must be a Task (got {quoted(task)})")
        if not isinstance(task, LossOnly) and task.outputs != outputs[name]:
            raise UsageError(
                f"loop: task of {name!r} must have as many outputs as the network "
                f"(got {task.outputs} and {outputs[name]})"
            )
    return OutputTasks({n: t for n, t in tasks.items() if not isinstance(t, LossOnly)})
