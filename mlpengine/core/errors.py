"""Every exception that mlpengine raises on purpose.

    MlpEngineError                the base class of all of them; exit code 1
    ├── ShapeError                operand shapes do not fit an op             (ValueError)
    ├── DtypeError                an array has the wrong dtype                (TypeError)
    ├── IndexRangeError           an index or class lies outside its range    (IndexError)
    ├── TapeError                 a tape, program or graph is used wrongly    (RuntimeError)
    ├── NumericalError            a number that must be finite is not         (ArithmeticError)
    ├── GradcheckError            a gradient disagrees with its differences   (AssertionError)
    ├── UsageError                the command or the call is wrong; exit code 2
    │   ├── ConfigError           a config file is wrong                      (ValueError)
    │   ├── FormulaError          a formula cannot be read                    (ValueError)
    │   └── DataError             a data file or array is wrong               (ValueError)
    ├── CheckpointError           a checkpoint or model file cannot be used   (ValueError)
    ├── RunError                  a run directory cannot be used              (OSError)
    ├── CompileError              generated code could not be built           (RuntimeError)
    └── MissingExtraError         an optional package cannot be imported      (ImportError)

A message reads ``<where>: <what must hold> (<the wrong values>)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from mlpengine.core.redaction import redacted
from mlpengine.core.wording import shortened

__all__ = [
    "CheckpointError",
    "CompileError",
    "ConfigError",
    "DataError",
    "DtypeError",
    "FormulaError",
    "GradcheckError",
    "IndexRangeError",
    "MissingExtraError",
    "MlpEngineError",
    "NumericalError",
    "RunError",
    "ShapeError",
    "TapeError",
    "UsageError",
]


class MlpEngineError(Exception):
    """Base class of all errors; `exit_code` is the exit code of a command that fails.

    `setting` is the path of the wrong setting, such as ("training", "freeze"), or ().
    `str` shortens long values in the message (see `shortened`) and hides passwords (`redacted`).
    """

    exit_code: ClassVar[int] = 1
    setting: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shortened(redacted(super().__str__()))


class ShapeError(MlpEngineError, ValueError):
    """Operand shapes do not fit an op; raised when the op is recorded or a buffer is bound."""


class DtypeError(MlpEngineError, TypeError):
    """An array has a dtype that the op or the buffer does not accept."""


class IndexRangeError(MlpEngineError, IndexError):
    """An index, such as a class index, is out of range; the message gives value and position."""


class TapeError(MlpEngineError, RuntimeError):
    """A tape, a program or an eager graph is used in the wrong state."""


class NumericalError(MlpEngineError, ArithmeticError):
    """A loss, value or gradient that must be finite is not."""


class GradcheckError(MlpEngineError, AssertionError):
    """An analytic gradient disagrees with finite differences."""


class UsageError(MlpEngineError):
    """The command or the call is wrong, so the library did nothing."""

    exit_code: ClassVar[int] = 2


class ConfigError(UsageError, ValueError):
    """A config is wrong; the message lists every problem with file, line and key path."""


class DataError(UsageError, ValueError):
    """A data file or array is wrong; the message names the file, column and first bad row."""


class FormulaError(UsageError, ValueError):
    """The text of a formula cannot be read, or a formula is used where it has no meaning.

    `position` is the number of characters before the error; None if there is no text.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class CheckpointError(MlpEngineError, ValueError):
    """A checkpoint or model file is damaged, incomplete or does not fit the network."""


class RunError(MlpEngineError, OSError):
    """A run directory cannot be made, locked, written or read."""


class CompileError(MlpEngineError, RuntimeError):
    """Generated code could not be compiled or loaded."""


def install_line(extra: str) -> str:
    """Return the command that installs the optional packages `extra` of mlpengine."""
    return f"pip install 'mlpengine[{extra}]'"


class MissingExtraError(MlpEngineError, ImportError):
    """An optional package is missing, or its import fails.

    `failure` is the text of the import's error; "" if the package is missing.
    """

    def __init__(self, feature: str, extra: str, failure: str = "") -> None:
        packages = f"the installed packages of mlpengine[{extra}]"
        super().__init__(
            f"{feature}: {packages} must be importable ({failure})"
            if failure
            else f"{feature} needs an optional package: {install_line(extra)}"
        )
        self.feature, self.extra, self.failure = feature, extra, failure

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str, str]]:
        return MissingExtraError, (self.feature, self.extra, self.failure)


@contextmanager
def at_setting(*path: str) -> Iterator[None]:
    """If the ``with`` block raises a UsageError, set its `setting` to `path`."""
    try:
        yield
    except UsageError as error:
        error.setting = path
        raise


@contextmanager
def importing(feature: str, extra: str) -> Iterator[None]:
    """If an import in the ``with`` block fails with any error, raise MissingExtraError.

    If a dependency has the wrong version, an import may raise AttributeError or TypeError.
    """
    try:
        yield
    except Exception as error:
        failure = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, ModuleNotFoundError) and error.name:
            from importlib.util import find_spec

            failure = failure if find_spec(error.name.partition(".")[0]) else ""
        raise MissingExtraError(feature, extra, failure) from error
