"""The result of a run for a person, on stdout."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlpengine.config.build import Experiment
from mlpengine.train.loop import Result

ENDINGS = {"epochs": "", "early": ", stopped early", "interrupted": ", interrupted"}


def report(experiment: Experiment, result: Result, outcome: Mapping[str, Any]) -> str:
    """Return the metrics of every part, and where the files are."""
    parts = list(experiment.parts)
    names = list(outcome[parts[0]])
    lines = [_line("", "rows", *(name.replace("_", " ") for name in names))]
    lines += [
        _line(part, f"{len(experiment.parts[part]):,}", *(_number(outcome[part][n]) for n in names))
        for part in parts
    ]
    ending = ENDINGS[result.ending]
    best = f"; weights of epoch {result.best_epoch}" if result.best_epoch else ""
    lines += [
        "",
        f"{result.epochs} epochs in {result.seconds:.1f} s{ending}{best}",
        f"{_shortest(Path(outcome['run_dir']))}/model.safetensors",
    ]
    return "\n".join(lines)


def _line(first: str, *rest: str) -> str:
    return f"{first:<10}" + "".join(f"{text:>11}" for text in rest)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:.5g}"


def _shortest(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
