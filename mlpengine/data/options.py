"""The options of a preprocessor."""

from dataclasses import dataclass
from typing import Literal, get_args

from mlpengine.data.bins import BINS
from mlpengine.data.kinds import Task
from mlpengine.data.reading import DEFAULT, Reading
from mlpengine.data.statistics import Clipping, Encoding, Filling, Scaling
from mlpengine.errors import DataError

Standardizing = bool | Literal["mean"]
"""Targets to mean 0 and deviation 1 (True), divided by their mean, or as they are (False)."""

FILLINGS = ("mean", "median", "indicator", "error")
DTYPES = ("float32", "float64")
MAX_BINS = 1000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a `Preprocessor`, described there."""

    target: tuple[str, ...] = ()
    task: Task | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    weight: str | None = None
    standardize: Scaling = "standard"
    missing: Filling = "mean"
    standardize_target: Standardizing = True
    min_count: int = 3
    embed_above: int | None = None
    max_levels: int | None = None
    clip: Clipping = "smooth"
    dtype: str = "float32"
    features: tuple[tuple[str, str], ...] = ()
    where: str | None = None
    encoding: Encoding = "none"
    bins: int = BINS
    bounded: bool = False
    reading: Reading = DEFAULT
    periods: tuple[str, ...] = ()


def check(options: Options) -> None:
    """Check the options of a preprocessor.

    Raises: DataError for the first that is wrong.
    """
    if options.standardize not in get_args(Scaling):
        known = ", ".join(get_args(Scaling))
        raise DataError(f"standardize: must be one of {known} ({options.standardize!r})")
    if options.clip not in get_args(Clipping):
        raise DataError(f"clip: must be smooth or none ({options.clip!r})")
    if options.encoding not in get_args(Encoding):
        raise DataError(f"encoding: must be piecewise or none ({options.encoding!r})")
    if type(options.bins) is not int or not 2 <= options.bins <= MAX_BINS:
        raise DataError(f"bins: must be a whole number from 2 to {MAX_BINS} ({options.bins!r})")
    if options.standardize_target not in (True, False, "mean"):
        given = options.standardize_target
        raise DataError(f"standardize_target: must be true, false or 'mean' ({given!r})")
    if options.dtype not in DTYPES:
        raise DataError(f"dtype: must be one of {', '.join(DTYPES)} ({options.dtype!r})")
    number = isinstance(options.missing, int | float) and not isinstance(options.missing, bool)
    if not (number or options.missing in FILLINGS):
        known = ", ".join(FILLINGS)
        raise DataError(f"missing: must be one of {known}, or a number ({options.missing!r})")
    if number and not abs(float(options.missing)) < 1e38:
        raise DataError(f"missing: the number must be finite ({options.missing!r})")
    if options.task not in (*get_args(Task), None):
        raise DataError(f"task: must be one of {', '.join(get_args(Task))} ({options.task!r})")
    used = [*options.target, *options.drop, *([options.weight] if options.weight else [])]
    twice = sorted({name for name in used if used.count(name) > 1})
    if twice:
        raise DataError(f"target, weight and drop: a column can have one role ({twice})")
