"""`Verdict`, the combined settings of several verdicts, and formats of numbers in texts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlpengine.core.structure import finite
from mlpengine.diagnostics.thresholds import NAME_CHARACTERS
from mlpengine.settings.fix import Fix, by_key, call_text, keywords, loop_text, with_earlier

if TYPE_CHECKING:
    from mlpengine.drawing.markup import Markup

NOTE = "note"
"""Severity of a verdict on a fact that does not lower the score."""

CORRECTIONS = frozenset({"data.drop", "data.na_values", "data.task", "data.where"})
"""Settings that correct the data.  Scores before and after a correction do not show whether the
correction is right, because rows, columns or tasks differ."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """One problem of a run: a headline, the evidence, and the advice.

    Args:
        name: name of the rule, as in `diagnostics.silence`.
        layer: number of the layer; None for the whole network.
        headline: the problem in about five words, without a full stop.
        evidence: a sentence with the measured numbers.
        value, threshold: the measured number and its limit.
        advice: a sentence that says what to do.
        fix: values of options; if empty, `no_fix` gives the reason.
        layer_name: name of the layer in your own network.
        severity: "warning", or "note" for a fact that does not lower the score; `combined_fix`
            ignores notes.
        others: further fixes for `train --fix` to try, each a list like `fix`.
    """

    name: str
    layer: int | None
    headline: str
    evidence: str
    value: float
    threshold: float
    advice: str
    fix: Sequence[Fix] = ()
    no_fix: str = ""
    layer_name: str = ""
    severity: str = "warning"
    others: Sequence[Sequence[Fix]] = ()

    def __str__(self) -> str:
        note = "Note: " if self.severity == NOTE else ""
        where = f" ({self.place})" if self.place else ""
        return f"{note}{self.headline}{where}. {self.evidence} {self.advice} [{self.name}]"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-able data."""
        plain = {name: finite(value) for name, value in vars(self).items()}
        if not self.layer_name:
            del plain["layer_name"]
        del plain["others"]
        return {**plain, "fix": by_key(self.fix) or None, "text": str(self)}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> "Verdict":
        """Return a verdict from the data of `as_dict`, without `others`."""
        given = {name: value for name, value in known.items() if name not in ("text", "fix")}
        return cls(**given, fix=[Fix.read(*one) for one in (known["fix"] or {}).items()])

    @property
    def place(self) -> str:
        """The layer as text; "" for the whole network."""
        return self.layer_name or ("" if self.layer is None else f"layer {self.layer}")

    @property
    def is_of_network(self) -> bool:
        """Whether the verdict is about layers or recalls, or its fix changes the network."""
        keys = ("model.", "optimizer.")
        measured = self.layer is not None or self.name in ("imbalance", "overfitting")
        return measured or any(key.startswith(keys) for key in by_key(self.fix))

    @property
    def fix_text(self) -> str:
        """Settings of the fix as a call of `mlpengine.fit`; "" without a fix."""
        return call_text(by_key(self.fix)) if self.fix else ""

    def __repr__(self) -> str:
        return f"Verdict({str(self)!r})"

    def _repr_html_(self) -> str:
        return Verdicts([self])._repr_html_()


class Verdicts(list[Verdict]):
    """A list of verdicts: HTML in a notebook, text in a terminal.

    Fixes are shown as calls of `mlpengine.fit`.  With `parameters`, a mapping from config keys to
    names of parameters, fixes are shown as calls of an estimator.  With `in_loop`, fixes are shown
    as calls of the engine's classes.  `settings` has the keywords of the call that trained.
    """

    def __init__(
        self,
        known: Iterable[Verdict] = (),
        parameters: Mapping[str, str] | None = None,
        *,
        in_loop: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(known)
        self.parameters, self.in_loop, self.settings = parameters, in_loop, settings or {}

    def fix_text(self, settings: Mapping[str, Any]) -> str:
        """Return settings as calls in Python."""
        return loop_text(settings) if self.in_loop else call_text(settings, self.parameters)

    @property
    def fix(self) -> dict[str, Any]:
        """The call's settings with all fixes, as keywords of `mlpengine.fit` or `set_params`."""
        settings = {key: value for key, (value, _) in combined_fix(self).items()}
        return keywords(settings, self.parameters, self.settings)

    def __repr__(self) -> str:
        lines = []
        for one in self:
            fix = self.fix_text(by_key(one.fix)) if one.fix else ""
            lines.append(f"{one}\n  fix: {fix}" if fix else str(one))
        return "\n".join(lines) or "Nothing unusual."

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html

        return cell_html(self.content())

    def content(self) -> "Markup":
        """Return what a notebook shows."""
        return verdict_list([one.as_dict() for one in self], self.fix_text)


def verdict_list(
    verdicts: Sequence[Mapping[str, Any]], fix_text: Callable[[Mapping[str, Any]], str]
) -> "Markup":
    """Return verdicts (data of `Verdict.as_dict`) and their fixes as HTML."""
    from mlpengine.drawing.markup import tag

    if not verdicts:
        return tag("p", "Nothing unusual.", class_="fine")
    items = []
    for one in verdicts:
        headline, layer = str(one["headline"]), one["layer"]
        where = one.get("layer_name") or ("" if layer is None else f"layer {layer}")
        title = tag("strong", f"{headline} ({where})" if where else headline)
        lines = [
            tag("p", title, " ", tag("span", f"[{one['name']}]", class_="soft")),
            tag("p", f"{one['evidence']} {one['advice']}"),
        ]
        if one["fix"] and (text := fix_text(one["fix"])):
            lines.append(tag("p", "Settings that fix it: ", tag("code", text)))
        items.append(tag("li", *lines, class_=one.get("severity") or "warning"))
    return tag("ul", *items, class_="verdicts")


def combined_fix(verdicts: Iterable[Verdict]) -> dict[str, tuple[Any, Verdict]]:
    """Return the settings of all fixes by dotted key: the value, and the first verdict with it.

    If fixes give a key several values, the first counts, because causes come first.  Corrections of
    the data are combined: columns to drop, texts of missing values, and filters of rows.  A
    learning rate is left out if a fix standardizes columns or targets, because their old scale
    determined it.
    """
    settings: dict[str, tuple[Any, Verdict]] = {}
    for verdict in verdicts:
        for key, value in by_key(verdict.fix if verdict.severity != NOTE else ()).items():
            if key in CORRECTIONS and key in settings:
                earlier, first = settings[key]
                settings[key] = with_earlier(key, earlier, value), first
            else:
                settings.setdefault(key, (value, verdict))
    if not settings.keys().isdisjoint(("data.standardize", "data.standardize_target")):
        settings.pop("optimizer.lr", None)
    return settings


def without(verdicts: Iterable[Verdict], silenced: Collection[str]) -> Verdicts:
    """Return the verdicts whose names are not silenced."""
    return Verdicts(verdict for verdict in verdicts if verdict.name not in silenced)


def brief(name: str, length: int = NAME_CHARACTERS) -> str:
    """Return the name of a column, a class or a layer; long names are cut."""
    return name if len(name) <= length else f"{name[: length - 3]}..."


def percent(share: float) -> str:
    """Return a share as text, such as 41 %; from 99 to 100 %, one decimal is shown (99.7 %)."""
    value = 100 * share
    return f"{value:.1f} %" if 99 <= value < 100 else f"{value:.0f} %"


def two_digits(value: float) -> str:
    """Return a number with two digits, such as 0.35, 430, 1.0 or 3e-05."""
    text = f"{value:.2g}"
    if text == "1":
        return "1.0"  # texts say 1.0 times, not 1 times
    return f"{float(text):,.0f}" if 100 <= abs(float(text)) < 1e7 else text
