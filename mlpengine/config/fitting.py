"""Training from Python in one call, with the keys of a config."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.config.build import build
from mlpengine.config.columns import cell_verdicts, column_verdicts
from mlpengine.config.load import ConfigFile, check_config
from mlpengine.config.measure import measure, recorded
from mlpengine.config.reader import Document
from mlpengine.config.standing import held_out, score_of, standing_of
from mlpengine.config.tables import read_source, read_tables, reading_of
from mlpengine.data import Table
from mlpengine.data.frames import as_table, categorical_columns
from mlpengine.diagnostics.verdict import Verdicts, without
from mlpengine.errors import UsageError
from mlpengine.train.diagnose import YARDSTICK_SECONDS
from mlpengine.train.loop import Callback, Result
from mlpengine.train.model import Model, load
from mlpengine.wording import html_table, plural

NAME = "fit"
"""What messages about the config say in place of a file."""


@dataclass(frozen=True, repr=False)
class FitResult(Result):
    """The outcome of `fit`.

    Attributes:
        metrics: loss and headline metrics by part: train, and validation and test if there are;
            with folds out_of_fold in place of train.
        spreads: of several networks, by part and title: the standard error (``+-``) out of fold, or
            the mean (``one network``) and deviation over seeds.
        remarks: a line for each fact to know: rows that were left out, columns that explain nearly
            all of the target.
        verdicts: what is wrong with the data and the fit, but for those that a config silences.
    """

    metrics: dict[str, dict[str, float]]
    remarks: list[str]

    def __repr__(self) -> str:
        parts = [
            f"{part}: {', '.join(f'{name} {value:.4g}' for name, value in values.items())}"
            for part, values in self.metrics.items()
        ]
        epochs = f"{plural(self.epochs, 'epoch')}, best {self.best_epoch}, {self.ending}"
        return f"FitResult({'; '.join([epochs, *parts])})"

    def _repr_html_(self) -> str:
        """Return the metrics as a table, for notebooks."""
        names = list(next(iter(self.metrics.values()), {}))
        rows = [
            (part, *(f"{values.get(name, nan):.4g}" for name in names))
            for part, values in self.metrics.items()
        ]
        return html_table(["", *names], rows)

    spreads: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)


def fit(
    table: Any,
    /,
    target: str | Sequence[str] | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    start: Model | str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    **config: Any,
) -> tuple[Model, FitResult]:
    """Train on a table and return the model, with the weights of its best epoch, and the result.

    It does what ``mlpengine train`` does with the same config, and gives the same bits; no file is
    written (`Model.save` writes the model).

    Args:
        table: in any form that `Model.predict` takes except a matrix without names, or the
            name of a data set that ships with the package.
        target: the column to predict, or several.
        validation: a table of its own in place of a share of `table`.
        test: the same for the test.
        start: a model, or a run, whose weights and preprocessing training starts from.
        callbacks: called by the training loop.
        config: the sections and keys of a config by name, such as ``model={"hidden": [32]}``,
            ``optimizer="adamw"`` or ``training={"epochs": 20}``.

    >>> model, result = fit("penguins", seed=1, training={"epochs": 20, "batch_size": 16})
    >>> sorted(result.metrics["test"]), result.metrics["test"]["accuracy"] > 0.9
    (['accuracy', 'loss', 'macro_f1'], True)
    >>> model.predict("penguins")[:2].tolist()
    ['Adelie', 'Adelie']

    Raises: ConfigError listing every unknown or wrong key; DataError for a table that cannot be
    learned from; NumericalError if training fails.
    """
    given = {"validation": validation, "test": test}
    file, tables = _config(table, target, given, config)
    model = start if isinstance(start, Model) or start is None else load(os.fspath(start))
    fitted = model.preprocessor if model else None
    source = read_source(file, table=tables.pop("train", None), fitted=fitted)
    experiment = build(file, tables=read_tables(file, source, fitted, tables), start=model)
    diagnostics = experiment.diagnostics()
    loop = experiment.loop(callbacks, of_first=[diagnostics] if diagnostics else [])
    with experiment.pinned():
        result = loop.run()
        if file.config.training.refit and result.best_epoch:
            again = _refitted(config, result.best_epoch)
            return fit(table, target, test=test, start=start, callbacks=callbacks, **again)
        experiment = experiment.calibrated()
        measured = measure(experiment, loop)
        if diagnostics and result.seconds >= YARDSTICK_SECONDS:
            score = score_of(experiment, held_out(experiment, measured.last))
            diagnostics.core.standing = standing_of(experiment, score)
        of_run = diagnostics.verdicts() if diagnostics else []
    of_columns = column_verdicts(file, experiment.tables)
    reported = [*cell_verdicts(file, experiment.tables), *of_columns, *of_run]
    return recorded(experiment, measured), FitResult(
        **vars(result),
        metrics=measured.metrics,
        spreads=measured.spreads,
        remarks=[*experiment.tables.remarks, *map(str, of_columns)],
        verdicts=without(reported, file.silenced),
    )


def _refitted(config: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Return the sections of a config for a training on validation rows, too."""
    data, training = config.get("data", {}), config["training"]
    ended = {"epochs": epochs, "early_stopping": False, "refit": False}
    split = {**data.get("split", {}), "validation": 0.0}
    return {**config, "training": {**training, **ended}, "data": {**data, "split": split}}


def _config(
    table: Any,
    target: str | Sequence[str] | None,
    given: Mapping[str, Any],
    config: Mapping[str, Any],
) -> tuple[ConfigFile, dict[str, Table]]:
    """Return the checked config, and the tables in memory by part."""
    sections = _plain(config)
    own = sections.setdefault("data", {})
    if not isinstance(own, dict):
        raise UsageError(f"{NAME}: data must be a mapping of keys (got {own!r:.60})")
    if target is not None:
        own["target"] = _plain(target)
    kept = own.get("categorical", [])
    categorical = dict.fromkeys([kept] if isinstance(kept, str) else kept)
    in_memory = {}
    parts = {"train": table, **{k: v for k, v in given.items() if v is not None}}
    for part, rows in parts.items():
        key = "source" if part == "train" else f"{part}_source"
        if isinstance(rows, str | os.PathLike):
            own[key] = os.fspath(rows)
            continue
        own[key] = "the data in memory" if part == "train" else f"the {part} data"
        if part == "train":
            categorical |= dict.fromkeys(categorical_columns(rows))
        in_memory[part] = rows
    targets = own.get("target", [])
    features = [name for name in categorical if name not in targets]
    if features:
        own["categorical"] = features
    document = Document(NAME, data=sections)
    document.places[()] = (NAME, 0)
    file = check_config(Path(NAME), document)
    how = reading_of(file).to_dict()
    return file, {
        part: as_table(rows, text=features, source=NAME if part == "train" else part, **how)
        for part, rows in in_memory.items()
    }


def _plain(value: Any) -> Any:
    """Return a value of Python as a config holds it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return os.fspath(value) if isinstance(value, os.PathLike) else value
