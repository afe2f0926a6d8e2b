"""`mlpengine diagnose`: check a config before a long run, or explain how a run went."""

import json
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

from mlpengine.config import Override, load_config, parse_override
from mlpengine.config.baselines import linear_comparison
from mlpengine.config.build import LoadedData, load_data, load_run_data, trainer_of
from mlpengine.config.columns import cell_verdicts, column_verdicts, joint_list
from mlpengine.config.fixed_config import fixed_config
from mlpengine.core.errors import NumericalError, RunError, UsageError
from mlpengine.core.files import missing, write_atomically
from mlpengine.core.structure import finite
from mlpengine.core.wording import plural
from mlpengine.diagnostics import (
    Diagnostics,
    Verdict,
    combined_fix,
    table,
    verdicts,
)
from mlpengine.diagnostics.layer_table import LEGEND
from mlpengine.diagnostics.preflight import Check, check_few_rows, probe, suggest_lr
from mlpengine.diagnostics.rules import SHORT_RUNS
from mlpengine.diagnostics.trial import Rows, restored
from mlpengine.diagnostics.verdict import Verdicts, without
from mlpengine.models.model import Model
from mlpengine.settings.fix import by_key, command_text
from mlpengine.training.diagnose import Trained, diagnostic_inputs, measure_rows
from mlpengine.training.diagnostics_files import read_diagnostics
from mlpengine.training.loading import load
from mlpengine.training.result import read_result
from mlpengine.training.run_directory import FAILURE_FILE, RESULT_FILE, resolved_config
from mlpengine.training.trainer import Trainer

from .options import AS_JSON, OUTPUT_FILE, overrides_like
from .streams import say

PROBE_STEPS = 200
"""Number of trial steps before the verdicts on a config."""

TRIED_STEPS = 20
"""Number of timed steps; the fastest one gives the time of a step."""

EPILOG = """\b
Examples:
  mlpengine diagnose configs/digits.yaml
  mlpengine diagnose configs/digits.yaml --set optimizer.lr=0.1 --json
  mlpengine diagnose runs/digits
  mlpengine diagnose runs/digits --fix better.yaml
"""


@click.command("diagnose", epilog=EPILOG)
@click.argument("target", metavar="CONFIG|RUN", type=click.Path(path_type=Path))
@overrides_like("optimizer.lr=0.1")
@click.option(
    "--fix",
    type=OUTPUT_FILE,
    metavar="FILE",
    help="Write the config with the settings that the verdicts ask for, commented.",
)
@AS_JSON
def command(
    target: Path,
    settings: tuple[str, ...],
    fix: Path | None,
    as_json: bool,
) -> None:
    """Check the YAML file CONFIG before a long run, or explain how the run in directory RUN went.

    For a config, the command shows memory and time, whether the network can memorize 20 rows,
    learning rates that work, and verdicts after some trial steps.  For a run, it shows the last
    measurement of gradients and units, and the verdicts.
    """
    if fix is not None and fix.exists():
        raise UsageError(f"--fix: must be a new file ({fix} exists)")
    if not target.exists():
        raise missing(target, "config or run")
    if not target.is_dir():
        overrides = [parse_override(text) for text in settings]
        report, lines, reported = _before(target, overrides)
    else:
        if settings:
            raise UsageError("diagnose: --set needs a config (got a run); leave --set out")
        overrides = []
        report, lines, reported = _after(target)
    if fix is not None:
        config = resolved_config(target) if target.is_dir() else target
        lines += ["", _write_fix(fix, config, reported, overrides)]
    say(json.dumps(report, allow_nan=False) if as_json else "\n".join(lines))


def _before(
    path: Path, overrides: list[Override]
) -> tuple[dict[str, Any], list[str], list[Verdict]]:
    """Check a config; return the report as data and as lines, and the verdicts."""
    data = load_data(load_config(path, overrides))
    trainer = trainer_of(data)
    step, part = trainer.step, data.parts["train"]
    rows, silenced = Rows(part.x, part.y, part.weights), data.file.silenced
    with trainer.pinned():
        with restored(step):
            estimate = _estimate(path, trainer)
        rate, curve = suggest_lr(step, rows, step.batch_size)
        checks = [check_few_rows(step.mlp, step.loss, rows), rate]
        known = diagnostic_inputs(step, part, data.parts.get("validation"))
        diagnostics = probe(step, rows, step.batch_size, PROBE_STEPS, **known)
    reported = without(_columns(data), silenced)
    reported += without(verdicts(diagnostics), {*silenced, *SHORT_RUNS})  # short on purpose
    report = {
        "good": all(c.good for c in checks) and not reported,
        "estimate": estimate,
        "lr": finite(curve.suggestion),
        "checks": [c.as_dict() for c in checks],
        "lr_curve": finite({"lr": curve.rates, "loss": curve.losses}),
        "probe": _sample(diagnostics),
        "verdicts": [v.as_dict() for v in reported],
    }
    lines = [
        f"{'':<5} memory {estimate['bytes']:,} bytes for a step, time about "
        f"{estimate['seconds']:.3g} s for {plural(estimate['steps'], 'step')}",
        *(f"{'ok' if c.good else 'LOOK':<5} {c.text}" for c in checks),
    ]
    trial = f"after {PROBE_STEPS} trial steps (the weights are restored):"
    lines += ["", trial, table(diagnostics), LEGEND]
    lines += _spoken(reported, checks)
    return report, lines, reported


def _estimate(path: Path, trainer: Trainer) -> dict[str, Any]:
    """Time a few steps; return the bytes of a step, and seconds and steps of the whole run."""
    loop, members = trainer.loop(), len(trainer.members)
    first, step, spent = loop.members[0], loop.step, inf
    bound = step.bound(step.batch_size)
    indices = first.batches.order[: step.batch_size]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(TRIED_STEPS):
            began = perf_counter()
            first.fill(bound, indices)
            try:
                step.run(bound)
            except NumericalError as error:
                if spent < inf:
                    break  # the verdicts of the trial name the cause
                raise NumericalError(f"{path}: {error}") from error
            spent = min(spent, perf_counter() - began)
    steps = len(first.batches) * loop.epochs
    return {
        "bytes": bound.scratch.planned_bytes,
        "seconds": spent * steps * -(-members // trainer.threads),
        "steps": steps * members,
    }


def _columns(data: LoadedData) -> list[Verdict]:
    file, tables = data.file, data.tables
    return [*cell_verdicts(file, tables), *column_verdicts(file, tables)]


def _after(run: Path) -> tuple[dict[str, Any], list[str], list[Verdict]]:
    """Read a run; return the report as data and as lines, and the verdicts."""
    ended = next((name for name in (RESULT_FILE, FAILURE_FILE) if (run / name).is_file()), None)
    model = None if ended else load(run)
    data = load_run_data(run, model.preprocessor if model else None)
    trainer = trainer_of(data)
    known = diagnostic_inputs(trainer.step, trainer.train, data.parts.get("validation"))
    diagnostics = read_diagnostics(run, trainer.networks[0], known, len(trainer.train))
    diagnostics.batch_size = trainer.batch_size
    if ended is not None:
        told = read_result(run, ended).get("verdicts", [])
        reported = without(map(Verdict.from_dict, told), data.file.silenced)
    elif model is not None:
        reported = _measured(diagnostics, model, data, trainer)
    report = {
        "sample": _sample(diagnostics),
        "verdicts": [v.as_dict() for v in reported],
    }
    lines = [table(diagnostics), LEGEND, *_spoken(reported, [])]
    return report, lines, reported


def _measured(
    diagnostics: Diagnostics, model: Model, data: LoadedData, trainer: Trainer
) -> Verdicts:
    """Return the verdicts on a run that has not ended."""
    part, task, start = trainer.train, data.task, trainer.networks[0]
    networks = [Trained(model.mlp.predict, np.arange(len(part)), data.parts.get("validation"))]
    if (folds := data.folds) is not None:
        networks = [
            Trained(net.predict, np.flatnonzero(folds != k), part.rows(np.flatnonzero(folds == k)))
            for k, net in zip(range(int(folds.max()) + 1), model.mean.networks, strict=False)
        ]
    shape, trained = (
        [net.params.specs[name] for name in net.groups["weights"]] for net in (start, model.mlp)
    )
    if shape != trained:
        sizes = " and ".join(net.title for net in (start, model.mlp))
        raise RunError(
            f"{data.file.path}: must describe the network of the model (config and model: {sizes});"
            " restore the config, or train again"
        )
    diagnostics.planned_split = trainer.planned_split
    diagnostics.stops_early = trainer.settings.training.early_stopping is not None
    with np.errstate(all="ignore"):  # large weights may overflow
        measure_rows(diagnostics, task, part, networks)
        diagnostics.baseline_score = linear_comparison(data, model.mean)
    return joint_list(data.file, _columns(data), verdicts(diagnostics))


def _write_fix(path: Path, config: Path, reported: list[Verdict], overrides: list[Override]) -> str:
    """Write the config with the settings of the verdicts' fixes; return a line about it."""
    settings = combined_fix(reported)
    if not settings:
        return "no verdict asks for a setting; nothing was written"
    write_atomically(path, fixed_config(config, reported, overrides).encode())
    return f"wrote {path}, with {', '.join(settings)}"


def _sample(diagnostics: Diagnostics) -> dict[str, Any]:
    values = [
        {"layer": layer, "quantity": quantity, "value": value}
        for (layer, quantity), value in zip(diagnostics.columns, diagnostics.values, strict=True)
        if np.isfinite(value)
    ]
    return {"step": diagnostics.sampled, "values": values}


def _spoken(verdicts: list[Verdict], checks: list[Check]) -> list[str]:
    lines = [""]
    for verdict in verdicts:
        lines.append(str(verdict))
        lines += [f"      fix: {command_text(by_key(verdict.fix))}"] if verdict.fix else []
    if verdicts:
        return lines
    return [] if any(not c.good for c in checks) else ["", "nothing unusual"]
