"""Scalars of a run as TensorBoard event files; needs the extra ``tensorboard``.

    Loop(..., callbacks=[TensorBoard("runs/first/tensorboard")]).run()

``tensorboard --logdir runs`` shows them, during the run too.
"""

import os
import platform
import struct
from collections.abc import Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from time import time
from typing import Self

from mlpengine.core.errors import UsageError, importing
from mlpengine.core.files import writing
from mlpengine.diagnostics import Diagnostics
from mlpengine.training.diagnose import LoopDiagnostics
from mlpengine.training.history import EpochRow
from mlpengine.training.learner import SkipBudget
from mlpengine.training.loop import Callback, Loop, Result

with importing("writing TensorBoard files", "tensorboard"):
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DataType

FLUSH_SECONDS = 30.0
"""Seconds after which a written event is flushed, if no epoch ends before."""


@cache
def _crc_table() -> list[int]:
    """Return the remainders of all bytes modulo the reflected Castagnoli polynomial."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def _masked_crc(data: bytes) -> bytes:
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """A file of events in TensorFlow's format of records, in a new file of `directory`.

    TensorBoard's own writer imports a hundred modules and starts a thread, which takes 0.1 s.
    Source: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
    Raises: RunError where the file cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        name = f"events.out.tfevents.{time():.6f}.{platform.node()}.{os.getpid()}"
        self.path = directory / name
        with writing(self.path):
            directory.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "xb")  # noqa: SIM115
        self._flushed = time()
        self.write(Event(file_version="brain.Event:2"))
        self.flush()

    def write(self, event: Event) -> None:
        """Append an event, with the time of the call."""
        event.wall_time = now = time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        with writing(self.path):
            self._file.write(b"".join([length, _masked_crc(length), data, _masked_crc(data)]))
        if now > self._flushed + FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Give the operating system what was written."""
        with writing(self.path):
            self._file.flush()
        self._flushed = time()

    def close(self) -> None:
        """Write the remaining events and close the file."""
        with writing(self.path):
            self._file.close()


class TensorBoard(Callback):
    """Writes one event file of a run into `directory`.

    After each epoch: ``loss/train``, ``loss/validation``, ``validation/<metric>``, ``epoch/lr``,
    ``epoch/gradient_norm`` and ``epoch/samples_per_second``.  Every `every` steps: ``step/loss``,
    ``step/gradient_norm`` and ``step/lr`` of that step.  Samples of `LoopDiagnostics`, where the
    loop has it, come as ``<quantity>/<layer>`` or ``<quantity>/net``.  The step of each scalar is
    the number of steps made.  The verdicts come as text in the end.  A resumed run writes another
    file, which hides the scalars that an earlier one wrote after the checkpoint.

    Call `close`, or use it as a context manager, if the loop may end with an error.
    Raises: UsageError for a path that is not UTF-8, which TensorBoard cannot open.
    """

    def __init__(self, directory: str | Path, *, every: int = 50) -> None:
        try:
            os.fspath(directory).encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"tensorboard: the directory's path must be UTF-8 ({os.fspath(directory)!r})"
            ) from None
        self.directory, self.every = Path(directory), every
        self._writer: EventFile | None = None
        self._core: Diagnostics | None = None
        self._names: list[str] = []

    def on_train_start(self, loop: Loop) -> None:
        """Open the event file."""
        self._writer = EventFile(self.directory)
        diagnostics = loop.callback("diagnostics")
        self._core = core = getattr(diagnostics, "core", None)
        self._names = [f"{name}/{layer or 'net'}" for layer, name in core.columns] if core else []
        if loop.steps:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(step=loop.steps + 1, session_log=start))

    def on_train_batch_end(self, loop: Loop) -> None:
        """Write the scalars of a step, every `every` steps, and a sample of the diagnostics."""
        step = loop.step
        if self._core is not None and self._core.sampled == step.optimizer.steps:
            self.add_scalars(loop.steps, dict(zip(self._names, self._core.values, strict=True)))
        if loop.steps % self.every:
            return
        values = {
            "step/loss": step.loss_value,
            "step/gradient_norm": step.grad_norm,
            "step/lr": step.optimizer.current_lr,
        }
        self.add_scalars(loop.steps, values)

    def skip_budget(self, loop: Loop) -> SkipBudget:
        """Skip up to the next step that is written; the diagnostics have a budget of their own."""
        return SkipBudget(self.every - 1 - loop.steps % self.every)

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        """Write the scalars of an epoch and flush the file."""
        values = {
            "loss/train": row.train_loss,
            "epoch/lr": row.lr,
            "epoch/gradient_norm": row.gradient_norm,
            "epoch/samples_per_second": row.samples_per_second,
        }
        for name, value in row.validation.items():
            values["loss/validation" if name == "loss" else f"validation/{name}"] = value
        self.add_scalars(row.steps, values)
        if self._writer is not None:
            self._writer.flush()

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        """Write the verdicts as text, and close the event file."""
        diagnostics = loop.callback("diagnostics")
        if isinstance(diagnostics, LoopDiagnostics):
            lines = (f"- **{verdict.name}**: {verdict}" for verdict in diagnostics.verdicts())
            self._add_verdicts(loop.steps, "\n".join(lines) or "nothing unusual")
        self.close()

    def _add_verdicts(self, step: int, text: str) -> None:
        """Write the verdicts as a text, which TensorBoard shows as Markdown."""
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        value = Summary.Value(
            tag="verdicts",
            metadata=SummaryMetadata(plugin_data=plugin),
            tensor=TensorProto(
                dtype=DataType.DT_STRING,
                string_val=[text.encode()],
                tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
            ),
        )
        self._write(Event(step=step, summary=Summary(value=[value])))

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write scalars by name; those that are not finite are left out."""
        summary = Summary(
            value=[
                Summary.Value(tag=name, simple_value=value)
                for name, value in values.items()
                if isfinite(value)
            ]
        )
        self._write(Event(step=step, summary=summary))

    def close(self) -> None:
        """Write the remaining events and close the file; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.write(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
