"""Networks that learn one row at a time from dictionaries, in constant memory."""

from collections.abc import Hashable, Mapping
from decimal import Decimal
from math import inf, isfinite, sqrt
from numbers import Real
from typing import Annotated, Any
from zlib import crc32

import numpy as np

from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.fields import COUNT, POSITIVE, Count, Limits, Positive
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.nn import Mlp
from mlpengine.ops import Loss, MeanSquaredError, SoftmaxCrossEntropy
from mlpengine.optim import Adam
from mlpengine.step import TrainingStep

DRIFT = 30.0
"""Sum of excess losses above which drift is reported (Page-Hinkley test)."""

TOLERANCE = 0.2
"""An excess loss is loss / usual loss - 1 - `TOLERANCE`; the sum does not fall below 0."""

BOOST = 5.0
"""Factor of the learning rate after drift; the factor falls to 1 within `memory` rows."""

FARTHEST = 4.0
"""Numbers are clipped to this many deviations from the mean, so that a glitch changes little."""

FIRST_ROWS = 10
"""Number of first values of a column that are not clipped."""

LARGEST = 1e100
"""Maximum magnitude of a number."""


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas.NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, Hashable) and bool(value != value)  # an array has no single answer


def _plain(value: Any, name: str) -> float | bool | str | None:
    """Convert a value, also of NumPy or `decimal`, to float, bool or str; a missing one to None."""
    if _is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        return value
    if not isinstance(value, Real | Decimal) or isinstance(value, np.timedelta64):
        text = "a number, boolean or text is needed"
        raise DataError(f"{name}: {text} (got {quoted(value)}); write a date as its timestamp()")
    number: Any = value.item() if isinstance(value, np.number) else value
    if LARGEST < abs(number) < inf:  # a larger int may not even fit into a float
        raise DataError(f"{name}: numbers must be within 1e100 (got {quoted(value)})")
    return float(number)


class _Scale:
    """Exponential mean and variance of numbers; the first rows have equal weights."""

    def __init__(self, size: int, memory: float) -> None:
        self.mean, self.variance = np.zeros(size), np.zeros(size)
        self.rows, self.memory = np.zeros(size), memory

    def add(self, k: int, value: float) -> None:
        """Add a number; after `FIRST_ROWS` numbers, clip it to `FARTHEST` deviations."""
        if self.rows[k] >= FIRST_ROWS:
            reach = FARTHEST * sqrt(self.variance[k])
            value = min(max(value, self.mean[k] - reach), self.mean[k] + reach)
        self.rows[k] += 1
        share = max(1 / self.rows[k], 1 / self.memory)
        apart = value - self.mean[k]
        self.mean[k] += share * apart
        self.variance[k] += share * (apart * (value - self.mean[k]) - self.variance[k])

    def scaled(self, k: int, value: float) -> float:
        deviation = sqrt(self.variance[k]) or 1.0
        return min(max((value - float(self.mean[k])) / deviation, -FARTHEST), FARTHEST)


class _Online:
    """A network that learns from rows as dicts: numbers, texts, booleans and missing values.

    Numbers are scaled by their exponential mean and variance; each text has its own feature.  New
    columns and texts get the next free feature.  When all `features` are taken, new columns and
    texts share features by a hash of their names.  Each step learns the newest row and the
    `batch` - 1 rows before it.  If losses stay high (drift), the learning rate is raised for the
    next `memory` rows.

    Attributes:
        drifts: number of drifts so far.
        network: the `Mlp`.

    Source: Page 1954, "Continuous inspection schemes", for the test of drift.
    """

    def __init__(
        self,
        hidden: int | tuple[int, ...],
        outputs: int,
        loss: Loss,
        *,
        lr: float,
        features: int,
        memory: float,
        batch: int,
        random_state: int,
    ) -> None:
        where = type(self).__name__
        self.features: int = COUNT.check(f"{where}: features", features)
        self.memory: float = POSITIVE.check(f"{where}: memory", memory)
        sizes = [features, *np.atleast_1d(hidden).tolist(), outputs]
        self.network = Mlp(sizes, activation="relu", seed=random_state)
        self.step = TrainingStep(
            self.network, loss, Adam(self.network, lr=lr), batch_size=batch, backend="numpy"
        )
        self.lr, self.drifts, self.rows = lr, 0, 0
        self._slots: dict[str, int] = {}
        self._numbers = _Scale(features, memory)
        self._losses = _Scale(1, memory)
        self._x = np.zeros((batch, features), np.float32)
        self._excess = 0.0
        self._since = memory

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows:,} rows, {self.drifts} drifts)"

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            if len(self._slots) >= self.features:
                return crc32(name.encode()) % self.features
            self._slots[name] = len(self._slots)
        return self._slots[name]

    def _checked(self, x: Any) -> dict[str, float | bool | str | None]:
        """Return a row with plain values.  Raises: DataError, before anything changes."""
        if not isinstance(x, Mapping):
            raise DataError(f"{type(self).__name__}: a row must be a dict (got {quoted(x)})")
        return {str(name): _plain(value, str(name)) for name, value in x.items()}

    def _encode(
        self, x: Mapping[str, float | bool | str | None], out: Array, *, learning: bool = False
    ) -> None:
        out.fill(0)
        for name, value in x.items():
            if isinstance(value, float):
                if isfinite(value):
                    k = self._slot(name)
                    if learning:
                        self._numbers.add(k, value)
                    out[k] = self._numbers.scaled(k, value)
            elif value is not None:
                known = learning or f"{name}={value}" in self._slots
                if known or len(self._slots) >= self.features:
                    out[self._slot(f"{name}={value}")] = 1

    def _output(self, x: Mapping[str, Any]) -> Array:
        row = np.empty((1, self.features), np.float32)
        self._encode(self._checked(x), row[0])
        output: Array = self.network.predict(row)[0]
        return output

    def _learn(self, x: Mapping[str, float | bool | str | None], y: Array) -> None:
        """Learn the latest rows with targets `y`; the newest target is at ``rows % batch``."""
        self._encode(x, self._x[self.rows % len(self._x)], learning=True)
        self.rows += 1
        known = min(self.rows, len(self._x))
        self._since += 1
        fading = max(0.0, 1 - self._since / self.memory)
        self.step.optimizer.lr = self.lr * (1 + (BOOST - 1) * fading)
        self._watch(self.step(self._x[:known], y[:known]))

    def _watch(self, loss: float) -> None:
        usual = self._losses.mean[0]
        self._losses.add(0, loss)
        if self.rows > len(self._x) and usual > 0:
            self._excess = max(0.0, self._excess + loss / usual - 1 - TOLERANCE)
        if self._excess > DRIFT:
            self.drifts += 1
            self._excess, self._since = 0.0, 0.0
            self._losses = _Scale(1, self.memory)


Hidden = Annotated[int | tuple[int, ...], "Units of the hidden layers."]


class OnlineRegressor(_Online):
    """A network that learns to predict a number from one row after another.

    >>> model = OnlineRegressor(random_state=1)
    >>> for i in range(300):
    ...     model.learn_one({"x": i % 10, "kind": "ab"[i % 2]}, 3 * (i % 10))
    >>> abs(model.predict_one({"x": 4, "kind": "a"}) - 12) < 3
    True
    """

    def __init__(
        self,
        hidden: Hidden = (32,),
        *,
        lr: Positive = 5e-3,
        features: Count = 64,
        memory: Positive = 1000,
        batch: Count = 64,
        random_state: int = 0,
    ) -> None:
        given: dict[str, Any] = {"lr": lr, "features": features, "memory": memory, "batch": batch}
        super().__init__(hidden, 1, MeanSquaredError(), random_state=random_state, **given)
        self._target, self._y = _Scale(1, memory), np.zeros((batch, 1))

    def learn_one(self, x: Mapping[str, Any], y: float) -> None:
        """Learn one row.  Raises: DataError for an invalid row or target, such as 1e101."""
        row, number = self._checked(x), inf
        if isinstance(y, Real | Decimal) and not _is_missing(y):
            number = float(_plain(y, "learn_one: y") or 0)
        if not isfinite(number):
            raise DataError(f"learn_one: y must be a number within 1e100 (got {quoted(y)})")
        self._target.add(0, number)
        self._y[self.rows % len(self._y)] = number
        deviation = sqrt(self._target.variance[0]) or 1.0
        scaled = (self._y - self._target.mean[0]) / deviation
        self._learn(row, np.clip(scaled, -2 * FARTHEST, 2 * FARTHEST).astype(np.float32))

    def predict_one(self, x: Mapping[str, Any]) -> float:
        """Return the prediction for one row; 0 before the first row is learned."""
        deviation = sqrt(self._target.variance[0]) or 1.0
        return float(self._output(x)[0]) * deviation + float(self._target.mean[0])


class OnlineClassifier(_Online):
    """A network that learns to predict a class from one row after another.

    `classes` is the maximum number of classes.

    >>> model = OnlineClassifier(random_state=1)
    >>> for i in range(300):
    ...     model.learn_one({"x": i % 10}, "high" if i % 10 > 4 else "low")
    >>> model.predict_one({"x": 8}), model.predict_one({"x": 1})
    ('high', 'low')
    """

    def __init__(
        self,
        hidden: Hidden = (32,),
        *,
        classes: Count = 10,
        lr: Positive = 5e-3,
        features: Count = 64,
        memory: Positive = 1000,
        batch: Count = 64,
        random_state: int = 0,
    ) -> None:
        given: dict[str, Any] = {"lr": lr, "features": features, "memory": memory, "batch": batch}
        classes = Limits(at_least=2, whole=True).check("OnlineClassifier: classes", classes)
        super().__init__(hidden, classes, SoftmaxCrossEntropy(), random_state=random_state, **given)
        self._classes: dict[Any, int] = {}
        self._y = np.zeros(batch, np.int64)

    def learn_one(self, x: Mapping[str, Any], y: Any) -> None:
        """Learn one row.  Raises: DataError for an invalid row; UsageError for too many labels."""
        row = self._checked(x)
        if not isinstance(y, Hashable) or _is_missing(y):
            raise DataError(f"learn_one: y must be a label (got {quoted(y)})")
        if y not in self._classes:
            if (known := len(self._classes)) >= self.network.sizes[-1]:
                raise UsageError(
                    f"learn_one: {quoted(y)} is label number {known + 1}, but the model has "
                    f"classes={known}; make it with classes={known + 1} or more"
                )
            self._classes[y] = len(self._classes)
        self._y[self.rows % len(self._y)] = self._classes[y]
        self._learn(row, self._y)

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Return the probability of each known label."""
        logits = self._output(x)[: len(self._classes)].astype(np.float64)
        shares = np.exp(logits - logits.max(initial=-np.inf))
        return dict(zip(self._classes, (shares / shares.sum()).tolist(), strict=True))

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Return the most likely label; None before the first row is learned."""
        chances = self.predict_proba_one(x)
        return max(chances, key=chances.__getitem__) if chances else None
