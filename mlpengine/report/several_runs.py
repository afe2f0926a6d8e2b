"""Reports of several runs side by side, and of a sweep: their numbers, and their pages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.config.baselines import PART_PHRASES
from mlpengine.config.load import differing_settings
from mlpengine.core.redaction import shown_path, without_directories
from mlpengine.core.wording import as_setting, plural
from mlpengine.diagnostics.thresholds import PROBABLE
from mlpengine.diagnostics.verdict import shown_name
from mlpengine.models.metrics import higher_is_better
from mlpengine.report.palette import LIGHT

from .chart_types import Chart, array_of
from .charts import by_epoch, sweep_charts
from .collect import REPORT_FORMAT, Collected, RunData, plain_data
from .markup import DASH, Content, Markup, joined, number, score_text, shortened, tag, with_error
from .page import page, scrolling_table, verdicts_section
from .predictions import paired_lead
from .svg import grid, strip

SHOWN_TRIALS = 40
CURVE_POINTS = 100
COMPARED_KEYS = (
    "name",
    "path",
    "ending",
    "failure",
    "result",
    "verdicts",
    "model",
    "score",
    "notes",
)


def compare(runs: Sequence[RunData], collected: Sequence[Collected]) -> dict[str, Any]:
    """Return runs side by side: different settings first, then scores and their differences."""
    files = [run.loaded.file if run.loaded else None for run in runs]
    known = [file for file in files if file is not None]
    settings = differing_settings(known) if len(known) == len(files) else {}
    shown = [{key: one.data[key] for key in COMPARED_KEYS if key in one.data} for one in collected]
    for one, data in zip(shown, (c.data for c in collected), strict=True):
        one["epochs"] = _few_epochs(data.get("epochs"))
    names = [one["name"] for one in shown]
    if len(set(names)) < len(names):
        names = [one["path"] for one in shown]
    notes = [f"{name}: {note}" for name, one in zip(names, shown, strict=True)
             for note in one.pop("notes", ())]  # fmt: skip
    data = {
        "format": REPORT_FORMAT,
        "kind": "runs",
        "name": plural(len(runs), "run"),
        "names": names,
        "settings": settings,
        "runs": shown,
        "differences": _differences(collected),
        "notes": notes,
    }
    result: dict[str, Any] = plain_data(data)
    return result


def _few_epochs(known: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not known:
        return None
    curves = {}
    for name, curve in known["curves"].items():
        if name.startswith("validation_") or name in ("train_loss", "gradient_norm"):
            every = -(-len(curve["epoch"]) // CURVE_POINTS)
            curves[name] = {key: values[::every] for key, values in curve.items()}
    return {**known, "curves": curves}


def _differences(collected: Sequence[Collected]) -> dict[str, Any] | None:
    """Return the lead of the run with the best score over each of the others.

    None unless all runs have the same metric of the same part of the same table.
    """
    scores = [one.data["score"] for one in collected if one.data.get("score")]
    models = [one.data["model"] for one in collected if one.data.get("model")]
    kinds = {(score["metric"], score["part"]) for score in scores}
    tables = {(model["source"], *model["target"]) for model in models}
    if len(scores) < len(collected) or len(kinds) != 1 or len(tables) != 1:
        return None
    metric, part = scores[0]["metric"], scores[0]["part"]
    values = [score["predictions"]["model"][metric] for score in scores]
    known = array_of([one["value"] for one in values])
    best = int(np.nanargmax(known)) if np.isfinite(known).any() else 0
    ahead = []
    for k, one in enumerate(collected):
        pair, first = None, collected[best].scored
        if k != best and one.scored is not None and first is not None:
            pair = paired_lead(first, one.scored, metric) or _lead(values[best], values[k])
        ahead.append(pair)
    return {"metric": metric, "part": part, "best": best, "ahead": ahead}


def _lead(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the difference of two scores of different rows, with its standard error."""
    value = (first["value"] or 0.0) - (other["value"] or 0.0)
    error = hypot(first["error"] or 0.0, other["error"] or 0.0)
    return {"value": value, "error": error, "paired": False}


def is_clear(ahead: Mapping[str, Any]) -> bool:
    """Return whether a lead is more than chance gives."""
    return bool(ahead["value"] > PROBABLE * ahead["error"] > 0)


def runs_page(data: Mapping[str, Any]) -> str:
    """Return the page that compares runs."""
    names = data["names"]
    lead = [tag("h1", f"{data['name']} compared"), tag("p", ", ".join(names), class_="path")]
    lead.append(tag("p", _best_run(data)))
    words = [joined(tag("h3", name), verdicts_section(one)) for name, one in
             zip(names, data["runs"], strict=True)]  # fmt: skip
    sections = [
        ("settings", "Different settings", _settings(data)),
        ("scores", "Scores", joined(_scores(data), _ahead(data))),
        ("training", "Training", _curves(data)),
        ("verdicts", "Verdicts", joined(*words)),
    ]
    return page(f"Report of {data['name']}", data, lead, sections)


def _best_run(data: Mapping[str, Any]) -> str:
    known = data["differences"]
    if not known:
        return "Which run is better cannot be told: their scores are of different kinds."
    name, metric = data["names"][known["best"]], shown_name(known["metric"])
    score = data["runs"][known["best"]]["score"]["predictions"]["model"][known["metric"]]
    text = f"{shortened(name)} has the highest {metric} on the {PART_PHRASES[known['part']]}, "
    text += f"{with_error(score['value'], score['error'])}."
    close = [
        other
        for other, ahead in zip(data["names"], known["ahead"], strict=True)
        if ahead and not is_clear(ahead)
    ]
    if close:
        text += f" It does not clearly differ from {', '.join(map(shortened, close))}."
    return text


def _settings(data: Mapping[str, Any]) -> Markup:
    if not data["settings"]:
        return tag("p", "The settings are the same, or cannot be read.", class_="soft")
    lines = [
        [key, *(shortened(DASH if v is None else as_setting(v), 30) for v in values)]
        for key, values in data["settings"].items()
    ]
    text = ""
    if any(key == "seed" or key.startswith("data.") for key in data["settings"]):
        text = tag("p", "Seed or data differ, so the rows of the parts may, too.", class_="soft")
    return joined(scrolling_table(["", *_heads(data)], lines, "Settings that differ"), text)


def _heads(data: Mapping[str, Any]) -> list[str]:
    return [shortened(name, 30) for name in data["names"]]


def _scores(data: Mapping[str, Any]) -> Markup:
    runs = data["runs"]
    rows: dict[str, list[Content]] = {}
    for k, one in enumerate(runs):
        cells: dict[str, Content] = {}
        score, result = one.get("score"), one.get("result", {})
        if score:
            where = PART_PHRASES[score["part"]]
            for who, title in (("model", ""), ("linear", ", linear"), ("constant", ", constant")):
                for name, metric in score["predictions"].get(who, {}).items():
                    if name != "ahead" and (who == "model" or name == score["metric"]):
                        label = f"{shown_name(name)}{title} on {where}"
                        cells[label] = with_error(metric["value"], metric["error"])
        for key in ("parameters", "members", "epochs", "best_epoch", "seconds"):
            if isinstance(result.get(key), int | float):
                cells[key.replace("_", " ")] = number(result[key], 3)
        cells["verdicts"] = number(len(one.get("verdicts", ())))
        for label, cell in cells.items():
            rows.setdefault(label, [DASH] * len(runs))[k] = cell
    lines = [[label, *cells] for label, cells in rows.items()]
    return scrolling_table(["", *_heads(data)], lines, "Scores with standard errors, and sizes")


def _ahead(data: Mapping[str, Any]) -> Markup | None:
    known = data["differences"]
    if not known or not any(known["ahead"]):
        return None
    best, metric = shortened(data["names"][known["best"]], 30), shown_name(known["metric"])
    highest = max(a["value"] + a["error"] for a in known["ahead"] if a)
    lines = [
        [shortened(name, 30), strip(a["value"], 2 * a["error"], highest or 1.0),
         with_error(a["value"], a["error"]),
         "yes" if is_clear(a) else "no", "yes" if a["paired"] else "no"]
        for name, a in zip(data["names"], known["ahead"], strict=True)
        if a
    ]  # fmt: skip
    head = ["", "", f"{metric} behind {best} by", "more than chance", "same rows"]
    text = tag("p", "Differences have their standard errors; of runs with the same rows they are "
               "computed row by row, and the errors are smaller.", class_="soft")  # fmt: skip
    table = scrolling_table(head, lines, "Differences", named=False)
    return joined(tag("h3", "Differences"), text, table)


def _curves(data: Mapping[str, Any]) -> Markup | None:
    metric = f"validation_{(data['differences'] or {}).get('metric', '')}"
    charts = [
        *_overlay(data, "validation_loss", "Validation loss", powers=True),
        *_overlay(data, "train_loss", "Training loss", powers=True),
        *_overlay(data, metric, f"Validation {shown_name(metric.removeprefix('validation_'))}"),
        *_overlay(data, "gradient_norm", "Gradient norm", powers=True),
    ]
    return grid(charts) if charts else None


def _overlay(data: Mapping[str, Any], key: str, title: str, *, powers: bool = False) -> list[Chart]:
    runs = zip(data["names"], data["runs"], strict=True)
    every = ((name, ((one.get("epochs") or {}).get("curves") or {}).get(key)) for name, one in runs)
    curves = [(shortened(name, 24), curve) for name, curve in every if curve and curve["epoch"]]
    return by_epoch(title, curves[: len(LIGHT)], powers=powers)


def collect_sweep(
    name: str,
    path: Path,
    outcome: Mapping[str, Any],
    importance: Mapping[str, float],
    best: Collected | None,
) -> dict[str, Any]:
    """Return the numbers of a sweep; `outcome` has its metric, its trials and the best of them."""
    chosen = outcome.get("best")
    data = {
        "format": REPORT_FORMAT,
        "kind": "sweep",
        "name": name,
        "path": str(shown_path(path)),
        "metric": outcome["metric"],
        "trials": [{k: v for k, v in t.items() if k != "run_dir"} for t in outcome["trials"]],
        "best": without_directories(chosen),
        "importance": dict(sorted(importance.items(), key=lambda pair: -pair[1])),
        "score": best.data.get("score") if best else None,
        "model": best.data.get("model") if best else None,
        "verdicts": best.data.get("verdicts", []) if best else [],
        "ending": "epochs" if chosen else None,
        "notes": best.data.get("notes", []) if best else [],
    }
    result: dict[str, Any] = plain_data(data)
    return result


def sweep_page(data: Mapping[str, Any]) -> str:
    """Return the page of a sweep."""
    states = Counter(one["state"] for one in data["trials"])
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    metric = shown_name(data["metric"])
    lead: list[Content] = [tag("h1", shortened(data["name"], 80)),
                           tag("p", data["path"], class_="path")]  # fmt: skip
    text = f"A sweep of {plural(len(data['trials']), 'trial')} ({counts})."
    best = data["best"]
    if best:
        text += f" The best is trial {best['number']}, with {metric} {score_text(best['value'])}."
    lead.append(tag("p", text))
    if data.get("score"):
        score, where = data["score"], PART_PHRASES[data["score"]["part"]]
        one = score["predictions"]["model"][score["metric"]]
        lead.append(
            tag("p", tag("span", with_error(one["value"], one["error"]), class_="value"),
                tag("span", f"{shown_name(score['metric'])} of the best on {score['rows']:,} "
                    f"{where} that chose no trial", class_="unit"), class_="headline")
        )  # fmt: skip
    sections = [
        ("trials", "Trials", grid(sweep_charts(data))),
        ("best", "The best", _best_trial(data)),
        ("importance", "Which settings matter", _importance(data)),
        ("all", "All trials", _all_trials(data)),
    ]
    return page(f"Report of the sweep {data['name']}", data, lead, sections)


def _best_trial(data: Mapping[str, Any]) -> Markup | None:
    best = data["best"]
    if not best:
        return None
    lines = [[key, shortened(as_setting(value), 60)] for key, value in best["values"].items()]
    parts: list[Content] = [scrolling_table(["setting", "value"], lines, "Its settings")]
    if best.get("config"):
        command = f"mlpengine train {best['config']}"
        parts += [tag("p", "Its config gives the same weights again:"),
                  tag("pre", tag("code", command))]  # fmt: skip
    return joined(*parts, tag("h3", "Its verdicts"), verdicts_section(data))


def _importance(data: Mapping[str, Any]) -> Markup | None:
    shares = data["importance"]
    if not shares:
        return None
    highest = max(shares.values())
    lines = [[key, strip(share, 0.0, highest), f"{share:.2f}"] for key, share in shares.items()]
    text = tag("p", "The share of each setting in the difference between the best trials and "
               "all trials (PED-ANOVA).", class_="soft")  # fmt: skip
    return joined(text, scrolling_table(["setting", "", "share"], lines, "Importance of settings"))


def _all_trials(data: Mapping[str, Any]) -> Markup:
    sign = -1.0 if higher_is_better(data["metric"]) else 1.0
    order = sorted(
        data["trials"],
        key=lambda one: (one["value"] is None, sign * (one["value"] or 0.0), one["number"]),
    )
    keys = list(dict.fromkeys(key for one in order for key in one["values"]))
    lines = []
    for one in order[:SHOWN_TRIALS]:
        values = [
            number(v, 3) if isinstance(v, float) else shortened(as_setting(v), 20)
            for v in (one["values"].get(key, DASH) for key in keys)
        ]
        state = shortened(f"{one['state']}: {one['reason']}" if one["reason"] else one["state"], 60)
        lines.append([number(one["number"]), number(one["value"]), *values, state])
    more = len(order) - len(lines)
    head = ["trial", shown_name(data["metric"]), *map(shortened, keys), "state"]
    title = "Trials, the best first" + (f"; {more:,} more are in the data" if more else "")
    return scrolling_table(head, lines, title)
