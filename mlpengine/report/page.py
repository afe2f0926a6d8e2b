"""The page of a report: HTML without scripts, readable on phones, screens and paper."""

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.files import pasted
from mlpengine.core.wording import (
    best_text,
    cut_apart,
    plural,
    script_json,
    shown_name,
)
from mlpengine.diagnostics.thresholds import CLEAR, PROBABLE
from mlpengine.diagnostics.verdict import verdict_list
from mlpengine.drawing.chart_types import array_of
from mlpengine.drawing.charts import (
    MEAN_CURVES,
    Data,
    gradient_charts,
    prediction_charts,
    shades,
    training_charts,
)
from mlpengine.drawing.markup import (
    DASH,
    Content,
    Markup,
    joined,
    number,
    score_text,
    scroll_box,
    scrolling_table,
    shortened,
    tag,
    with_error,
)
from mlpengine.drawing.style import html_page, page_style
from mlpengine.drawing.svg import grid, strip
from mlpengine.models.explanation import explanation_markup
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import PART_PHRASES
from mlpengine.settings.fix import call_text, command_text
from mlpengine.training.measure import DIRECT, TEACHER
from mlpengine.training.result import TOO_GOOD

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: the page loads nothing and runs nothing."""


def run_page(data: Data) -> str:
    """Return the page of one run."""
    sections = [
        ("verdicts", "Verdicts", verdicts_section(data)),
        ("training", "Training", training_section(data.get("epochs"))),
        ("predictions", "Predictions", predictions_section(data.get("predictions"))),
        ("drivers", "What drives the prediction", drivers_section(data)),
        ("gradients", "Gradients and updates", gradients_section(data.get("gradients"))),
        ("data", "Data", data_section(data)),
        ("hardest", "Hardest rows", hardest_section(data.get("hardest"))),
        ("settings", "Settings", settings_section(data)),
    ]
    return page(f"Report of {data['name']}", data, score_section(data), sections)


def page(
    title: str,
    data: Data,
    lead: Content,
    sections: Iterable[tuple[str, str, Markup | None]],
) -> str:
    """Return a whole page: `lead`, sections (key, title, content), and the data as JSON."""
    shown = [(key, name, body) for key, name, body in sections if body]
    links = [tag("li", tag("a", name, href=f"#{key}")) for key, name, _ in shown]
    bodies = [
        tag("section", tag("h2", name, id=f"{key}-title"), body, id=key,
            aria_labelledby=f"{key}-title")
        for key, name, body in shown
    ]  # fmt: skip
    notes = [tag("li", note) for note in data.get("notes", ())]
    if notes:
        bodies.append(tag("section", tag("h2", "Not shown"), tag("ul", *notes)))
    return html_page(
        title, POLICY, page_style(),
        tag("header", lead, tag("nav", tag("ul", *links), aria_label="Sections")),
        tag("main", *bodies),
        tag("footer", "All numbers of this page are in it as JSON, in the element ",
            tag("code", "report-data"), "."),
        tag("script", Markup(script_json(data)), type="application/json", id="report-data"),
    )  # fmt: skip


def score_section(data: Data) -> Markup:
    """Return the head of a page: the run, the network and the score."""
    model, known = data.get("model"), data.get("score")
    head = [tag("h1", shortened(data["name"], 80)), tag("p", data["path"], class_="path")]
    if data.get("failure"):
        head.append(tag("p", f"The run failed: {data['failure']}", class_="failed"))
    elif not data.get("ending") and data["kind"] == "run":
        text = "The run has not ended."
        text += " The numbers come from its newest checkpoint." if known else ""
        head.append(tag("p", text, class_="failed"))
    if not model:
        return joined(*head)
    sentence = [_trained(model, "learned to" if known else "was to")]
    if not known:
        return joined(*head, tag("p", *sentence))
    metric, rows = known["metric"], known["predictions"]
    if data["kind"] == "run" and data["result"].get("warm_start"):
        head.append(tag("p", f"Warm start: {TOO_GOOD}.", class_="failed"))
    first = rows["model"][metric]
    unit = f"{shown_name(metric)} on {known['rows']:,} {PART_PHRASES[known['part']]}"
    if "threshold" in model:
        unit += f", at the threshold {model['threshold']}"
    text = with_error(first["value"], first["error"])
    value, _, error = text.partition(" ± ")
    sentence += [" ", _taught(known), _compared(known)]
    lead = tag(
        "div",
        tag(
            "p",
            tag("span", value, *([" ", tag("span", "± ", error, class_="error")] if error else []),
                class_="value"),
            tag("span", unit, class_="unit"),
            class_="headline",
        ),
        tag("p", *sentence, class_="sentence"),
        class_="lead",
    )  # fmt: skip
    return joined(*head, lead, _scores_table(known))


def _trained(model: Data, verb: str) -> str:
    rows, target = model["rows"], " and ".join(shortened(name) for name in model["target"][:3])
    trained = plural(rows["train"], "training row")
    how = f" by folds of {trained}" if model["folds"] else f", {trained}"
    alone = "A network of " * (model["networks"] == 1 and not model["linear_models"])
    size = f"{alone}{model['architecture']} ({plural(model['parameters'], 'parameter')})"
    count = plural(len(model["classes"]), "class", "classes")
    classes = f", one of {count}" if model["classes"] and len(model["target"]) == 1 else ""
    share = model["linear_weight"]
    weighed = ""
    if model["networks"] and share > 0.5:
        weighed = f" The linear models have {_percent(share)} of the weight."
    return (
        f"{size} {verb} predict {target}{classes}, from {plural(model['columns'], 'column')} "
        f"of {shortened(Path(model['source']).name, 60)}{how}.{weighed}"
    )


def _taught(known: Data) -> str:
    metric, rows = known["metric"], known["predictions"]
    if DIRECT not in rows:
        return ""
    value = score_text(rows[DIRECT][metric]["value"])
    text = f"a network of this size that was trained on the targets has {value}. "
    if TEACHER not in rows:
        return text[0].upper() + text[1:]
    name, value = shown_name(metric), score_text(rows[TEACHER][metric]["value"])
    return f"Its teacher has {name} {value}, and {text}"


def _compared(known: Data) -> str:
    metric, rows = known["metric"], known["predictions"]
    if "constant" not in rows:
        return ""
    name = shown_name(metric)
    plain = rows["constant"][metric]
    text = f"A constant prediction has {name} {score_text(plain['value'])}"
    if "linear" not in rows:
        return f"{text}."
    straight = rows["linear"]
    text += f", a linear one {score_text(straight[metric]['value'])}. "
    ahead, error = straight["ahead"]["value"], straight["ahead"]["error"]
    if ahead is None or error is None:
        return text
    ahead = ahead if higher_is_better(metric) else -ahead
    difference = with_error(abs(ahead), error)
    if abs(ahead) <= PROBABLE * error:
        return f"{text}The model and the linear prediction do not clearly differ ({difference})."
    where = "ahead of" if ahead > 0 else "behind"
    where = where if abs(ahead) > CLEAR * error else f"probably {where}"
    return f"{text}The model is {where} the linear one by {difference}."


def _scores_table(known: Data) -> Markup:
    metric, rows = known["metric"], known["predictions"]
    titles = {
        "model": "this model",
        TEACHER: "its teacher",
        DIRECT: "trained directly",
        "linear": "linear prediction",
        "constant": "constant",
    }
    names = [name for name in rows["model"] if name != "ahead"]
    highest = max(one[metric]["value"] or 0.0 for one in rows.values())
    lines = []
    for who, metrics in rows.items():
        one = metrics[metric]
        bar = strip(one["value"] or 0.0, one["error"] or 0.0, max(1.0, highest),
                    "f1" if who == "model" else "plain")  # fmt: skip
        cells = [with_error(metrics[n]["value"], metrics[n]["error"]) for n in names]
        lines.append([titles[who], bar, *cells])
    head = ["", "", *map(shown_name, names)]
    errors = ", with standard errors" if rows["model"][metric]["error"] else ""
    return scrolling_table(head, lines, f"Scores on {PART_PHRASES[known['part']]}{errors}", words=1)


def verdicts_section(data: Data) -> Markup:
    """Return the verdicts in words, with the settings that fix the problems."""
    known = data.get("verdicts") or []
    if not known:
        ended = data.get("ending")
        text = "Nothing unusual." if ended else "No verdicts yet: the run has not ended."
        return tag("p", text, class_="fine" if ended else "soft")
    return verdict_list(known, call_text if data.get("in_memory") else command_text)


def training_section(known: Data | None) -> Markup | None:
    """Return losses, metrics and learning rate by epoch."""
    if not known:
        return None
    curves, best = known["curves"], known.get("best")
    rates = [value for value in curves.get("lr", {}).get("value", ()) if value]
    marks = ""
    if best:
        marks = f"{best_text(best if isinstance(best, list) else [best]).capitalize()}."
    if rates and max(rates) == min(rates):
        marks += f" Learning rate {number(rates[0], 3)}."
    text = tag("p", f"{plural(known['count'], 'epoch')}. {marks}", class_="soft")
    stops = any(epochs < known["count"] for epochs in known["ended"])
    note = tag("p", MEAN_CURVES, class_="soft") if stops else ""
    return joined(text, grid(training_charts(known)), note)


def predictions_section(known: Data | None) -> Markup | None:
    """Return predictions against true values, and the calibration of probabilities."""
    if not known:
        return None
    where = f"{known['rows']:,} {PART_PHRASES[known['part']]}"
    if known["part"] == "train":
        where += " that trained the model"
    if (curves := known.get("curves")) and curves["threshold"] != 0.5:
        where += f"; {curves['of']} is predicted above a probability of {curves['threshold']:.3g}"
    parts: list[Content] = [tag("p", f"On {where}.", class_="soft")]
    if curves and len(curves["decisions"]) > 1:
        names = [name for name in curves["decisions"][0] if name != "threshold"]
        lines = [
            [f"{one['threshold']:.3g}", *(number(one[name], 3) for name in names)]
            for one in curves["decisions"]
        ]
        titles = {"rows": f"share predicted {curves['of']}", "cost": "cost per row"}
        head = ["threshold", *(titles.get(name, shown_name(name)) for name in names)]
        title = f"Predictions of {curves['of']} at the model's threshold and at 0.5"
        parts.append(scrolling_table(head, lines, title))
    if "confusion" in known:
        parts.append(_matrix(known))
    elif "classes" in known:
        parts.append(_by_class(known))
    if known.get("mistakes") and "confusion" not in known:
        lines = [[m["true"], m["predicted"], m["rows"]] for m in known["mistakes"]]
        parts.append(
            scrolling_table(["true", "predicted", "rows"], lines, "The commonest mistakes", words=2)
        )
    if "labels" in known:
        lines = [
            [x["name"], _percent(x["share"]), number(x["recall"], 3), number(x["precision"], 3)]
            for x in known["labels"]
        ]
        parts.append(scrolling_table(["label", "share", "recall", "precision"], lines, "By label"))
    parts.append(grid(prediction_charts(known)))
    if known.get("more_targets"):
        parts.append(tag("p", f"And {plural(known['more_targets'], 'more target')}."))
    return joined(*parts)


def _matrix(known: Data) -> Markup:
    names, counts = known["classes"], array_of(known["confusion"])
    levels = shades(counts)
    texts = [" ".join(str(name).split()) for name in names]
    short, sides = cut_apart(texts, 14), cut_apart(texts, 20)
    heads = [
        tag("th", text, scope="col", title=name) for text, name in zip(short, names, strict=True)
    ]
    head = tag("tr", tag("td"), *heads, tag("th", "recall", scope="col"))
    rows = []
    for k, side in enumerate(sides):
        cells = [
            tag("td", f"{int(counts[k, j]):,}", class_=f"h{levels[k, j]}" if levels[k, j] else None)
            for j in range(len(names))
        ]
        last = tag("td", number(known["recall"][k], 3), class_="total")
        rows.append(tag("tr", tag("th", side, scope="row"), *cells, last))
    below = [tag("td", number(value, 3), class_="total") for value in known["precision"]]
    rows.append(tag("tr", tag("th", "precision", scope="row"), *below, tag("td", class_="total")))
    title = "Confusion matrix: rows are true classes, columns are predicted classes"
    title += "; each row counts once, recall and precision are weighted" * known["weighted"]
    return scroll_box(
        tag("table", tag("caption", title), tag("thead", head), tag("tbody", *rows),
            class_="matrix"),
        title,
    )  # fmt: skip


def _by_class(known: Data) -> Markup:
    order = np.argsort(array_of(known["recall"]), kind="stable")[:20]
    lines = [
        [known["classes"][k], known["class_rows"][k], number(known["recall"][k], 3),
         number(known["precision"][k], 3)]
        for k in order.tolist()
    ]  # fmt: skip
    shown = plural(len(lines), "class", "classes")
    title = f"Lowest recall: {shown} of {len(known['classes'])}"
    return scrolling_table(["class", "rows", "recall", "precision"], lines, title)


def drivers_section(data: Data) -> Markup | None:
    """Return the importance of columns, and the dependence of predictions on the first ones."""
    known = data.get("drivers")
    if not known:
        return None
    if "skipped" in known:
        call = (
            "model.explain(table)"
            if data.get("in_memory")
            else f"mlpengine explain {pasted(data['path'])}"
        )
        return tag("p", f"Not measured: {known['skipped']}. Instead: ", tag("code", call))
    return explanation_markup(known)


def gradients_section(known: Data | None) -> Markup | None:
    """Return norms, update ratios, gradients by layer, units and the noise scale."""
    if not known or not known["layers"]:  # nothing was measured
        return None
    spikes = f" {plural(int(known['spikes'] or 0), 'spike')} of the norm."
    text = f"{plural(known['layers'], 'layer')}.{spikes}"
    if known["clip"]:
        text += f" {_percent(known['clipped'])} of the sampled steps were clipped."
    return joined(tag("p", text, class_="soft"), grid(gradient_charts(known)))


def data_section(data: Data) -> Markup | None:
    """Return the rows of each part, remarks on them, and how the parts differ from training."""
    known = data.get("data")
    if not known:
        return None
    rows = ", ".join(f"{count:,} {PART_PHRASES[name]}" for name, count in known["rows"].items())
    columns = f"{plural(len(known['columns']), 'column')}, {plural(known['features'], 'feature')}"
    lines = [f"{line[:1].upper()}{line[1:]}." for line in known["left_out"]]
    if known["where"]:
        lines.append(f"Rows where {known['where']}.")
    if known["constant"]:
        names = ", ".join(shortened(name) for name in known["constant"][:30])
        lines.append(f"Constant in the training rows, and so without effect: {names}.")
    for part, texts in known["differences"].items():
        lines += [f"In the {PART_PHRASES[part]}, {text}." for text in texts]
    call = "mlpengine.check(table)" if data.get("in_memory") else "mlpengine check"
    text = tag("p", f"{rows}; {columns}. ", tag("code", call), " describes each column.")
    return joined(text, tag("ul", *(tag("li", line) for line in lines)) if lines else None)


def hardest_section(known: Data | None) -> Markup | None:
    """Return the rows with the largest loss, with their values."""
    if not known or not known["rows"]:
        return None
    classes = "probability" in known["rows"][0]
    head = ["row", "true", "predicted", "probability of the true class" if classes else "error",
            *map(shortened, known["columns"])]  # fmt: skip
    lines = []
    for one in known["rows"]:
        how = one["probability"] if classes else one["loss"]
        cells = [shortened(cell, 24) or DASH for cell in one["cells"]]
        lines.append(
            [
                one["place"],
                _values(one["target"]),
                _values(one["predicted"]),
                number(how, 3),
                *cells,
            ]
        )
    unit = "" if classes else f" Errors are {known['unit']}."
    text = f"The {PART_PHRASES[known['part']]} with the largest loss.{unit}"
    return joined(
        tag("p", text, class_="soft"),
        scrolling_table(head, lines, "Hardest rows", words=len(head), named=False),
    )


def _values(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    texts = [number(v) if isinstance(v, int | float) else shortened(v) for v in values[:4]]
    return ", ".join(texts) + (", ..." if len(values) > 4 else "")


def settings_section(data: Data) -> Markup:
    """Return config, seed, versions, times, and the commands that repeat the run."""
    known, result, model = (data.get(key) or {} for key in ("settings", "result", "model"))
    ending, seconds, peak = data.get("ending"), result.get("seconds"), result.get("peak_bytes")
    names = ("seed", "backend", "target", "threads", "python", "processor", "platform", "blas")
    packages, digests = (  # a file may be damaged
        one if isinstance(one, Mapping) else {}
        for one in (known.get("packages"), known.get("data_sha256"))
    )
    facts = {
        "ended": "after all epochs" if ending == "epochs" else ending,
        "started": known.get("started"),
        "training": None if seconds is None else f"{number(seconds, 3)} s",
        "rows per second": f"{rate:,.0f}" if (rate := result.get("samples_per_second")) else None,
        "peak memory": f"{peak / 1e6:,.0f} MB" if peak else None,
        "skipped steps": result.get("skipped_steps") or None,
        **{name: model.get(name) for name in ("loss", "optimizer")},
        "activations": ", ".join(dict.fromkeys(model["activations"])) if model else None,
        **{name: known.get(name) for name in names},
        **{str(name): text for name, text in packages.items()},
        **{f"SHA-256 of {name}": shortened(text, 17) for name, text in digests.items()},
    }
    shown = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in shown.items()]
    parts: list[Content] = [tag("dl", *rows, class_="facts")]
    if known.get("again"):
        parts += [tag("p", "To repeat the run, with every default and override:"),
                  tag("pre", tag("code", known["again"]))]  # fmt: skip
    if known.get("command"):
        parts += [tag("p", "It was started by:"), tag("pre", tag("code", known["command"]))]
    if known.get("config"):
        more = " (its beginning)" if known.get("shortened") else ""
        parts += [tag("p", f"Its config as it was given{more}:"),
                  tag("pre", tag("code", known["config"]))]  # fmt: skip
    return joined(*parts)


def _percent(share: float | None) -> str:
    if share is None or not isfinite(share):
        return DASH
    return "under 0.1 %" if 0 < share < 0.001 else f"{100 * share:.3g} %"
