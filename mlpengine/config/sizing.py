"""The size of a student by measurement: the largest network whose C costs no more than allowed."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from mlpengine.config.build import loss_and_task
from mlpengine.config.load import ConfigFile, Override, with_overrides
from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural
from mlpengine.data.features import Preprocessor
from mlpengine.export import RowCost, row_cost
from mlpengine.models.model import Model
from mlpengine.training.trainer import front_of, make_network

LAYER_UNITS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 2)
"""Units of each of two hidden layers to choose from."""

TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SIZE_UNITS = {"": 1.0, "k": 1024.0, "m": 1024.0**2}


@dataclass(frozen=True)
class Limits:
    """What a prediction of one row may cost in C: seconds, and bytes of flash; None is no limit."""

    seconds: float | None = None
    flash: float | None = None

    @classmethod
    def of(cls, budget: str | float | None, flash: str | float | None) -> "Limits":
        """Read limits such as ``10us`` and ``16k``, or numbers of seconds and bytes.

        Raises: UsageError for another text, or a number that is not above zero.
        """
        return cls(
            _quantity("budget", budget, TIME_UNITS, "10us"),
            _quantity("flash", flash, SIZE_UNITS, "16k"),
        )

    def __bool__(self) -> bool:
        return self.seconds is not None or self.flash is not None

    def allow(self, cost: RowCost) -> bool:
        """Return whether a cost is within the limits."""
        fast = self.seconds is None or cost.seconds <= self.seconds
        return fast and (self.flash is None or cost.flash <= self.flash)

    def __str__(self) -> str:
        texts = [] if self.seconds is None else [f"{self.seconds * 1e6:.4g} us"]
        texts += [] if self.flash is None else [f"{self.flash:,.0f} bytes of flash"]
        return " and ".join(texts)


def with_size(file: ConfigFile, fitted: Preprocessor, limits: Limits) -> tuple[ConfigFile, str]:
    """Return the config of the largest student that a row costs no more of in C, and its cost.

    Raises: UsageError if none does, or for another network than dense layers; CompileError
    without a C compiler.
    """
    settings = file.config.settings
    if (name := settings.network.network) != "mlp":
        raise UsageError(
            f"distill: budget and flash choose the sizes of dense layers (got model.network: "
            f"{name}); leave out model.network, or choose the sizes of {name} by its options"
        )
    loss, task = loss_and_task(file, fitted)
    front, ends = front_of(settings.network, fitted.numbers), (fitted.n_features, task.outputs)
    options = loss.measured_options
    costs: dict[int, RowCost] = {}

    def fits(units: int) -> bool:
        network = make_network(
            replace(settings.network, hidden=(units, units)),
            ends,
            seed=settings.seed,
            dtype=settings.training.dtype,
            front=front,
        )
        costs[units] = row_cost(Model(network, fitted, loss.name, options))
        return limits.allow(costs[units])

    place = bisect_left(LAYER_UNITS, True, key=fits)
    units = LAYER_UNITS[min(place, len(LAYER_UNITS) - 1)]
    cost = costs[units]
    text = f"{units}-{units} takes {cost.seconds * 1e6:.3g} us a row and {cost.flash:,} bytes in C"
    text += f" ({cost.machine})"
    if place == len(LAYER_UNITS):
        features = plural(ends[0], "feature")
        raise UsageError(
            f"distill: no network fits into {limits}: with {features} the smallest, {text}; allow "
            "more, or drop columns"
        )
    chosen = Override("size", ("model", "hidden"), f"[{units}, {units}]")
    return with_overrides(file, [chosen]), text


def _quantity(
    name: str, value: str | float | None, units: Mapping[str, float], example: str
) -> float | None:
    """Return a number with its unit; one that is no text is in seconds or bytes."""
    if value is None:
        return None
    number, unit = value, ""
    if isinstance(value, str):
        text = value.strip().lower().replace("µ", "u").removesuffix("b")
        match = re.fullmatch(r"(\d+(?:\.\d*)?) ?([a-z]*)", text)
        number, unit = match.groups() if match else (0, "")
    try:
        amount = float(number) * (units[unit] if isinstance(value, str) else 1.0)
    except (KeyError, TypeError, ValueError):
        amount = 0.0
    if not 0 < amount < inf:
        listed = ", ".join(filter(None, units))
        text = f"a number above zero and its unit ({listed}), such as {example}"
        raise UsageError(f"{name}: must be {text} (got {value!r})")
    return amount
