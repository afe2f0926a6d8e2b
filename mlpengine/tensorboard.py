"""Scalars of a run as TensorBoard event files; needs the extra ``tensorboard``.

    Loop(..., callbacks=[TensorBoard("runs/first/tensorboard")]).run()

``tensorboard --logdir runs`` shows them, during the run too.
"""

import os
import platform
import struct
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import time
from types import TracebackType
from typing import Self

from mlpengine.diagnostics import Diagnostics
from mlpengine.errors import MissingExtraError, UsageError
from mlpengine.files import write_all, writing
from mlpengine.train.diagnose import LoopDiagnostics
from mlpengine.train.history import EpochRow
from mlpengine.train.loop import Callback, Loop, Result, SkipBudget

if find_spec("tensorboard") is None:
    raise MissingExtraError("mlpengine.tensorboard", "tensorboard")

LARGEST = 3.4028234663852886e38
"""The largest 32-bit float; scalars are such numbers."""

STRING_TYPE, START_STATUS = 7, 1
"""DataType.DT_STRING of tensors and SessionLog.START."""


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a message of fields in the wire format of Protocol Buffers.

    A field is its number, and an integer or the bytes of a text or message.
    Importing the classes that TensorBoard has for its messages takes longer than some runs.
    Source: protobuf.dev/programming-guides/encoding.
    """
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        else:
            parts += [_varint(number << 3 | 2), _varint(len(value)), value]
    return b"".join(parts)


@cache
def _start_of_scalar(name: str) -> bytes:
    """Return the field of a scalar in a summary up to its four bytes, which are the last."""
    value = _message((1, name.encode())) + bytes([2 << 3 | 5])
    return bytes([1 << 3 | 2]) + _varint(len(value) + 4) + value


def _varint(value: int) -> bytes:
    """Return an integer that is not negative, seven bits a byte."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)


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
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
        self.write(_message((3, b"brain.Event:2")))

    def write(self, event: bytes) -> None:
        """Append the fields of an event, and the time of the call."""
        data = struct.pack("<Bd", 1 << 3 | 1, time()) + event
        length = struct.pack("<Q", len(data))
        with writing(self.path):
            record = b"".join([length, _masked_crc(length), data, _masked_crc(data)])
            write_all(self._file.fileno(), record)

    def close(self) -> None:
        """Close the file."""
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

    def on_train_start(self, loop: Loop) -> None:
        """Open the event file."""
        self._writer = EventFile(self.directory)
        diagnostics = loop.callback("diagnostics")
        self._core = getattr(diagnostics, "core", None)
        if loop.steps:
            self._write(loop.steps + 1, 7, _message((1, START_STATUS)))

    def on_train_batch_end(self, loop: Loop) -> None:
        """Write the scalars of a step, every `every` steps, and a sample of the diagnostics."""
        step = loop.step
        if self._core is not None and self._core.sampled == step.optimizer.steps:
            names = (f"{name}/{layer or 'net'}" for layer, name in self._core.columns)
            self.add_scalars(loop.steps, dict(zip(names, self._core.values, strict=True)))
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
        """Write the scalars of an epoch."""
        values = {
            "loss/train": row.train_loss,
            "epoch/lr": row.lr,
            "epoch/gradient_norm": row.gradient_norm,
            "epoch/samples_per_second": row.samples_per_second,
        }
        for name, value in row.validation.items():
            values["loss/validation" if name == "loss" else f"validation/{name}"] = value
        self.add_scalars(row.steps, values)

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        """Write the verdicts as text, and close the event file."""
        diagnostics = loop.callback("diagnostics")
        if isinstance(diagnostics, LoopDiagnostics):
            lines = (f"- **{verdict.name}**: {verdict}" for verdict in diagnostics.verdicts())
            self.add_text(loop.steps, "verdicts", "\n".join(lines) or "nothing unusual")
        self.close()

    def add_text(self, step: int, name: str, text: str) -> None:
        """Write a text, which TensorBoard shows as Markdown."""
        metadata = _message((1, _message((1, b"text"))))  # of the plugin that shows it
        shape = _message((2, _message((1, 1))))
        tensor = _message((1, STRING_TYPE), (2, shape), (8, text.encode()))
        value = _message((1, name.encode()), (8, tensor), (9, metadata))
        self._write(step, 5, _message((1, value)))

    def add_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write scalars by name; those that are no finite 32-bit floats are left out."""
        shown = [
            _start_of_scalar(name) + struct.pack("<f", value)
            for name, value in values.items()
            if abs(value) <= LARGEST
        ]
        self._write(step, 5, b"".join(shown))

    def close(self) -> None:
        """Close the event file; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, step: int, kind: int, content: bytes) -> None:
        """Write an event that has a step, and content of that kind: a summary or a session log."""
        if self._writer is not None:
            self._writer.write(_message((2, step), (kind, content)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
