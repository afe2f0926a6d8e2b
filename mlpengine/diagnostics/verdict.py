"""`Verdict`, and the format of its numbers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """One problem: the measurement, the threshold, and a remedy.

    `name` is the rule's, `layer` the layer's number or None for the whole net.  `fix` holds config
    settings by dotted key, as for --set, or is None; `no_fix` then gives the reason.
    """

    name: str
    layer: int | None
    finding: str
    value: float
    threshold: float
    advice: str
    fix: Mapping[str, Any] | None = None
    no_fix: str = ""

    def __str__(self) -> str:
        where = "" if self.layer is None else f"layer {self.layer}: "
        return f"{where}{self.finding} - {self.advice}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        plain = {k: _json_able(v) for k, v in asdict(self).items()}
        return {**plain, "text": str(self)}


def _json_able(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def percent(share: float) -> str:
    """Return a share as text, such as 41 %; from 99 % on with one decimal, such as 99.7 %."""
    value = 100 * share
    return f"{value:.0f} %" if value < 99 or share == 1 else f"{value:.1f} %"


def power(value: float) -> str:
    """Return a number with two digits, such as 0.35, 430 or 3e-05."""
    text = f"{value:.2g}"
    return f"{float(text):,.0f}" if 100 <= abs(value) < 1e7 else text
