"""Diagnostics of a training run: an observer of the loop, and the file that it fills."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlpengine.diagnostics import Diagnostics
from mlpengine.diagnostics.quantities import Columns
from mlpengine.train.history import CsvLog, EpochRow
from mlpengine.train.loop import Loop, Result

DIAGNOSTICS_FILE = "diagnostics.csv"


class SampleLog(CsvLog):
    """diagnostics.csv in long form: a line for each step, layer and quantity; NaN is left out."""

    def __init__(self, path: Path, columns: Columns, *, keep: int = 0) -> None:
        super().__init__(path, ("step", "layer", "quantity", "value"), keep=keep)
        self._middles = [f",{layer},{quantity}," for layer, quantity in columns]
        self._lines: list[str] = []

    def add(self, step: int, values: list[float]) -> None:
        """Remember a sample; `flush` writes it."""
        self._lines += [
            f"{step}{middle}{value!r}\n"
            for middle, value in zip(self._middles, values, strict=True)
            if value == value
        ]

    def flush(self) -> None:
        """Write what was added."""
        self._put("".join(self._lines).encode())
        self.rows += len(self._lines)
        self._lines.clear()


class LoopDiagnostics:
    """Observer that keeps `Diagnostics` of a run and writes its samples to a file.

    Args:
        path: where diagnostics.csv goes; None writes nothing.
        every: steps between samples.

    Attributes:
        core: the diagnostics; made when the loop starts.
    """

    name = "diagnostics"
    core: Diagnostics

    def __init__(self, path: Path | None = None, *, every: int = 50) -> None:
        self._path, self._every = path, every
        self._state: Mapping[str, Any] | None = None
        self._log: SampleLog | None = None

    def on_start(self, loop: Loop) -> None:
        """Begin, or go on where `load_state_dict` says."""
        self.core = Diagnostics(
            loop.step.mlp,
            every=self._every,
            steps_per_epoch=len(loop.batches),
        )
        keep = 0
        if self._state is not None:
            self.core.load_state_dict(self._state)
            keep = self._state["lines"]
        self.core.begin(loop.steps)
        if self._path is not None:
            self._log = SampleLog(self._path, self.core.columns, keep=keep)
        self._passing, self._optimizer = self.core.passing, loop.step.optimizer

    def on_step(self, loop: Loop) -> None:
        """Take in a step."""
        step = loop.step
        number, norm, clipped = self._optimizer.steps, step.grad_norm, step.clipped_norm
        if self._passing(number, norm, clipped):
            return
        loss, lr = step.loss_value, self._optimizer.current_lr
        rows = loop.batch_rows
        sampled = self.core.look(step.scratch, step.grads, number, loss, norm, clipped, lr, rows)
        if sampled and self._log is not None:
            self._log.add(number, self.core.values)

    def on_epoch(self, loop: Loop, row: EpochRow) -> None:
        """Take in the losses of an epoch and write its samples."""
        self.core.close_epoch(row.train_loss, row.validation.get("loss", float("nan")))
        if self._log is not None:
            self._log.flush()

    def on_end(self, loop: Loop, result: Result) -> None:
        """Write the rest and close the file."""
        if self._log is not None:
            self._log.flush()
            self._log.sync()
            self._log.close()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs; samples so far are written first."""
        lines = 0
        if self._log is not None:
            self._log.flush()
            self._log.sync()
            lines = self._log.rows
        return {**self.core.state_dict(), "lines": lines}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next run of the loop go on where `state_dict` was taken."""
        self._state = state
