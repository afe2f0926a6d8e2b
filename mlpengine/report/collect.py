"""Collect all numbers of a run's report as plain data, ready for JSON."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config import load_config
from mlpengine.config.baselines import WORK, ScoredRows, score_of, scored_rows
from mlpengine.config.build import CHANGED, LoadedData, load_data, trainer_of
from mlpengine.config.tables import changed_files
from mlpengine.core.errors import MlpEngineError
from mlpengine.core.files import pasted, read_mapping
from mlpengine.core.redaction import redacted, shown_path, without_directories
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.features.drift import NewRows
from mlpengine.diagnostics.curves import gradients_of
from mlpengine.diagnostics.samples import Series
from mlpengine.drawing.charts import curves_of
from mlpengine.models.card import facts_of
from mlpengine.models.explain import PERMUTED_COLUMNS, feature_columns
from mlpengine.models.model import Model
from mlpengine.models.task import PART_PHRASES, Split
from mlpengine.step.blas_threads import pinned
from mlpengine.training.diagnose import DIAGNOSTICS_FILE
from mlpengine.training.diagnostics_files import read_series
from mlpengine.training.history import METRICS_FILE, History, read_metrics
from mlpengine.training.loading import load
from mlpengine.training.measure import explained_rows
from mlpengine.training.result import failure, read_result
from mlpengine.training.run_directory import (
    ENVIRONMENT_FILE,
    FAILURE_FILE,
    GIVEN_CONFIG,
    RESOLVED,
    RESULT_FILE,
    resolved_config,
)

from .predictions import hardest_of, predictions_of

REPORT_FORMAT = 1
SHOWN_IMPORTANCES, SHOWN_CELLS = 15, 6
PERMUTED_ROWS, PERMUTATIONS = 500, 5
"""Minimum rows for importances, and number of permutations of each column."""

MAX_PERMUTED_ROWS = 2_000
CONFIG_LENGTH = 20_000
"""Maximum number of shown characters of a config."""

WITH_PATHS = {"path", "failure", "result", "verdicts", "settings", "notes", "model"}
"""Keys with texts that may contain paths.  Directories are removed from these paths."""


DAMAGED = (MlpEngineError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError)
"""Errors that reading a damaged file may raise."""


class ReportBudget(NamedTuple):
    """Limits of the work for a report.

    `work`: multiplications to fit the linear baseline, with which the model is compared.  `passes`:
    multiplications of the forward passes that explain a model.  `rows`: rows of a part that are
    compared with the training rows.  `curves`: columns with partial dependence.
    """

    work: float
    passes: float
    rows: int
    curves: int


QUICK = ReportBudget(work=WORK, passes=3e9, rows=2_000, curves=3)
"""Budget of the report at the end of training, which takes about 0.1 s."""

THOROUGH = ReportBudget(work=2e10, passes=5e10, rows=20_000, curves=6)


@dataclass(frozen=True, eq=False)
class RunData:
    """A run, read from its directory or, right after training, from memory.

    `path` is None for a run without a directory; then `history` has the epochs.  `loaded` has the
    data.  If `trained` is False, `model` has its initial weights.  If `loaded` or `model` cannot be
    read, it is None, and `notes` gives the reason.  `known` is (name, rows, outputs) of the part
    that was measured last, and `score` the comparison with baselines; `collect` computes them if
    they are None.
    """

    path: Path | None
    result: Mapping[str, Any] = field(default_factory=dict)
    loaded: LoadedData | None = None
    model: Model | None = None
    trained: bool = True
    series: Series | None = None
    known: tuple[str, Split, Array] | None = None
    score: Mapping[str, Any] | None = None
    failure: str = ""
    notes: tuple[str, ...] = ()
    history: History | None = None
    changed: Sequence[str] = ()
    """Names of the data files that have changed since the run was trained."""


class Collected(NamedTuple):
    """The data of a report, ready for JSON, and the predicted rows, to compare with other runs."""

    data: dict[str, Any]
    scored: ScoredRows | None = None
    changed: Sequence[str] = ()


def read_run(path: Path) -> RunData:
    """Read the contents of a run directory; each item that cannot be read becomes a note.

    Raises: UsageError if the directory is not a run directory.
    """
    resolved = resolved_config(path)
    notes: list[str] = []
    changed: list[str] = []

    def attempt(what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except DAMAGED as error:
            notes.append(f"{what}: {_line(error)}")
            return None

    model = loaded = None
    failed = attempt("the failure cannot be read", lambda: failure(path))
    name = FAILURE_FILE if failed else RESULT_FILE
    result = attempt("the result cannot be read", lambda: read_result(path, name)) or {}
    if not failed:
        model = attempt("the model cannot be read", lambda: load(path))
    file = attempt("the config cannot be read", lambda: load_config(resolved))
    if file is not None:
        changed = changed_files(path, file)
        notes += [f"{name} {CHANGED}" for name in changed]
        preprocessor = model.preprocessor if model else None
        loaded = attempt("the data cannot be read", lambda: load_data(file, preprocessor))
    trained = model is not None
    if loaded is not None and model is None:
        model = attempt(
            "the config does not fit the data",
            lambda: trainer_of(loaded).model(loaded.tables.preprocessor),
        )
    series = None
    if (path / DIAGNOSTICS_FILE).is_file():
        series = attempt("diagnostics", lambda: read_series(path / DIAGNOSTICS_FILE))
    run = RunData(path, result, loaded, model, trained, series, changed=changed)
    return replace(run, failure=failed or "", notes=tuple(notes))


def collect(run: RunData, effort: ReportBudget = THOROUGH, *, whole: bool = True) -> Collected:
    """Return the numbers of a run; each part that cannot be computed becomes a note.

    With `whole` False, predictions, importances, data and gradients are left out.
    """
    with pinned(1):  # small products are faster on one thread
        return _collect(run, effort, whole=whole)


def _collect(run: RunData, effort: ReportBudget, *, whole: bool) -> Collected:
    notes = list(run.notes)
    environment = _read_json(run.path / ENVIRONMENT_FILE, notes) if run.path else {}
    scored: ScoredRows | None = None
    title = f"a model of {', '.join(run.model.target)}" if run.model else "a run without a model"
    data: dict[str, Any] = {
        "format": REPORT_FORMAT,
        "kind": "run",
        "in_memory": run.path is None,
        "path": str(shown_path(run.path)) if run.path else "trained in memory",
        "name": run.path.name if run.path else title,
        "ending": run.result.get("ending"),
        "failure": run.failure,
        "result": {
            k: v for k, v in run.result.items() if k not in ("error", "run_dir", "verdicts")
        },
        "verdicts": run.result.get("verdicts", []),
    }

    def attempt(key: str, function: Callable[[], Any]) -> Any:
        try:
            with np.errstate(all="ignore"):
                data[key] = function()
        except (*DAMAGED, ArithmeticError) as error:
            notes.append(f"{key} cannot be shown: {_line(error)}")
        return data.get(key)

    attempt("epochs", lambda: epochs_of(run))
    loaded, model = run.loaded, run.model
    if loaded is not None and model is not None:
        attempt("model", lambda: model_of_run(loaded, model))
        if run.trained:
            attempt("scored", lambda: scored_rows(loaded, model.mean, run.known))
            scored = data.pop("scored", None)
            if scored is not None and not np.isfinite(scored.output).all():
                notes.append("predictions cannot be shown: the outputs of the model are not finite")
                scored = None
        if scored is not None:
            rows = scored
            attempt(
                "score", lambda: run.score or score_of(loaded, rows, effort.work, model.threshold)
            )
        if scored is not None and whole:
            attempt("predictions", lambda: predictions_of(model, loaded.task, rows))
            attempt("drivers", lambda: drivers_of(loaded, model, effort))
            ranked = [one["column"] for one in (data.get("drivers") or {}).get("importances", [])]
            columns = ranked or loaded.tables.preprocessor.columns
            attempt("hardest", lambda: hardest_of(loaded, rows, columns[:SHOWN_CELLS]))
        if whole:
            attempt("data", lambda: data_of(loaded, effort.rows))
    if whole and run.series is not None and len(run.series):
        series = run.series
        batch_size = loaded.batch_size if loaded else None
        dead = any(one.get("name") == "dead" for one in data["verdicts"])
        attempt("gradients", lambda: gradients_of(series, batch_size, dead=dead))
    attempt("settings", lambda: settings_of(run, environment))
    data["notes"] = notes
    for key in WITH_PATHS & data.keys():
        data[key] = without_directories(data[key])
    return Collected(plain_data(data), scored, run.changed)


def epochs_of(run: RunData) -> dict[str, Any] | None:
    """Return the number of epochs, the best epochs, and thinned curves of the metrics."""
    best = run.result.get("best_epochs") or run.result.get("best_epoch")
    ended = run.result.get("member_epochs") or []
    if run.history is not None:
        count, curves = len(run.history.rows), curves_of(run.history.by_column())
        return {"count": count, "best": best or None, "ended": ended, "curves": curves}
    path = run.path / METRICS_FILE if run.path else None
    if path is None or not path.is_file():
        return None
    columns = read_metrics(path)
    epochs, curves = columns["epoch"], curves_of(columns)
    if not len(epochs):
        return None
    if best is None and run.loaded is not None and "validation_loss" in columns:
        known = columns["validation_loss"]
        best = int(epochs[np.nanargmin(known)]) if np.isfinite(known).any() else None
    return {"count": len(epochs), "best": best or None, "ended": ended, "curves": curves}


def model_of_run(loaded: LoadedData, model: Model) -> dict[str, Any]:
    """Return the facts of a trained model: its data, its network and its target."""
    config, preprocessor = loaded.file.config, model.preprocessor
    return facts_of(model) | {
        "columns": len(preprocessor.columns),
        "features": preprocessor.n_features,
        "activations": [str(name) for name in model.mlp.activations.values()],
        "source": config.data.source,
        "rows": loaded.tables.rows,
        "folds": config.training.folds,
        "optimizer": config.optimizer.name,
    }


def drivers_of(loaded: LoadedData, model: Model, effort: ReportBudget) -> dict[str, Any]:
    """Return the permutation importance of columns, and partial dependence on the important ones.

    `effort.passes` limits the rows and the permuted columns.  If there are too many columns, only
    the columns with the largest effect on the outputs are permuted.
    """
    columns = feature_columns(model.preprocessor)
    count = len(set(columns))
    folds = loaded.file.config.training.folds or 1
    passes = effort.passes / (PERMUTATIONS * (model.n_parameters / folds + 2_000))
    permutable = int(np.clip(passes / PERMUTED_ROWS, SHOWN_IMPORTANCES, PERMUTED_COLUMNS))
    limit = min(int(passes / min(count, permutable)), MAX_PERMUTED_ROWS)
    if limit < PERMUTED_ROWS:
        return {"skipped": f"{plural(count, 'column')} would take seconds"}
    name, part, forward = explained_rows(model.mean, loaded.parts, loaded.folds, limit)
    if len(part) < PERMUTED_ROWS:
        some = f"{len(part):,} {PART_PHRASES[name]}"
        return {"skipped": f"there are {some}, and {PERMUTED_ROWS} are needed"}
    table, points = loaded.tables.parts["train"][0], 12
    rows = int(effort.passes / (model.n_parameters * effort.curves * points))
    explained = model.explanation(
        name,
        part,
        forward,
        table,
        curves=effort.curves if rows >= 20 else 0,
        most=permutable,
        points=points,
        averaged=min(200, rows),
    )
    known = explained.as_dict()
    ranked = known["importances"]
    return known | {"permuted": len(ranked), "importances": ranked[:SHOWN_IMPORTANCES]}


def data_of(loaded: LoadedData, rows: int) -> dict[str, Any]:
    """Return facts of the data, and how at most `rows` rows of a part differ from training rows."""
    tables = loaded.tables
    preprocessor = tables.preprocessor
    differences = {}
    for name, (table, numbers) in tables.parts.items():
        if name != "train":
            some = table.rows(numbers[evenly_spaced(len(numbers), rows)])
            differences[name] = NewRows(preprocessor).add(some).lines()
    return {
        "rows": tables.rows,
        "columns": preprocessor.columns,
        "features": preprocessor.n_features,
        "left_out": tables.remarks,
        "where": loaded.file.config.data.where,
        "constant": preprocessor.constant,
        "differences": differences,
    }


def settings_of(run: RunData, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return config, seed, versions, times, and the commands that repeat the run."""
    given = run.path / GIVEN_CONFIG if run.path else None
    text = ""
    if given and given.is_file():
        text = given.read_bytes().decode(errors="backslashreplace")
    elif given is None and run.loaded:
        text = run.loaded.file.resolved()
    text = redacted(text)
    config = run.loaded.file.config if run.loaded else None
    command = environment.get("command")
    words = [redacted(str(word)) for word in command] if isinstance(command, list) else []
    first = [Path(words[0]).name] if words else []
    again, longer = "", run.result.get("max_epochs")
    if run.path:
        again = f"mlpengine train {pasted(shown_path(run.path) / RESOLVED)}"
        if longer not in (None, load_config(run.path / RESOLVED).config.training.epochs):
            again += f" -o again; mlpengine train --resume again --epochs {longer}"
    return {
        "config": text[:CONFIG_LENGTH],
        "shortened": len(text) > CONFIG_LENGTH,
        "seed": config.seed if config else None,
        "command": shlex.join([*first, *words[1:]]) if words else "",
        "again": again,
        **{k: v for k, v in environment.items() if k != "command"},
    }


def plain_data(value: Any) -> Any:
    """Return data for JSON: numbers with six digits, and None for numbers that are not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return plain_data(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain_data(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain_data(one) for one in value]
    return str(value)


def _read_json(path: Path, notes: list[str]) -> dict[str, Any]:
    """Return a mapping from a file, or {} and a note if the file cannot be read."""
    try:
        return read_mapping(path)
    except FileNotFoundError:
        notes.append(f"there is no {path.name}")
    except (OSError, ValueError) as error:
        notes.append(f"{path.name} cannot be read: {_line(error)}")
    return {}


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
