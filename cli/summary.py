"""`mlpengine summary`: the columns, the predictions and the training of a model."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mlpengine.core.wording import columns_of, cut_apart, left, plural, printable
from mlpengine.models.card import card
from mlpengine.models.model import MODEL_FILE
from mlpengine.training.loading import load

from .options import AS_JSON, MODEL_ARGUMENT
from .outcome import SHOWN_PARTS, part_title
from .streams import say

SHOWN_LEVELS = 12
"""Maximum number of listed levels of a column, and of listed classes."""

EPILOG = """\b
Examples:
  mlpengine summary runs/digits
  mlpengine summary model.safetensors --json
"""


@click.command("summary", epilog=EPILOG)
@MODEL_ARGUMENT
@AS_JSON
def command(run: Path, as_json: bool) -> None:
    """Show what the model of RUN, a run directory or a model file, reads and predicts.

    The command shows the columns with types and levels, the target, the networks, and the score.
    """
    known = card(load(run))
    file = run / MODEL_FILE if (run / MODEL_FILE).is_file() else run
    known["written"] = f"{datetime.fromtimestamp(file.stat().st_mtime):%Y-%m-%d %H:%M}"
    say(json.dumps(known) if as_json else "\n".join(card_lines(known)))


def card_lines(known: dict[str, Any]) -> list[str]:
    """Return the facts of a model file as lines of text."""
    record = known["record"]
    classes = f": {', '.join(_shown(known['classes']))}"
    classes += ", ..." if len(known["classes"]) > SHOWN_LEVELS else ""
    target = ", ".join(map(printable, known["target"]))
    lines = [
        f"predicts  {target} ({known['task']}{classes if known['classes'] else ''})",
        f"network   {known['architecture']}, {plural(known['parameters'], 'parameter')}, "
        f"loss {known['loss']}",
    ]
    if "threshold" in known:
        lines.append(f"threshold {printable(known['threshold'])}")
    if record:
        counts = record["rows"]
        rows = ", ".join(f"{counts[part]:,} {part}" for part in SHOWN_PARTS if part in counts)
        scores = ", ".join(f"{name} {value:.4g}" for name, value in record["metrics"].items())
        lines += [
            f"trained   on {printable(record['source'])} ({rows}), seed {record['seed']}",
            f"score     {part_title(record['part'])}: {scores}",
        ]
    lines.append(f"written   {known['written']}, by the date of the file")
    names = cut_apart([printable(one["name"]) for one in known["columns"]], 60)
    width = max(8, *(columns_of(name) + 2 for name in names))
    lines += ["", f"{'column':<{width}}{'type':<10}levels"]
    for name, one in zip(names, known["columns"], strict=True):
        levels = _shown(one["levels"])
        more = ["..."] * (len(one["levels"]) > SHOWN_LEVELS)
        text = f"{left(name, width)}{one['type']:<10}{', '.join([*levels, *more])}"
        lines.append(text.rstrip())
    return lines


def _shown(levels: list[str]) -> list[str]:
    return cut_apart([printable(level) for level in levels[:SHOWN_LEVELS]], 60)
