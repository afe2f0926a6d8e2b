"""The verdict on a feature that explains nearly all of the target."""

from collections.abc import Sequence

from mlpengine.data.features.leaks import Leak
from mlpengine.data.features.thresholds import ANSWER
from mlpengine.diagnostics.verdict import Verdict, brief, percent
from mlpengine.settings import FeatureSettings, Fix


def leak_verdict(leak: Leak, advice: str, drop: Sequence[str]) -> Verdict:
    """Return the verdict on a feature; `drop` are the columns that its fix leaves out."""
    if not leak.is_target:
        advice += ", unless it is known when you predict"
    finding, fix = leak_text(leak), [Fix(FeatureSettings, "drop", tuple(drop))]
    return Verdict("leak", None, finding, leak.share, ANSWER, advice, fix)


def leak_text(leak: Leak, note: str = "") -> str:
    """Return how a column reveals the target, with the usual value; `note` follows its name."""
    reason = f"{brief(leak.reason, 52)} (should be below {percent(ANSWER)})"
    return f"column {brief(leak.column, 20)!r}{note}: {reason}"
