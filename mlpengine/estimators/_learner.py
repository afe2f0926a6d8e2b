"""A network, its loss and its optimizer, in a form that can be copied and pickled."""

from typing import Any

from mlpengine.errors import UsageError
from mlpengine.nn import Mlp
from mlpengine.ops._loss import Loss
from mlpengine.optim import OPTIMIZERS, Group, Optimizer
from mlpengine.train.history import EpochRow
from mlpengine.train.loop import Callback, Loop
from mlpengine.train.step import TrainingStep


class PrintEpochs(Callback):
    """Prints a line for each epoch."""

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Print losses and metrics."""
        measured = "".join(f"  {name} {value:.5g}" for name, value in row.validation.items())
        print(f"epoch {row.epoch}/{loop.epochs}  train loss {row.train_loss:.5g}{measured}")


class Learner:
    """A network, its loss, its optimizer and its bound steps, which a copy makes again."""

    def __init__(
        self,
        mlp: Mlp,
        loss: Loss,
        optimizer: str,
        options: dict[str, Any],
        batch_size: int,
        step: dict[str, Any],
    ) -> None:
        if optimizer not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise UsageError(f"optimizer: must be one of {known} (got {optimizer!r})")
        self.mlp = mlp
        self.settings = (loss, optimizer, options, batch_size, step)
        self.optimizer: Optimizer = OPTIMIZERS[optimizer](mlp, **options)
        self._steps: dict[bool, TrainingStep] = {}

    @property
    def loss(self) -> Loss:
        """The loss."""
        loss: Loss = self.settings[0]
        return loss

    def step(self, *, weighted: bool) -> TrainingStep:
        """Return the bound step with or without sample weights; both train the one network."""
        if weighted not in self._steps:
            loss, _, _, batch_size, options = self.settings
            self._steps[weighted] = TrainingStep(
                self.mlp, loss, self.optimizer, batch_size, weighted=weighted, **options
            )
        return self._steps[weighted]

    def of_linear(self, mlp: Mlp) -> "Learner":
        """Return a learner of a linear network, which stays linear, with the same settings."""
        loss, optimizer, options, batch_size, step = self.settings
        groups = {**options.get("groups", {}), "alphas": Group(lr=0.0, weight_decay=0.0)}
        return Learner(mlp, loss, optimizer, {**options, "groups": groups}, batch_size, step)

    def leave_schedules(self) -> None:
        """Go on with a constant learning rate and decay, which schedules may have ended at 0."""
        if self.optimizer.schedule is not None or self.optimizer.decay_schedule is not None:
            self.optimizer.schedule = self.optimizer.decay_schedule = None
            self._steps.clear()  # which are bound to schedules

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_steps": {}}
