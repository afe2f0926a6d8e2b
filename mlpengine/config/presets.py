"""Presets: recipes of a network and its training, which fill in what a config leaves out.

``model: {preset: realmlp}`` in a config is short for its keys; `mlpengine init --preset` writes
them out.  A key that the config gives wins.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from mlpengine.config.reader import Document
from mlpengine.config.schema import sections_of
from mlpengine.settings.network import OWN_OPTIONS, options_for
from mlpengine.settings.recipes import PRESETS, recipe


def fill_in(document: Document) -> None:
    """Put what the config's preset says, and the config does not, into the document.

    A preset that is unknown is left to the check of the whole config.
    """
    model, data = document.data.get("model"), document.data.get("data")
    preset = model.get("preset") if isinstance(model, dict) else None
    if preset not in PRESETS or not isinstance(data, dict):
        return
    task = data.get("task", "auto")
    if preset == "realmlp" and task in ("auto", None):
        text = "realmlp needs data.task: classification, regression or multilabel"
        document.report(("model", "preset"), text)
        return
    sections = sections_of(recipe(str(preset), str(task)))
    split, training = data.get("split"), document.data.get("training")
    refits = isinstance(training, dict) and training.get("refit")
    unvalidated = isinstance(split, dict) and split.get("validation") == 0
    without = {
        **({"early_stopping": None} if unvalidated else {}),
        **({"calibration": "none"} if unvalidated or refits else {}),
    }
    fill_missing(document.data, {**sections, "training": {**sections["training"], **without}})


def fill_missing(given: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the keys of `more` that are not given, at every depth; another name is another option.

    So is another network, whose options are left out.
    """
    if given.get("network") in OWN_OPTIONS:
        more = options_for(given["network"], more)
    for key, value in more.items():
        if key not in given:
            given[key] = deepcopy(value)
            continue
        mine = given[key]
        if not isinstance(value, dict):
            continue
        if isinstance(mine, str) and mine == value.get("name"):
            given[key] = mine = {"name": mine}
        if isinstance(mine, dict) and mine.get("name", value.get("name")) == value.get("name"):
            fill_missing(mine, value)
