"""`mlpengine diagnose`: explain how a run went."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from mlpengine.config.baselines import linear_comparison
from mlpengine.config.build import LoadedData, load_run_data, trainer_of
from mlpengine.config.columns import cell_verdicts, column_verdicts, merged_verdicts
from mlpengine.config.fixed_config import fixed_config
from mlpengine.core.errors import RunError, UsageError
from mlpengine.core.files import missing, pasted, write_atomically
from mlpengine.diagnostics import (
    Diagnostics,
    Verdict,
    combined_fix,
    table,
    verdicts,
)
from mlpengine.diagnostics.layer_table import LEGEND
from mlpengine.diagnostics.verdict import Verdicts, without
from mlpengine.models.model import Model
from mlpengine.settings.fix import by_key, command_text
from mlpengine.training.diagnose import Trained, diagnostic_inputs, measure_rows
from mlpengine.training.diagnostics_files import read_diagnostics
from mlpengine.training.loading import load
from mlpengine.training.result import read_result
from mlpengine.training.run_directory import FAILURE_FILE, RESULT_FILE, resolved_config
from mlpengine.training.trainer import Trainer

from .options import AS_JSON, OUTPUT_FILE
from .streams import say

EPILOG = """\b
Examples:
  mlpengine diagnose runs/digits
  mlpengine diagnose runs/digits --fix better.yaml
"""


@click.command("diagnose", epilog=EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--fix",
    type=OUTPUT_FILE,
    metavar="FILE",
    help="Write a config with the settings that fix the problems, with comments.",
)
@AS_JSON
def command(run: Path, fix: Path | None, as_json: bool) -> None:
    """Explain how the run in directory RUN went.

    The command shows the last measurement of gradients and units, and the verdicts: the problems
    that were found.
    """
    if fix is not None and fix.exists():
        raise UsageError(f"--fix: must be a new file ({fix} exists)")
    if not run.exists():
        raise missing(run, "run")
    if not run.is_dir():
        text = f"; to diagnose a config, first write mlpengine train {pasted(run)}"
        text = text if run.suffix in (".yaml", ".yml") else ""
        raise UsageError(f"{run}: must be the directory of a run (got a file){text}")
    report, lines, reported = _read(run)
    if fix is not None:
        lines += ["", _write_fix(fix, resolved_config(run), reported)]
    say(json.dumps(report, allow_nan=False) if as_json else "\n".join(lines))


def _columns(data: LoadedData) -> list[Verdict]:
    file, tables = data.file, data.tables
    return [*cell_verdicts(file, tables), *column_verdicts(file, tables)]


def _read(run: Path) -> tuple[dict[str, Any], list[str], list[Verdict]]:
    """Read a run; return the report as data and as lines, and the verdicts."""
    ended = next((name for name in (RESULT_FILE, FAILURE_FILE) if (run / name).is_file()), None)
    model = None if ended else load(run)
    data = load_run_data(run, model.preprocessor if model else None)
    trainer = trainer_of(data)
    known = diagnostic_inputs(trainer.step, trainer.train, [data.parts.get("validation")])
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
    lines = [table(diagnostics), LEGEND, *_spoken(reported)]
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
    return merged_verdicts(data.file, _columns(data), verdicts(diagnostics))


def _write_fix(path: Path, config: Path, reported: list[Verdict]) -> str:
    """Write a config with the settings of the verdicts' fixes; return a line of text about it."""
    settings = combined_fix(reported)
    if not settings:
        return "no verdict has a fix that changes a setting; nothing was written"
    write_atomically(path, fixed_config(config, reported).encode())
    return f"wrote {path}, with {', '.join(settings)}"


def _sample(diagnostics: Diagnostics) -> dict[str, Any]:
    values = [
        {"layer": layer, "quantity": quantity, "value": value}
        for (layer, quantity), value in zip(diagnostics.columns, diagnostics.values, strict=True)
        if np.isfinite(value)
    ]
    return {"step": diagnostics.sampled, "values": values}


def _spoken(verdicts: list[Verdict]) -> list[str]:
    lines = [""]
    for verdict in verdicts:
        lines.append(str(verdict))
        lines += [f"      fix: {command_text(by_key(verdict.fix))}"] if verdict.fix else []
    return lines if verdicts else ["", "nothing unusual"]
