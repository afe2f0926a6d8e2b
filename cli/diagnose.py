"""`mlpengine diagnose`: check a config before a long run, or read what a run went through."""

import json
from math import isnan
from pathlib import Path
from typing import Any

import click
import numpy as np

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import Experiment, build
from mlpengine.diagnostics import (
    Diagnostics,
    Verdict,
    example_norms,
    row_losses,
    table,
    verdicts,
)
from mlpengine.diagnostics.dashboard import picture_format, save_dashboard
from mlpengine.diagnostics.layer_table import LEGEND
from mlpengine.diagnostics.preflight import Check, preflight, probe, suggest_lr
from mlpengine.diagnostics.trial import Rows
from mlpengine.diagnostics.weights import Spectrum, histograms, spectra
from mlpengine.errors import UsageError
from mlpengine.files import similar_file
from mlpengine.train.diagnose import facts, measure_recalls
from mlpengine.train.model import Model, load
from mlpengine.train.samples import read_diagnostics
from mlpengine.train.threads import pinned
from mlpengine.wording import plural

from .session import resolved_config
from .streams import say

EPILOG = """\b
Examples:
  mlpengine diagnose configs/digits.yaml
  mlpengine diagnose configs/digits.yaml --set optimizer.lr=0.1 --json
  mlpengine diagnose runs/digits
  mlpengine diagnose runs/digits --plot dashboard.png
"""


@click.command("diagnose", epilog=EPILOG)
@click.argument("target", metavar="CONFIG|RUN", type=click.Path(path_type=Path))
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override, as in optimizer.lr=0.1"
)
@click.option(
    "--probe-steps",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Steps to train on trial, of a CONFIG.",
)
@click.option(
    "--rows", type=click.IntRange(0), default=10, show_default=True, help="Hard rows of a RUN."
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the dashboard of a RUN into this .png, .svg or .pdf file.",
)
@click.option("--dark", is_flag=True, help="Draw it for a dark screen.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one line of JSON.")
def command(
    target: Path,
    settings: tuple[str, ...],
    probe_steps: int,
    rows: int,
    plot: Path | None,
    dark: bool,
    as_json: bool,
) -> None:
    """Check the YAML file CONFIG before a long run, or read what the directory RUN went through.

    Of a config: the loss at the start, units that are dead or saturated, the gradient in float64,
    20 rows to learn by heart, learning rates that work, and some steps on trial.  Of a run: its
    last sample, what is wrong in words, the weights' spectra, and the rows that are hardest.
    """
    if not target.exists():
        raise UsageError(f"{target}: there is no such config or run{similar_file(target)}")
    if not target.is_dir():
        if plot is not None:
            raise UsageError("diagnose: --plot draws a run; give its directory")
        report, lines = _before(target, settings, probe_steps)
    else:
        if settings:
            raise UsageError("diagnose: --set changes a config, not a run")
        if plot is not None:
            picture_format(plot)
        report, lines = _after(target, rows, plot, dark=dark)
    say(json.dumps(report, allow_nan=False) if as_json else "\n".join(lines))


def _before(
    path: Path, settings: tuple[str, ...], probe_steps: int
) -> tuple[dict[str, Any], list[str]]:
    """Check a config; return everything as data and as lines."""
    experiment = build(load_config(path, [parse_override(text) for text in settings]))
    step, part = experiment.step, experiment.parts["train"]
    rows = Rows(part.x, part.y, part.weights)
    with pinned(experiment.blas_threads):
        checks = list(preflight(step.mlp, step.loss, rows))
        check, curve = suggest_lr(step, rows, step.batch_size)
        checks.append(check)
        diagnostics = probe(step, rows, step.batch_size, probe_steps) if probe_steps else None
    if diagnostics and part.places:
        diagnostics.name_row = part.places.rows.place
    reported = verdicts(diagnostics) if diagnostics else []
    report = {
        "good": all(c.good for c in checks) and not reported,
        "checks": [c.as_dict() for c in checks],
        "lr_curve": {"lr": _plain(curve.rates), "loss": _plain(curve.losses)},
        "probe": _sample(diagnostics) if diagnostics else None,
        "verdicts": [v.as_dict() for v in reported],
    }
    lines = [f"{'ok' if c.good else 'LOOK':<5} {c.text}" for c in checks]
    if diagnostics:
        lines += [
            "",
            f"after {plural(probe_steps, 'step')} on trial, which are undone:",
            table(diagnostics),
            LEGEND,
        ]
    return report, [*lines, *_spoken(reported, checks)]


def _after(
    run: Path, count: int, plot: Path | None, *, dark: bool
) -> tuple[dict[str, Any], list[str]]:
    """Read a run; return everything as data and as lines."""
    config = resolved_config(run)
    model = load(run)
    experiment = build(load_config(config), model.preprocessor)
    mlp, loss, part = model.mlp, experiment.step.loss, experiment.parts["train"]
    validation = experiment.parts.get("validation")
    diagnostics = read_diagnostics(run, mlp, facts(experiment.step, part, validation))
    diagnostics.batch_size = experiment.step.batch_size
    shapes = spectra(mlp, experiment.model.mlp)
    with np.errstate(all="ignore"):  # a run that failed may have any weights
        measure_recalls(diagnostics, experiment.task, part, validation)
        hardest = _hardest(experiment, model, count)
        bars = histograms(mlp, loss, Rows(part.x, part.y, part.weights))
    reported = verdicts(diagnostics)
    if plot is not None:
        save_dashboard(diagnostics, plot, dark=dark, title=str(run))
    report = {
        "sample": _sample(diagnostics),
        "verdicts": [v.as_dict() for v in reported],
        "spectra": [s.as_dict() for s in shapes],
        "hardest": hardest,
        "histograms": bars,
    }
    lines = [table(diagnostics), LEGEND, *_spoken(reported, []), "", *_spectra_lines(shapes)]
    lines += ["", *_hardest_lines(hardest)] if hardest else []
    return report, lines


def _hardest(experiment: Experiment, model: Model, count: int) -> list[dict[str, Any]]:
    """Return the training rows with the largest gradients, with labels and predictions."""
    part, (table, rows) = experiment.parts["train"], experiment.tables.parts["train"]
    numbers = table.row_numbers()
    loss = experiment.step.loss
    norms = example_norms(model.mlp, loss, part.x, part.y)
    hardest = np.argsort(-norms, kind="stable")[:count]
    losses = row_losses(model.mlp, loss, part.x[hardest], part.y[hardest])
    predicted = experiment.task.predict(model.mlp.predict(part.x[hardest]))
    classes = model.preprocessor.classes if part.truth.ndim == 1 else None

    def named(value: Any) -> Any:
        return str(classes[int(value)]) if classes else np.asarray(value).tolist()

    return [
        {
            table.numbering: int(numbers[place if rows is None else rows[place]]),
            "gradient_norm": _known(norms[place]),
            "loss": _known(value),
            "target": named(part.truth[place]),
            "predicted": named(guess),
        }
        for place, guess, value in zip(hardest, predicted, losses, strict=True)
    ]


def _sample(diagnostics: Diagnostics) -> dict[str, Any]:
    values = [
        {"layer": layer, "quantity": quantity, "value": value}
        for (layer, quantity), value in zip(diagnostics.columns, diagnostics.values, strict=True)
        if np.isfinite(value)
    ]
    return {"step": diagnostics.sampled, "values": values}


def _plain(values: tuple[float, ...]) -> list[float | None]:
    return [_known(value) for value in values]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _spoken(verdicts: list[Verdict], checks: list[Check]) -> list[str]:
    if verdicts:
        return ["", *(line for verdict in verdicts for line in _verdict_lines(verdict))]
    return [] if any(not c.good for c in checks) else ["", "nothing unusual"]


def _verdict_lines(verdict: Verdict) -> list[str]:
    settings = (f"--set {key}={json.dumps(value)}" for key, value in (verdict.fix or {}).items())
    return [f"LOOK  {verdict}", *([f"      fix: {' '.join(settings)}"] if verdict.fix else [])]


def _spectra_lines(shapes: list[Spectrum]) -> list[str]:
    titles = ("layer", "norm", "moved", "stable rank", "of", "condition", "largest values")
    lines = ["{:>5} {:>8} {:>7} {:>11} {:>5} {:>9}  {}".format(*titles)]
    for s in shapes:
        leading = ", ".join(f"{value:.3g}" for value in s.leading[:3])
        moved = "-" if isnan(s.distance) else f"{s.distance:.3g}"
        lines.append(
            f"{s.layer:>5} {s.norm:>8.3g} {moved:>7} {s.stable_rank:>11.1f} {s.full_rank:>5} "
            f"{s.condition:>9.3g}  {leading}"
        )
    return lines


def _hardest_lines(hardest: list[dict[str, Any]]) -> list[str]:
    numbering = "line" if "line" in hardest[0] else "row"
    lines = [f"{f'hard {numbering}':>9} {'gradient':>9} {'loss':>9}   target, predicted"]
    lines += [
        f"{h[numbering]:>9} {_number(h['gradient_norm'])} {_number(h['loss'])}   "
        f"{_short(h['target'])}, {_short(h['predicted'])}"
        for h in hardest
    ]
    return lines


def _number(value: float | None) -> str:
    return "not finite".rjust(9) if value is None else f"{value:>9.3g}"


def _short(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values)
