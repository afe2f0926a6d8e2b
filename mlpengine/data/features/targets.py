"""Targets: from columns to arrays, and from predictions to labels and units."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text, listed_labels, plural, quoted, suggestion
from mlpengine.data.features.column_kinds import (
    are_codes,
    comma_text,
    gap_advice,
    kind_of,
    marked_number,
    odd_row,
    odd_target_row,
    odd_texts,
    task_of,
)
from mlpengine.data.features.thresholds import BEYOND_TARGETS, LEAST_TIME
from mlpengine.data.tables.table import Column, Table, number_text, shortest
from mlpengine.settings.features import Standardizing, TaskName

Label = str | int | float | bool


class Target(ABC):
    """The target columns of a task, fitted on training rows."""

    task: ClassVar[TaskName]
    columns: list[str]

    @property
    def reads(self) -> list[str]:
        """The columns that `encode` needs."""
        return self.columns

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs that a network needs: classes, or columns."""

    @abstractmethod
    def encode(self, table: Table) -> Array:
        """Return the targets of a table: int64 (n,) class indices, or float64 (n, columns)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state for JSON."""


class ClassTarget(Target):
    """A column of classes; class i has the label `classes[i]`, sorted unless an order is given."""

    task = "classification"

    def __init__(self, column: str, classes: Sequence[Label]) -> None:
        self.columns = [column]
        self.classes = list(classes)
        self.codes = {_text(label): code for code, label in enumerate(classes)}  # by text

    @classmethod
    def fit(cls, table: Table, column: str, order: Sequence[str] = ()) -> "ClassTarget":
        """Collect the classes of a column; `order` may list the texts of all classes in order.

        Raises: DataError for a missing value, a single class, or a class that is not in `order`.
        """
        _complete(table, column)
        values = table[column]
        if values.kind == "date":
            raise DataError(f"{table.where(column)}: dates cannot be classes; convert them to text")
        if values.kind == "number":
            _numbers(table, column)  # raises for an infinite class
        classes = list(dict.fromkeys(_label(values, value) for value in values.distinct()))
        if len(classes) < 2:
            raise DataError(
                f"{table.where(column)}: at least two values or classes are needed to "
                f"train (only {label_text(classes[0], repr)} in {plural(table.n_rows, 'row')})"
            )
        if order:
            order = [text.lower() for text in order] if values.kind == "boolean" else order
            places = {text: k for k, text in enumerate(order)}
            if without := [text for text in order if text not in map(_text, classes)]:
                near = suggestion(without[0], map(_text, classes))
                raise DataError(
                    f"{table.where(column)}: data.classes must list classes with training rows, "
                    f"each once ({without[0]!r} has none){near}"
                )
            if len(places) < len(order):
                raise DataError(f"{table.where(column)}: data.classes must list each class once")
            unlisted = [label for label in classes if _text(label) not in places]
            if unlisted:
                raise DataError(
                    f"{table.where(column)}: data.classes must list every class (without "
                    f"{label_text(unlisted[0], repr)})"
                )
            classes.sort(key=lambda label: places[_text(label)])
        return cls(column, classes)

    @property
    def n_outputs(self) -> int:
        return len(self.classes)

    def encode(self, table: Table) -> Array:
        """Return int64 class indices.

        Raises: DataError for the first row with a missing or unknown label.
        """
        (name,) = self.columns
        _complete(table, name)
        values = table[name]
        distinct, place = np.unique(values.values, return_inverse=True)
        numbers = np.array([self.codes.get(_text(_label(values, value)), -1) for value in distinct])
        codes = numbers[place].astype(np.int64)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            text = values.text(row)
            raise DataError(
                f"{table.where(name, row)}: {quoted(text)} is not one of the classes in the "
                f"training rows ({listed_labels(self.classes)})"
                f"{suggestion(text.lstrip('0'), self.codes)}"
            )
        return codes

    def state_dict(self) -> dict[str, Any]:
        return {"task": self.task, "columns": self.columns, "classes": self.classes}


def deviation(values: Array, where: str) -> float:
    """Return the standard deviation of a target's numbers; 1 if all are equal.

    Raises: DataError that begins with `where`, for a range below float32's smallest normal number.
    """
    span, least = float(np.ptp(values)), float(np.finfo(np.float32).tiny)
    if 0 < span < least:
        raise DataError(
            f"{where}: the target's range is too small (it is {span:g}, below float32's smallest "
            f"normal number, {least:.2g}); multiply the target by a constant"
        )
    return float(values.std()) or 1.0


class NumberTarget(Target):
    """One or more columns of numbers, scaled as (y - center) / scale.

    With several columns, a missing value is NaN.
    `bounds` are the lowest and highest prediction of each column, or None.  With `log`, bounds must
    be positive, and log(max(y, lowest bound)) is scaled instead of y.  With an `exposure`, y is the
    column divided by the exposure.
    """

    task: ClassVar[TaskName] = "regression"

    def __init__(
        self,
        columns: Sequence[str],
        center: Sequence[float],
        scale: Sequence[float],
        bounds: tuple[Sequence[float], Sequence[float]] | None = None,
        *,
        log: bool = False,
        exposure: str | None = None,
    ) -> None:
        self.columns = list(columns)
        self.exposure = exposure
        self.center = np.array(center, np.float64)
        self.scale = np.array(scale, np.float64)
        self.bounds = None if bounds is None else np.array(bounds, np.float64)
        self.log = log

    @classmethod
    def fit(
        cls,
        table: Table,
        columns: Sequence[str],
        standardize: Standardizing,
        *,
        bounded: bool = False,
        log: bool = False,
        exposure: str | None = None,
    ) -> "NumberTarget":
        """Fit center and scale of each column.

        (center, scale) is (mean, deviation) if `standardize` is True, (0, mean) if `standardize` is
        "mean", else (0, 1).  With `log`, they are computed from log(y).  With `bounded`, the bounds
        are the range of each column.  With `log` alone, the range of log(y) is extended by half of
        it at each end, but at most by log(BEYOND_TARGETS).

        Raises: DataError for a value that is infinite, not a number or, with `log`, not positive;
            for a missing value in a single column, and for a column with only missing values.
        """
        count, together = len(columns), _rates(table, columns, exposure)
        if log:
            check_positive(together, lambda row, column: table.where(columns[column], row))
        units = values = [column[~np.isnan(column)] for column in together.T]
        for name, known in zip(columns, units, strict=True):
            if not len(known):
                raise DataError(
                    f"{table.where(name)}: every training row lacks this target; "
                    "leave it out of data.target"
                )
        if log:
            values = [np.log(column) for column in units]
        center, scale = [0.0] * count, [1.0] * count
        if standardize == "mean":
            scale = [mean if mean > 0 else 1.0 for mean in (float(one.mean()) for one in values)]
        elif standardize:
            center = [float(column.mean()) for column in values]
            scale = [deviation(one, name) for one, name in zip(values, columns, strict=True)]
        ends = [float(one.min()) for one in units], [float(one.max()) for one in units]
        if log and not bounded:
            factors = [
                min((high / low) ** 0.5, BEYOND_TARGETS) for low, high in zip(*ends, strict=True)
            ]
            lows, highs = np.divide(ends[0], factors), np.multiply(ends[1], factors)
            ends = lows.tolist(), highs.tolist()
        bounds = ends if bounded or log else None
        return cls(columns, center, scale, bounds, log=log, exposure=exposure)

    @property
    def n_outputs(self) -> int:
        return len(self.columns)

    def encode(self, table: Table) -> Array:
        """Return scaled values, one column per target."""
        return self.scaled(self.values(table))

    def values(self, table: Table) -> Array:
        """Return the targets (rows, columns) in their own units, float64."""
        return _rates(table, self.columns, self.exposure)

    @property
    def names(self) -> list[str]:
        """Names of the columns, such as claims, or claims_per_years with an exposure."""
        suffix = "" if self.exposure is None else f"_per_{self.exposure}"
        return [f"{name}{suffix}" for name in self.columns]

    def scaled(self, values: Array) -> Array:
        """Convert targets (rows, columns) from the columns' units to the units of networks."""
        if self.log and self.bounds is not None:
            values = np.log(np.maximum(values, self.bounds[0]))
        return np.ascontiguousarray((values - self.center) / self.scale)

    def inverse(self, outputs: Array) -> Array:
        """Convert outputs of the network to the target's units, within bounds, in float64."""
        values = outputs.astype(np.float64)
        values *= self.scale
        values += self.center
        if self.log:
            with np.errstate(over="ignore"):  # the bounds below replace infinity
                np.exp(values, out=values)
        if self.bounds is not None:
            np.maximum(values, self.bounds[0], out=values)
            np.minimum(values, self.bounds[1], out=values)
        return values

    def state_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "columns": self.columns,
            "center": self.center.tolist(),
            "scale": self.scale.tolist(),
            **({} if self.bounds is None else {"bounds": self.bounds.tolist()}),
            **({"log": True} if self.log else {}),
            **({} if self.exposure is None else {"exposure": self.exposure}),
        }


class TimeTarget(NumberTarget):
    """Times until an event: a column of times and a column of events, or two columns of bounds.

    An encoded row has two numbers: (t, inf) for an event at time t; (-low, high) for an event
    after `low` and at most at `high`, with `high` infinite if no event was seen.
    """

    task = "survival"
    n_outputs = 1

    def __init__(self, columns: Sequence[str], event: str | None, scale: float = 1.0) -> None:
        super().__init__(columns, [0.0], [scale])
        self.event = event

    @classmethod
    def fit_times(
        cls, table: Table, columns: Sequence[str], event: str | None, *, scaled: bool
    ) -> "TimeTarget":
        """Fit the scale: the mean of all finite times if `scaled`, else 1.

        Raises: DataError as `values`, for a wrong number of columns, and if no event was seen.
        """
        if len(columns) != (2 if event is None else 1):
            wanted = "the columns of two bounds" if event is None else "one target, the times"
            listed = ", ".join(columns)
            raise DataError(f"{table.source}: survival needs {wanted} ({listed}); correct target")
        times = cls(columns, event).values(table)
        if not ((times[:, 0] > 0) | (times[:, 1] < np.inf)).any():
            raise DataError(
                f"{table.where(event or columns[1])}: at least one training row must have an event "
                "(all are censored); give more rows, or another split"
            )
        mean = float(np.abs(times[np.isfinite(times)]).mean())
        return cls(columns, event, mean if scaled else 1.0)

    @property
    def reads(self) -> list[str]:
        """The columns of times, and the column of events."""
        return [*self.columns, *filter(None, [self.event])]

    @property
    def names(self) -> list[str]:
        """The column of times, or "time" for two bounds."""
        return self.columns if self.event else ["time"]

    def values(self, table: Table) -> Array:
        """Return the encoded rows (rows, 2) in units of the times.

        Raises: DataError for a time that is not positive, bounds that do not ascend, and an event
            that is not 0 or 1.
        """
        name, last = self.columns[0], self.columns[-1]
        if self.event is None:
            times, bounds = (_numbers(table, one, "the time", gaps=True) for one in self.columns)
            times, bounds = np.nan_to_num(times), np.where(np.isnan(bounds), np.inf, bounds)
            seen = times == bounds
            checks = [
                (name, times < 0, "a bound must be 0 or more ({}); correct the value"),
                (last, bounds <= 0, "an upper bound must be more than 0 ({}); correct the value"),
                (
                    last,
                    bounds < times,
                    "an upper bound must not be below the lower ({}); swap them",
                ),
            ]
        else:
            times = _numbers(table, name, "the time")
            seen = _numbers(table, self.event, "the event")
            bounds = np.full_like(times, np.inf)
            wrong = "a time must be more than 0 ({}); correct it, or leave the row out"
            odd = "an event must be 1, seen, or 0, censored ({}); correct the value"
            checks = [(name, ~(times > 0), wrong), (self.event, ~np.isin(seen, (0, 1)), odd)]
        for column, is_wrong, text in checks:
            if is_wrong.any():
                row = int(np.argmax(is_wrong))
                cell = table[column].text(row)
                raise DataError(f"{table.where(column, row)}: {text.format(cell)}")
        seen = seen > 0
        return np.where(seen, [times, np.full_like(times, np.inf)], [-times, bounds]).T

    def scaled(self, values: Array) -> Array:
        """Convert encoded rows (rows, 2) to the units of networks; 0 becomes -`LEAST_TIME`."""
        return np.where(values == 0, -LEAST_TIME, super().scaled(values))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "event": self.event}


class MultiLabelTarget(Target):
    """Several columns of 0 and 1, one for each label."""

    task = "multilabel"

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)

    @property
    def n_outputs(self) -> int:
        return len(self.columns)

    def encode(self, table: Table) -> Array:
        """Return zeros and ones, one column per label.

        Raises: DataError for the first value that is neither 0 nor 1.
        """
        for name in self.columns:
            values = _numbers(table, name, "the label")
            if not table[name].is_binary:
                row = int(np.flatnonzero(~np.isin(values, (0, 1)))[0])
                raise DataError(
                    f"{table.where(name, row)}: a multi-label target must be 0 or 1 "
                    f"({quoted(table[name].text(row))})"
                )
        return np.column_stack([table[name].values for name in self.columns]).astype(np.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"task": self.task, "columns": self.columns}


def check_target(table: Table, columns: Sequence[str]) -> None:
    """Check that a single target column has either numbers or classes, not a mixture."""
    if len(columns) != 1:
        return
    (name,) = columns
    column = table[name]
    row, also = odd_target_row(column), _number_advice(column) or comma_text(column)
    if row is not None:
        value = column.text(row)
        raise DataError(
            f"{table.where(name, row)}: the target must be a number, as in most rows "
            f"({quoted(value)}); correct or clear the value{gap_advice(value)}, or set task to "
            f"classification{f'; {also}' if also else ''}"
        )
    if kind_of(column) == "text":
        advice = also or "choose another column, or set data.task: classification in a config"
        count = plural(len(column.distinct()), "different text")
        raise DataError(
            f"{table.where(name)}: the target must be numbers or classes that repeat "
            f"({count} in {plural(table.n_rows, 'row')}); {advice}"
        )


def _number_advice(column: Column) -> str | None:
    """Return the advice for a text column of numbers with marks, or of codes; None for others."""
    if pair := marked_number(column):
        return marked_text(*pair)
    if column.kind == "text" and are_codes(column.used_levels()):
        return (
            "whole numbers beyond 2**53, or with zeros before them, are texts; subtract one of "
            "them from all, or leave out the zeros"
        )
    return None


def marked_text(text: str, number: str) -> str:
    """Return the advice for a column of numbers with marks; `text` is an example."""
    has_unit = text.strip("()+-\u2212 ").lower().replace("d", "e") != number.lstrip("-")
    unit = " (seconds)" if ":" in text else " (one unit for all rows, in the header)"
    return f"{text!r} is read as text, not as a number; write {number}{unit if has_unit else ''}"


def fit_target(
    table: Table,
    columns: Sequence[str],
    task: TaskName | None,
    standardize: Standardizing,
    *,
    bounded: bool = False,
    log: bool = False,
    exposure: str | None = None,
    event: str | None = None,
    classes: Sequence[str] = (),
) -> Target:
    """Fit the target of a task; if `task` is None, the task is `task_of` the columns.

    With `bounded`, predicted numbers stay in the range of the targets.  With `log`, networks learn
    the logarithm of the target.

    With a column `event`, the target is the time until an event.  Task survival without `event`
    takes two columns, the bounds of the time.
    """
    table.require(columns, "the target")
    if event is not None or task == "survival":
        return TimeTarget.fit_times(table, columns, event, scaled=bool(standardize))
    chosen = task or task_of([table[name] for name in columns])
    for name in columns if chosen != "regression" else ():
        _complete(table, name)
    if classes and chosen != "classification":
        raise DataError(
            f"{table.source}: data.classes needs task classification (got {chosen}); leave it out"
        )
    if chosen == "classification":
        if len(columns) != 1:
            raise DataError(
                f"{table.source}: classification has one target column ({', '.join(columns)}); "
                "for several columns of 0 and 1 use task multilabel"
            )
        return ClassTarget.fit(table, columns[0], classes)
    if chosen == "regression":
        return NumberTarget.fit(
            table, columns, standardize, bounded=bounded, log=log, exposure=exposure
        )
    target = MultiLabelTarget(columns)
    target.encode(table)
    return target


def target_from_state(state: Mapping[str, Any]) -> Target:
    """Return a target from a `state_dict`."""
    if state["task"] == "classification":
        return ClassTarget(state["columns"][0], state["classes"])
    if state["task"] == "survival":
        return TimeTarget(state["columns"], state["event"], state["scale"][0])
    if state["task"] == "regression":
        numbers = state["center"], state["scale"], state.get("bounds")
        log, exposure = state.get("log", False), state.get("exposure")
        return NumberTarget(state["columns"], *numbers, log=log, exposure=exposure)
    return MultiLabelTarget(state["columns"])


def class_weights(codes: Array, n_classes: int) -> Array:
    """Return a float64 weight per class, n / (classes * count), larger for rare classes.

    A class without rows gets 0.  The weights of all rows add up to the number of rows.
    """
    counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
    present = counts > 0
    weights = np.zeros(n_classes)
    weights[present] = len(codes) / (present.sum() * counts[present])
    return weights


def exposures(table: Table, column: str) -> Array:
    """Return the exposures of a table."""
    values = _numbers(table, column, "the exposure")
    if not (values > 0).all():
        row = int(np.argmin(values))
        raise DataError(
            f"{table.where(column, row)}: an exposure must be more than 0 "
            f"({table[column].text(row)}); correct the row, or leave it out (in training by "
            "data.where)"
        )
    return values


def _rates(table: Table, columns: Sequence[str], exposure: str | None) -> Array:
    """Return columns of numbers (rows, columns), divided by the `exposure` unless it is None."""
    gaps = len(columns) > 1
    values = np.column_stack([_numbers(table, name, gaps=gaps) for name in columns])
    return values if exposure is None else values / exposures(table, exposure)[:, None]


def row_weights(table: Table, column: str) -> Array:
    """Return the sample weights of a table."""
    values = _numbers(table, column, "the sample weight")
    wrong = (values < np.finfo(np.float32).tiny) & (values != 0)
    row, text = int(np.argmax(wrong)), ""
    if wrong[row]:
        text = f"sample weights must be 0 or at least 1.2e-38 ({table[column].text(row)})"
    elif not values.any():
        text = "training, validation and test rows each need a weight above 0 (these have none)"
    if text:
        raise DataError(f"{table.where(column, row)}: {text}")
    return values


def _label(column: Column, value: Any) -> Label:
    if column.kind == "text":
        text = column.levels[int(value)]  # -0 and 0 are the same number
        return text[1:] if text.startswith("-0") and not text[1:].strip("0.") else text
    if column.kind == "boolean":
        return bool(value)
    number = shortest(value)
    return int(number) if number.is_integer() else number


def _text(label: Label) -> str:
    """Return a label as text; 1 and 1.0 give the same text, and so do True and true."""
    is_number = isinstance(label, int | float) and not isinstance(label, bool)
    return number_text("number", float(label)) if is_number else label_text(label)


def _complete(table: Table, name: str, role: str = "the target") -> None:
    missing = np.flatnonzero(table[name].missing)
    if len(missing):
        others = f" and in {plural(len(missing) - 1, 'other row')}" if len(missing) > 1 else ""
        raise DataError(
            f"{table.where(name, int(missing[0]))}: {role} is missing here{others}; "
            "fill in the values or delete the rows"
        )


def check_positive(values: Array, where: Callable[[int, int], str]) -> None:
    """Check that targets (rows, columns) are positive.

    Raises: DataError, beginning with ``where(row, column)``, for the first that is not positive.
    """
    if (values <= 0).any():
        row, column = (int(place) for place in np.argwhere(values <= 0)[0])
        raise DataError(
            f"{where(row, column)}: a target with transform_target: log must be positive "
            f"({values[row, column]:g}); set transform_target to none"
        )


def _numbers(table: Table, name: str, role: str = "the target", *, gaps: bool = False) -> Array:
    if not gaps:
        _complete(table, name, role)
    column = table[name]
    if column.kind not in ("number", "boolean"):
        row: int | None
        advice, row, odd = "write a date as days or seconds since some day", 0, odd_texts(column)
        if column.kind == "text":
            row = odd_row(column)
        value = odd[0] if row is None and odd else column.text(row or 0)
        if column.kind == "text":
            advice = comma_text(column) or f"correct the value{gap_advice(value)}"
            if row is None and not odd:
                advice = "write the decimal mark of the training rows in all values"
            if role == "the event":
                advice = "write 1 for a seen event and 0 for a censored time"
            if role == "the label":
                advice = "write 1 for yes and 0 for no"
            if role == "the target" and len(odd) == len(column.levels):
                advice = "for classes write data.task: classification"
                advice = _number_advice(column) or advice
                if gaps:
                    advice = "several targets must be all numbers, or all labels of 0 and 1"
        where = table.where(name, row)
        raise DataError(f"{where}: {role} must be a number ({quoted(value)}); {advice}")
    values = column.values.astype(np.float64)
    wrong = np.flatnonzero(np.abs(values) >= 1e38)
    if len(wrong):
        raise DataError(
            f"{table.where(name, int(wrong[0]))}: {role} must be finite and below 1e38 "
            f"({values[wrong[0]]}); use a larger unit, or leave the row out"
        )
    return values
