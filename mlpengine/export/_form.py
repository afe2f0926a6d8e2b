"""A page that predicts: a form with a field for each column, and the model as a script."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import script_json
from mlpengine.data.features.summary import ColumnState
from mlpengine.data.tables.table import number_text
from mlpengine.drawing.markup import Content, Markup, joined, number, shortened, tag
from mlpengine.drawing.style import html_page, page_style
from mlpengine.export._exported import Exported
from mlpengine.export._js_module import description, to_js
from mlpengine.models.model import Model
from mlpengine.nn import Network

FORM_POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
"""The page loads nothing and sends nothing, and runs only its own script."""

DAY = 86_400


def to_html(model: Model | Network) -> tuple[bytes, Exported]:
    """Return a page with a form; the page predicts from the typed values.

    Raises: UsageError for a network without preprocessing, or without a JavaScript form.
    """
    if isinstance(model, Network):
        raise UsageError("export: html needs a model with its preprocessing (got a network)")
    module, exported = to_js(model)
    columns, summary = description(model)["columns"], model.preprocessor.summary["columns"]
    title = f"Prediction of {' and '.join(shortened(name) for name in model.predicts)}"
    kept = [model.background.get(one["name"], ()) for one in columns]
    usual = f"const background = {script_json(list(zip(*kept, strict=True)))};"
    script = Markup(f"\n{module.decode()}\n{usual}\n{_asset('form.js')}")
    styles = Markup(page_style() + _asset("form.css"))
    fields = [_field(i, one, summary.get(one["name"])) for i, one in enumerate(columns)]
    page = html_page(
        title,
        FORM_POLICY.format(script=_digest(script), style=_digest(styles)),
        styles,
        tag("header", tag("h1", title)),
        tag(
            "main",
            tag("div", id="prediction", role="status", aria_live="polite"),
            _threshold(model) if model.threshold else None,
            tag("form", *fields, autocomplete="off", aria_label="Columns"),
            tag("details", tag("summary", "Why this prediction"), tag("div"), id="reasons"),
        ),
        tag("footer", "The page computes the prediction itself, and sends nothing anywhere."),
        tag("script", script, type="module"),
    )
    return page.encode(errors="backslashreplace"), replace(exported, format="html")


def _threshold(model: Model) -> Markup:
    value, _, name = model.threshold_text.partition(" for ")
    return tag("p", f"The prediction is {name} if its probability is above {value}.", class_="hint")


def _field(place: int, column: Mapping[str, Any], known: ColumnState | None) -> Markup:
    """Return the label, the input and the hint of a column."""
    name, kind, gaps = f"c{place}", column["kind"], column["gaps"]
    hint = ", ".join(_hints(column, known))
    about = {"id": name, "name": name, "aria_describedby": f"{name}-hint" if hint else None}
    low, high = _range(known)
    if kind in ("category", "boolean"):
        levels = column.get("levels", ["true", "false"])
        usual = _usual_level(known)
        options = [_option(level, level, chosen=i == usual) for i, level in enumerate(levels)]
        if kind == "category":
            options.append(_option(_unknown(levels), "another one", chosen=False))
        if gaps:
            options.append(_option("", "unknown", chosen=False))
        box = tag("select", *options, **about)
    elif kind == "date":
        whole = low % DAY == 0 and high % DAY == 0
        text = number_text("date", round((low + high) / 2 / DAY) * DAY)
        value = text.partition("T")[0] if whole else text
        box = tag("input", type="date" if whole else "datetime-local", value=value,
                  step=None if whole else 1, **about)  # fmt: skip
    else:
        middle = known["quantiles"][8] if known and known.get("quantiles") else 0.0
        value = f"{round(middle) if kind == 'integer' else middle:.6g}"
        box = tag("input", type="number", step="any", value=value, **about)
    hints = tag("span", hint, class_="hint", id=f"{name}-hint") if hint else None
    return tag("div", tag("label", column["name"], for_=name), box, hints)


def _hints(column: Mapping[str, Any], known: ColumnState | None) -> Iterator[str]:
    if known and known.get("quantiles") and column["kind"] not in ("category", "boolean"):
        low, high = _range(known)
        if column["kind"] == "date":
            ends = [number_text("date", float(round(end))).replace("T", " ") for end in (low, high)]
        else:
            ends = [number(end) for end in (low, high)]
        yield f"in training {ends[0]} to {ends[1]}"
    if column["gaps"] and column["kind"] not in ("category", "boolean"):
        yield "may be empty"


def _range(known: ColumnState | None) -> tuple[float, float]:
    quantiles = known.get("quantiles") if known else None
    return (quantiles[0], quantiles[-1]) if quantiles else (0.0, 0.0)


def _usual_level(known: ColumnState | None) -> int:
    """Return the index of the most frequent level."""
    shares = known.get("shares", [])[:-1] if known else []
    return shares.index(max(shares)) if shares else 0


def _unknown(levels: list[str]) -> str:
    text = "(another one)"
    while text in levels:
        text += "_"
    return text


def _option(value: str, shown: Content, *, chosen: bool) -> Markup:
    return tag("option", joined(shown), value=value, selected="" if chosen else None)


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
