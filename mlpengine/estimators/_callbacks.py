"""scikit-learn's callbacks (1.9 and later): the fit is a task, and each epoch a subtask."""

from collections.abc import Callable
from typing import Any

from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before 1.9, estimators have no `set_callbacks`

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """An estimator without callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "EpochTasks", "PrintEpochs", "with_callbacks"]


class PrintEpochs(Callback):
    """Prints a line for each epoch."""

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Print losses and metrics."""
        measured = "".join(f"  {name} {value:.5g}" for name, value in row.validation.items())
        print(f"epoch {row.epoch}/{loop.epochs}  train loss {row.train_loss:.5g}{measured}")


class EpochTasks(Callback):
    """Calls the estimator's callbacks at the start and the end of each epoch; they may stop it.

    Args:
        estimator: the estimator that is being fitted.
        context: scikit-learn's context of the whole fit.
        data: `X`, `y` and `metadata` for the callbacks, or functions that return them.
        fitted: returns the attributes of an estimator that predicts with the present weights.
    """

    def __init__(
        self,
        estimator: Any,
        context: Any,
        data: dict[str, Any],
        fitted: Callable[[], dict[str, Any]],
    ) -> None:
        self._estimator, self._context = estimator, context
        self._data, self._fitted = data, fitted

    def on_train_start(self, loop: Loop) -> None:
        """Begin the first epoch."""
        self._begin()

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """End an epoch, with an estimator of the present weights, and begin the next epoch."""
        stop = self._epoch.call_on_fit_task_end(
            estimator=self._estimator,
            reconstruction_attributes=lambda: {**self._fitted(), "n_iter_": row.epoch},
            **self._data,
        )
        if stop:
            loop.stop()
        elif row.epoch < loop.epochs:
            self._begin()

    def _begin(self) -> None:
        self._epoch = self._context.subcontext(task_name="epoch")
        self._epoch.call_on_fit_task_begin(estimator=self._estimator, **self._data)
