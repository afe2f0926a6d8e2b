"""Parts of messages: numbers with nouns, similar names, text from files."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any
from unicodedata import combining, east_asian_width, normalize

LONGEST_NAME = 200
"""Maximum length of names that `nearest` compares."""

LONGEST_WORD, LONGEST_LINE, MOST_LINES = 200, 2000, 200
"""Limits of a message: characters of a word, characters of a line, number of lines."""

_LONG_WORD = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}")

DISPLAY_NAMES = {
    "brier": "Brier score",
    "lr": "learning rate",
    "macro_f1": "macro F1",
    "mae": "MAE",
    "mape": "MAPE",
    "nll": "NLL",
    "r2": "R²",
    "rmse": "RMSE",
    "rmsle": "RMSLE",
    "roc_auc": "ROC-AUC",
}
"""Display names of metrics and of columns of metrics.csv."""

ALIASES = {"bce": "bce_with_logits", "linear": "identity", "lrelu": "leaky_relu", "swish": "silu"}
"""Names of activations and losses in other libraries, with the names here."""


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with a noun: "1 row", "1,234 rows"; `many` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def best_text(epochs: Sequence[int]) -> str:
    """Return text such as ``best epochs of networks: 4 to 15``."""
    first, last = min(epochs), max(epochs)
    several = f"best epochs of networks: {first} to {last}"
    return several if first < last else f"best epoch {first}"


def printable(text: str) -> str:
    """Return text from a file as one line: control characters are escaped as in `repr`."""
    if text.isprintable():
        return text
    odd = [c for c in {*text} if not (c.isprintable() or "\ud800" <= c <= "\udfff")]
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in odd})


def quoted(value: object) -> str:
    """Return a value as short text for a message; the text of an array is its dtype and shape.

    A long text keeps its closing quote or bracket.
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape, kind = getattr(value, "shape", None), getattr(getattr(value, "dtype", 0), "kind", "m")
    if shape == () and kind in "biufcSU":
        value = value.item()  # type: ignore[attr-defined]
    elif isinstance(shape, tuple):
        return f"{type(value).__name__} {getattr(value, 'dtype', '')}{[*shape]}"
    text, name = repr(value), type(value).__name__
    if " object at 0x" in text:
        return f"{name}(...)"
    if len(text) <= 60:
        return text
    if isinstance(value, str | bytes | list | tuple | dict | set):
        return f"{text[:56]}...{text[-1]}"
    return f"{name}(...)" if text.startswith(f"{name}(") else f"{name} {text[:40]}..."


def label_text(label: object, write: Callable[[object], str] = str) -> str:
    """Return the label of a class as text; booleans are `false` and `true`, as in CSV and JSON."""
    return write(label).lower() if isinstance(label, bool) else write(label)


def listed_labels(labels: Sequence[object]) -> str:
    """Return at most ten labels, texts with quotes, for a message."""
    more = ", ..." if len(labels) > 10 else ""
    return ", ".join(label_text(label, repr) for label in labels[:10]) + more


def label_index(given: object, labels: Sequence[object]) -> int | None:
    """Return the index of a label or its text, or None; false and true may be in any case."""
    texts, text = [*map(label_text, labels)], label_text(given)
    text = text.lower() if {*texts} == {"false", "true"} else text
    return texts.index(text) if text in texts else None


def shortened(text: str) -> str:
    """Return a message with long words and lines shortened, and lines after `MOST_LINES` cut."""
    text = _LONG_WORD.sub(lambda word: f"{word[0][: LONGEST_WORD // 2]}...{word[0][-20:]}", text)
    lines = text.split("\n", MOST_LINES)
    lines[MOST_LINES:] = ["..."] * (len(lines) > MOST_LINES)
    return "\n".join(n if len(n) <= LONGEST_LINE else f"{n[:LONGEST_LINE]}..." for n in lines)


def columns_of(text: str) -> int:
    """Return the columns of a text in a terminal: a wide character takes two, an accent none."""
    if text.isascii():
        return len(text)
    return sum(not combining(c) and 1 + (east_asian_width(c) in "WF") for c in text)


def left(text: str, width: int) -> str:
    """Return a text with blanks after it, `width` columns of a terminal in all."""
    return text + " " * (width - columns_of(text))


def cut(text: str) -> str:
    """Return a text of at most 60 characters; "..." replaces the middle of a long text."""
    return cut_apart([text], 60)[0]


def cut_apart(texts: Sequence[str], length: int) -> list[str]:
    """Return texts of at most `length` characters; different texts stay different.

    "..." replaces the middle of a long text.  If two texts would then be equal, each long text
    instead ends with its position in `texts`.

    >>> cut_apart(["a long name one", "a long name two"], 10)
    ['a lo...one', 'a lo...two']
    """
    tail = (length - 3) // 2
    cut = [t if len(t) <= length else f"{t[: length - 3 - tail]}...{t[-tail:]}" for t in texts]
    if len({*cut}) == len({*texts}):
        return cut
    ends = [f"...{k + 1}" for k in range(len(texts))]
    return [
        t if len(t) <= length else f"{t[: length - len(end)]}{end}"
        for t, end in zip(texts, ends, strict=True)
    ]


def as_setting(value: Any) -> str:
    """Return a JSON value in the notation of configs and `--set`: null, not None."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def suggestion(wrong: object, names: Iterable[str]) -> str:
    """Return `` - did you mean 'x'?`` for the nearest of `names`, or ""."""
    near = nearest(wrong, names)
    return f" - did you mean {near!r}?" if near else ""


def nearest(wrong: object, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar name, or None; case decides only between names such as x and X.

    `cutoff` is the lowest similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`).

    >>> nearest("Prise", ["price", "Price", "size"])
    'Price'
    """
    text, names = str(wrong), [*names]
    if (same := ALIASES.get(text.lower())) in names:
        return same
    if len(text) > LONGEST_NAME:  # the time grows with the square of the length
        return None
    by_case: dict[str, list[str]] = {}
    for name in names:
        if len(name) <= LONGEST_NAME:
            by_case.setdefault(normalize("NFC", name.lower()), []).append(name)
    near = get_close_matches(normalize("NFC", text.lower()), by_case, 1, cutoff)
    return get_close_matches(text, by_case[near[0]], 1, 0.0)[0] if near else None


def shown_name(name: str) -> str:
    """Return the display name of a metric or of a column of metrics.csv."""
    return DISPLAY_NAMES.get(name, spaced(name))


def spaced(name: str) -> str:
    """Replace underscores by blanks in a metric: ``f1_score of my_class`` keeps ``my_class``."""
    metric, of, label = name.partition(" of ")
    return f"{metric.replace('_', ' ')}{of}{label}"


def metric_text(value: float | None) -> str:
    """Return a metric as text for a table."""
    if value is None or value != value:
        return "-"
    if 0 < abs(value) < 5e-5:  # four decimals would show 0
        return f"{value:.2e}"
    if abs(value) < 100:
        return f"{value:.4f}"
    if abs(value) < 1e7:
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    return f"{value:.2e}"


def error_text(value: float) -> str:
    """Return a standard error with two digits, such as 0.0080, or more before the point."""
    if value != value:
        return "-"
    return f"{value:.0f}" if 9.95 <= value < 1e7 else f"{value:#.2g}"


def script_json(value: object) -> str:
    """Return JSON for a ``<script>`` element, with ``<``, ``>`` and ``&`` escaped."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def differing(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two values; remove the keys with equal values from mappings, at every depth."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return first, second
    names = sorted(n for n in first.keys() | second if first.get(n) != second.get(n))
    pairs = {n: differing(first.get(n), second.get(n)) for n in names}
    return {n: pair[0] for n, pair in pairs.items()}, {n: pair[1] for n, pair in pairs.items()}
