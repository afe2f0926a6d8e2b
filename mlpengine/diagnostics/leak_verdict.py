"""The verdict on a feature that explains nearly all of the target."""

from collections.abc import Sequence
from dataclasses import replace

from mlpengine.data.features.leaks import Leak
from mlpengine.data.features.thresholds import ANSWER
from mlpengine.diagnostics.verdict import NOTE, Verdict, brief
from mlpengine.settings import FeatureSettings, Fix


def leak_verdict(leak: Leak, advice: str, drop: Sequence[str]) -> Verdict:
    """Return the verdict on a feature; its fix drops the columns `drop`."""
    unless = ", unless it is known when you predict"
    fix = [Fix(FeatureSettings, "drop", tuple(drop))]
    return found_leak(leak, f"{advice}{unless}.", fix)


def dropped_leak(leak: Leak) -> Verdict:
    """Return the verdict on a column that the config leaves out."""
    advice = "Take it out of data.drop if it is known when you predict."
    found = found_leak(leak, advice, note=" (left out)", no_fix="it is left out")
    return replace(found, severity=NOTE)


def found_leak(
    leak: Leak, advice: str, fix: Sequence[Fix] = (), *, note: str = "", no_fix: str = ""
) -> Verdict:
    """Return the verdict with its evidence; `note` follows the name of the column."""
    headline = "A column reveals the target"
    evidence = f"Column {brief(leak.column)!r}{note}: {brief(leak.reason, 240)}."
    return Verdict("leak", None, headline, evidence, leak.share, ANSWER, advice, fix, no_fix)
