"""Every exception that mlpengine raises on purpose.

    MlpEngineError                what to catch to catch everything; exit code 1
    ├── ShapeError                operand shapes do not fit an op             (ValueError)
    ├── DtypeError                an array has the wrong dtype                (TypeError)
    ├── IndexRangeError           an index or class lies outside its range    (IndexError)
    ├── TapeError                 a tape, program or graph is used wrongly    (RuntimeError)
    ├── NumericalError            a number that must be finite is not         (ArithmeticError)
    ├── GradcheckError            a gradient disagrees with its differences   (AssertionError)
    ├── UsageError                the command or the call is wrong; exit code 2
    │   ├── CallError             the arguments of a call do not fit          (TypeError)
    │   ├── ConfigError           a config file is wrong                      (ValueError)
    │   ├── FormulaError          a formula cannot be read                    (ValueError)
    │   └── DataError             a data file or array is wrong               (ValueError)
    ├── CheckpointError           a checkpoint or model file cannot be used   (ValueError)
    ├── RunError                  a run directory cannot be used              (OSError)
    ├── CompileError              generated code could not be built           (RuntimeError)
    └── MissingExtraError         an optional package is not installed        (ImportError)

A message reads ``<where>: <what must hold> (<the values that broke it>)``.
"""

from typing import ClassVar


class MlpEngineError(Exception):
    """Base class of all errors; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class ShapeError(MlpEngineError, ValueError):
    """Operand shapes do not fit an op; raised where the op is recorded or a buffer is bound."""


class DtypeError(MlpEngineError, TypeError):
    """An array has a dtype that the op or buffer cannot take."""


class IndexRangeError(MlpEngineError, IndexError):
    """An index, or a class number, lies outside its range; the message names it and its place."""


class TapeError(MlpEngineError, RuntimeError):
    """A tape, a program or an eager graph is used in a way that its state does not allow."""


class NumericalError(MlpEngineError, ArithmeticError):
    """A loss, value or gradient that must be finite is not."""


class GradcheckError(MlpEngineError, AssertionError):
    """An analytic gradient disagrees with finite differences."""


class UsageError(MlpEngineError):
    """The caller asked for something that cannot be; nothing was run."""

    exit_code: ClassVar[int] = 2


class CallError(UsageError, TypeError):
    """A function or class has no such argument, or needs one; the message shows a right call."""


class ConfigError(UsageError, ValueError):
    """A config is wrong; the message lists every problem with file, line and key path."""


class DataError(UsageError, ValueError):
    """A data file or array is wrong; the message names the file, column and first bad row."""


class FormulaError(UsageError, ValueError):
    """The text of a formula cannot be read, or a formula is used where it has no meaning.

    `position` counts the characters before the mistake; None where there is no text.
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


class MissingExtraError(MlpEngineError, ImportError):
    """An optional package is missing; the message is the line that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional package: pip install 'mlpengine[{extra}]'")
        self.feature, self.extra = feature, extra

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        return MissingExtraError, (self.feature, self.extra)
