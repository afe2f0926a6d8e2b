"""TensorBoard event files with the scalars of a run; needs the extra ``tensorboard``."""

import os
from math import isfinite
from pathlib import Path
from time import time

from mlpengine.core.errors import importing
from mlpengine.core.files import writing
from mlpengine.training.history import EpochRow
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import Callback, Loop, Result

with importing("writing TensorBoard files", "tensorboard"):
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.record_writer import RecordWriter


class TensorBoard(Callback):
    """Writes an event file of a run into `directory`, for TensorBoard.

    Scalars of epochs are ``train/loss``, ``validation/<metric>`` and ``epoch/...``.  Samples of
    `LoopDiagnostics` are ``<quantity>/<layer>``.  A resumed run hides scalars that are newer than
    its checkpoint.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def on_train_start(self, loop: Loop) -> None:
        name = f"events.out.tfevents.{time():.6f}.{os.getpid()}"
        with writing(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._writer = RecordWriter(open(self.directory / name, "xb"))  # noqa: SIM115
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=loop.steps + 1, session_log=SessionLog(status=SessionLog.START)))

    def on_train_batch_end(self, loop: Loop) -> None:
        """Write a sample of the diagnostics, if one was taken."""
        core = getattr(loop.callback("diagnostics"), "core", None)
        if core is not None and core.sampled == loop.steps:
            names = (f"{name}/{layer or 'net'}" for layer, name in core.columns)
            self.add_scalars(loop.steps, dict(zip(names, core.values, strict=True)))

    def skip_budget(self, loop: Loop) -> SkipBudget:
        """Exempt all steps, because the diagnostics decide which steps are measured."""
        return SkipBudget()

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        names = ("lr", "gradient_norm", "samples_per_second")
        values = {"train/loss": row.train_loss} | {f"epoch/{n}": getattr(row, n) for n in names}
        values |= {f"validation/{name}": value for name, value in row.validation.items()}
        self.add_scalars(row.steps, values)

    def on_exception(self, loop: Loop, error: Exception) -> None:
        self._writer.close()

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        if known := loop.callback("diagnostics"):
            text = "\n".join(f"- **{v.name}**: {v}" for v in known.verdicts()) or "nothing unusual"
            self._write(Event(step=loop.steps, summary=text_pb("verdicts", text)))
        self._writer.close()

    def add_scalars(self, step: int, values: dict[str, float]) -> None:
        """Write the finite scalars by name."""
        finite = [Summary.Value(tag=n, simple_value=v) for n, v in values.items() if isfinite(v)]
        self._write(Event(step=step, summary=Summary(value=finite)))

    def _write(self, event: Event) -> None:
        event.wall_time = time()
        with writing(self.directory):
            self._writer.write(event.SerializeToString())
            self._writer.flush()
