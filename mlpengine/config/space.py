"""Check the search space of a sweep, and convert the values of a trial to config overrides."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mlpengine.config.load import ConfigFile, Override, load_config, problems_with
from mlpengine.config.sweep import SpaceSection, SweepSection

FIXED = (
    "data.source",
    "data.split",
    "data.target",
    "data.task",
    "data.test_source",
    "data.validation_source",
    "data.weight",
    "data.where",
    "name",
    "report",
    "seed",
    "sweep",
    "training.folds",
    "training.threads",
)
"""Keys that cannot be searched: they set the task, the rows, their weights, or how trials run."""

MEASURES_LOSS = (
    "loss",
    "data.class_weights",
    "data.standardize_target",
    "data.transform_target",
)
"""Keys that change what the loss measures; trials with different values cannot be compared."""


def overrides(values: Mapping[str, Any]) -> list[Override]:
    """Return the values of a trial as overrides of the config."""
    each = sorted(values.items())
    return [Override("sweep.space", tuple(k.split(".")), json.dumps(value)) for k, value in each]


def load_sweep(path: Path, settings: Iterable[Override] = ()) -> tuple[ConfigFile, SweepSection]:
    """Load a config with a section `sweep`, and check every key and value of its space.

    Raises: ConfigError listing every problem, of the config and of the space.
    """
    settings = list(settings)
    file = load_config(path, settings)
    sweep = file.config.sweep
    if sweep is None:
        raise file.wrong(("sweep",), "this section is required (sweep: {space: {KEY: VALUES}})")
    for key, entry in sweep.space.items():
        for text in _problems(file, settings, sweep, key, entry):
            file.document.report(("sweep", "space", key), text)
    config = file.config
    if not (config.validation_share or config.data.validation_source or config.training.folds):
        text = "trials are compared on validation rows (data.split.validation is 0)"
        file.document.report(("sweep", "metric"), text)
    file.document.check()
    return file, sweep


def _problems(
    file: ConfigFile, settings: list[Override], sweep: SweepSection, key: str, entry: SpaceSection
) -> Iterator[str]:
    """Yield the problems of one key of the space and its values, each problem once."""
    if _is_below(key, FIXED):
        yield "is the same in all trials; it cannot be in the space"
        return
    if sweep.metric == "loss" and _is_below(key, MEASURES_LOSS):
        yield "changes what the loss measures; choose another sweep.metric"
        return
    if sweep.sampler == "grid" and entry.values is None:
        yield "a grid takes choice or int"
        return
    texts: dict[str, None] = {}
    for value in entry.ends:
        for problem in problems_with(file.path, [*settings, *overrides({key: value})]):
            place = "" if problem.path == key else f"{problem.path}: "
            texts[f"{place}{problem.text}"] = None
    yield from texts


def _is_below(key: str, sections: Iterable[str]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)
