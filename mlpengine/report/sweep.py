"""The report of a sweep: its numbers, and its page."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlpengine.core.files import pasted
from mlpengine.core.redaction import shown_path, without_directories
from mlpengine.core.wording import as_setting, plural, shown_name
from mlpengine.drawing.markup import (
    DASH,
    Content,
    Markup,
    joined,
    number,
    score_text,
    scrolling_table,
    shortened,
    tag,
    with_error,
)
from mlpengine.drawing.svg import grid, strip
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import PART_PHRASES

from .collect import REPORT_FORMAT, Collected, plain_data
from .page import page, verdicts_section
from .sweep_charts import sweep_charts

SHOWN_TRIALS = 40


def collect_sweep(
    name: str,
    path: Path,
    outcome: Mapping[str, Any],
    importance: Mapping[str, float],
    best: Collected | None,
) -> dict[str, Any]:
    """Return the numbers of a sweep; `outcome` has its metric, its trials and the best trial."""
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
                tag("span", f"{shown_name(score['metric'])} of the best trial on "
                    f"{score['rows']:,} {where}", class_="unit"), class_="headline")
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
        command = f"mlpengine train {pasted(best['config'])}"
        parts += [tag("p", "Its config gives the same weights again:"),
                  tag("pre", tag("code", command))]  # fmt: skip
    return joined(*parts, tag("h3", "Its verdicts"), verdicts_section(data))


def _importance(data: Mapping[str, Any]) -> Markup | None:
    shares = data["importance"]
    if not shares:
        return None
    highest = max(shares.values())
    lines = [[key, strip(share, 0.0, highest), f"{share:.2f}"] for key, share in shares.items()]
    text = tag("p", "How much each setting explains the difference between the best trials and "
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
