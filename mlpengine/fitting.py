"""Train, check and distill from Python in one call each, with the keys of a config."""

import logging
import os
from collections.abc import Iterator, KeysView, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import signature
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mlpengine.config.baselines import linear_comparison
from mlpengine.config.build import LoadedData, load_data, trainer_of
from mlpengine.config.checking import TableCheck
from mlpengine.config.columns import cell_verdicts, column_verdicts, merged_verdicts
from mlpengine.config.distilling import STUDENT_SECTIONS, Predict, Teacher, student_sections
from mlpengine.config.load import ConfigFile, check_config, load_config
from mlpengine.config.problems import OTHER_NAMES
from mlpengine.config.proposal import complete_config, drop_rates
from mlpengine.config.reader import Document
from mlpengine.config.schema import Config
from mlpengine.config.sections import fill_missing
from mlpengine.config.tables import (
    codes_of,
    history_of,
    read_source,
    read_tables,
    reading_of,
    with_preprocessing,
)
from mlpengine.core.errors import ConfigError, DataError, UsageError
from mlpengine.core.fields import POSITIVE, Limits
from mlpengine.core.files import checked_path, is_run
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted, shown_name, suggestion
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.column_kinds import kind_of, task_of
from mlpengine.data.tables import Table, read_table
from mlpengine.data.tables.detect import Detected, detect
from mlpengine.data.tables.frames import as_table, categorical_columns, one_number, time_columns
from mlpengine.diagnostics.verdict import Verdicts
from mlpengine.models.model import Model
from mlpengine.models.task import Split
from mlpengine.training.loading import load
from mlpengine.training.loop import Callback, Result
from mlpengine.training.measure import SPREADS, measure
from mlpengine.training.progress import Progress
from mlpengine.training.run_directory import resolved_config
from mlpengine.training.trainer import Fitted, Trainer

if TYPE_CHECKING:
    from mlpengine.drawing.cell import Cell
    from mlpengine.drawing.markup import Markup

FIT_EXAMPLE = "mlpengine.fit(table, target='price')"

_log = logging.getLogger("mlpengine")

NAME = "fit"
"""Name that replaces the file in messages about the config."""


class FitParts(NamedTuple):
    """Data for the report of a fit; `known` is (name, rows, outputs) of the last measured part."""

    data: LoadedData
    model: Model
    fitted: Fitted
    known: tuple[str, Split, Array] | None


@dataclass(frozen=True, repr=False)
class FitResult(Result):
    """The outcome of `fit`.

    Attributes:
        metrics: loss and main metrics of each part, such as ``metrics["test"]["loss"]``.  The parts
            are train (with folds: out_of_fold), validation and test, if they exist.
        spreads: further metrics by part and title.  With folds: standard errors (``+-``).  With
            seeds: means (``one network``) and standard deviations (``+-``) of single networks.  For
            a student: metrics of its ``teacher`` and of a directly trained network (``direct``).
        remarks: lines about the data, such as rows that were left out, columns that explain nearly
            all of the target, and dropped columns that are the target in another coding.
        decided: the settings that ``mlpengine init`` chooses for such a table, a line each, and the
            keys that the caller gave instead; empty for a warm start.
        verdicts: problems of the data and the fit, without silenced verdicts.
    """

    metrics: dict[str, dict[str, float]]
    remarks: list[str]
    spreads: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)
    decided: list[str] = field(default_factory=list)
    trained: "FitParts | None" = field(default=None, compare=False)

    def lines(self) -> list[str]:
        """Return the outcome and the metrics of each part as text."""
        return super().lines() + [
            f"{part}: {', '.join(f'{name} {value:.4g}' for name, value in values.items())}"
            for part, values in self.metrics.items()
        ]

    def content(self) -> "list[Markup]":
        """Return what a notebook shows: the metrics, the curves and the verdicts."""
        from mlpengine.drawing.markup import number, scrolling_table, tag

        names = list(next(iter(self.metrics.values()), {}))
        lines = [
            line
            for part, values in self.metrics.items()
            for line in [(part.replace("_", "-"), values), *self.spreads.get(part, {}).items()]
        ]
        rows = [[title, *(number(values.get(name)) for name in names)] for title, values in lines]
        head = ["", *map(shown_name, names)]
        ended, curves = super().content()
        title = "Metrics by part"
        threshold = self.trained.model.threshold if self.trained else None
        if self.trained and threshold:
            title += f", at the threshold {self.trained.model.threshold_text}"
        table = scrolling_table(head, rows, title, named=threshold is not None)
        verdicts = {str(verdict) for verdict in self.verdicts}
        notes = [line for line in self.remarks if line not in verdicts]
        titles = {title for further in self.spreads.values() for title in further}
        notes += [text for title, text in SPREADS.items() if title in titles]
        told = [tag("p", line, class_="note") for line in notes]
        return [ended, table, *told, curves, self.verdicts.content()]

    def report(self, path: str | os.PathLike[str] | None = None) -> "Cell | None":
        """Write the page of `mlpengine report` to a file; without a path, show it in a notebook.

        A result keeps the rows of its training in memory for this page; a pickle leaves them out.
        Raises: UsageError for a result from a pickle, or a name without .html; RunError if the file
        cannot be written.
        """
        from mlpengine.drawing.cell import page_cell
        from mlpengine.report import RunData, collect, run_page, write_page

        if self.trained is None:
            raise UsageError("report: the training rows are needed, and a pickle leaves them out; "
                             "write the report before pickling")  # fmt: skip
        if path is not None and Path(path).suffix != ".html":
            raise UsageError(f"report: the name must end in .html (got {str(path)!r})")
        data, model, fitted, known = self.trained
        best = [*self.best_epochs] if len(self.best_epochs) > 1 else None
        outcome = {
            "ending": self.ending,
            "seconds": self.seconds,
            "samples_per_second": self.samples_per_second,
            "best_epochs": best,
            "best_epoch": self.best_epoch,
            "warm_start": data.warm_start,
            "verdicts": [one.as_dict() for one in self.verdicts],
        }
        series = fitted.diagnostics.core.series if fitted.diagnostics else None
        run = RunData(None, outcome, data, model, series=series, known=known, history=self.history)
        page = run_page(collect(run).data)
        if path is None:
            return page_cell("the report of a model", page)
        write_page(Path(path), page)
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "trained": None}


ROW_SOURCES = ("source", "validation_source", "test_source", "transfer_set")
"""Keys of ``data`` in a run's config that a warm start does not use."""


def fit(
    table: Any,
    /,
    target: str | Sequence[str] | None = None,
    *,
    validation: Any = None,
    test: Any = None,
    warm_start: Model | str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    time_limit: float | None = None,
    **config: Any,
) -> tuple[Model, FitResult]:
    """Train on a table; return the model with the weights of its best epoch, and the result.

    The weights are equal, bit by bit, to the weights of ``mlpengine init`` and ``mlpengine train``.
    Keys that are given here replace the keys that init chooses.  No file is written; `Model.save`
    writes the model.  ``training={"folds": None}`` trains a single network, which takes less time.

    Args:
        table: a data frame, a mapping of columns to values, a list of rows, a file name, or the
            name of a data set of the package.
        target: the column to predict, or a list of columns.  Classes that are texts in a data
            frame stay texts, such as "1".
        validation: a separate table, instead of a share of `table`.
        test: a separate table for the test, instead of a share of `table`.
        warm_start: a model or a run directory (fine-tuning).  Training begins with the weights,
            preprocessing and loss of this model.  Settings are taken from the run directory, unless
            `config` gives them.
        callbacks: callbacks of the training loop.
        progress: whether to show progress on stderr; by default in a terminal and in a notebook.
        time_limit: maximum seconds from the call to the end of training; at least one epoch is
            trained.  If the limit ends training, ``result.ending`` is ``time``.  Measuring the best
            epoch takes further time.
        config: the sections of a config by name, such as ``model={"hidden": [32]}``,
            ``optimizer="adamw"`` or ``training={"epochs": 20}``.  `table` and `target` replace
            ``data.source`` and ``data.target``.

    >>> model, result = fit("penguins", seed=1, training={"epochs": 20, "batch_size": 16})
    >>> sorted(result.metrics["test"]), result.metrics["test"]["accuracy"] > 0.9
    (['accuracy', 'loss', 'macro_f1'], True)
    >>> model.predict("penguins")[:2].tolist()
    ['Adelie', 'Adelie']

    Raises: ConfigError with every unknown or wrong key; DataError for a table that cannot be
    learned; NumericalError if training fails.
    """
    until = inf
    if time_limit is not None:
        until = perf_counter() + POSITIVE.check("fit: time_limit", time_limit)
    given = {"validation": validation, "test": test}
    model = warm_start if isinstance(warm_start, Model) else None
    if warm_start is not None and model is None:
        path = checked_path(warm_start, "fit: warm_start")
        if is_run(path):
            own = load_config(resolved_config(path)).document.data
            config = as_config(config)
            kept = {k: v for k, v in own["data"].items() if k not in ROW_SOURCES}
            fill_missing(config, {**own, "data": kept})
        model = load(path)
    if model is not None and config.get("loss") is None:
        config = {**config, "loss": model.plain_loss}
    with Progress(progress) as shown:
        shown.stage("reading the table")
        file, tables, decided, warned = _config(table, target, given, config, model=model)
        data = loaded_data(file, tables, warm_start=model)
        shown.stage("preparing the networks")
        trainer = trainer_of(data, model)
        fitted = trainer.fit([*(callbacks or ()), shown], until)
        shown.stage("evaluating the weights of the best epoch")
        trained, result = _measured(data, trainer, fitted, decided, warned)
        result.verdicts.settings = as_config(config)
        return trained, result


def check(table: Any, /, target: str | Sequence[str] | None = None, **config: Any) -> "TableCheck":
    """Return problems of a table before training, as ``mlpengine check`` does.

    `Model.check` compares new rows with the rows that trained a model.

    Args:
        table: see `fit`.
        target: see `fit`; leaks are found only if the target is given.
        config: sections of a config by name (see `fit`).

    >>> check("penguins")
    TableCheck(344 rows, 7 columns, 0 dropped, 0 warnings)

    Raises: ConfigError and DataError as `fit`.
    """
    file, tables, *_ = _config(table, target, {}, config, name="check")
    return TableCheck.of(file, *read_source(file, table=tables.get("train")))


def distill(
    table: Any,
    /,
    target: str | Sequence[str] | None = None,
    *,
    predict: Model | str | os.PathLike[str] | Predict,
    made: int | None = None,
    validation: Any = None,
    test: Any = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **config: Any,
) -> tuple[Model, FitResult]:
    """Train a small network to predict what a teacher predicts; return the model and the result.

    The student learns the teacher's numbers or probabilities for the rows of the table, and for
    synthetic rows: rows of the table with some values of a near row.  ``result.spreads`` has the
    metrics of the teacher, and of a network of the same size that learned the table's targets.
    These metrics are for test rows or, without test rows, for validation rows.

    A student has intervals or prediction sets if its teacher is a model that has them.  If the
    teacher is a function, they need validation rows that the function has not learned.

    Args:
        table: the rows that the teacher learned, in any form that `fit` accepts.
        target: the column to predict, or a list of columns.
        predict: the teacher: a model, a run directory, or a function.  A function gets rows without
            targets, as a data frame of the type of `table` (else a mapping of columns to arrays).
            It returns numbers, or probabilities (rows, classes) of the sorted classes.
        made: number of synthetic rows; by default twenty for each training row, at most 100,000.
        validation: a separate table, instead of a share of `table`.
        test: a separate table for the test, instead of a share of `table`.
        callbacks: callbacks of the training loop.
        progress: whether to show progress on stderr (see `fit`).
        config: sections of a config by name (see `fit`), such as ``model={"hidden": [32]}``.

    >>> teacher, _ = fit("penguins", seed=1, training={"epochs": 20})
    >>> student, result = distill(
    ...     "penguins", predict=teacher, seed=1, made=500, model={"hidden": [16]}
    ... )
    >>> student.mlp.sizes[1:], sorted(result.spreads["test"])
    ((16, 3), ['direct', 'teacher'])

    Raises: as `fit`; UsageError for predictions that are not finite, or have a wrong shape.
    """
    if made is not None:
        made = Limits(at_least=0, whole=True).check("distill: made", made)
    teacher = load(os.fspath(predict)) if isinstance(predict, str | os.PathLike) else predict
    if not isinstance(teacher, Model) and not callable(teacher):
        raise UsageError(
            f"distill: predict must be a model, a run or a function (got {quoted(predict)}); write "
            "mlpengine.distill(table, target='price', predict=model)"
        )
    given = {"validation": validation, "test": test}
    one = as_config(config)
    if isinstance(teacher, Model) and target is None and "target" not in one.get("data", {}):
        target = teacher.target
    one.setdefault("training", {})["folds"] = None
    if validation is None:
        one.setdefault("data", {}).setdefault("split", {}).setdefault("validation", 0.0)
        one["training"].setdefault("early_stopping", None)
    file, tables, *_ = _config(table, target, given, one)
    data = loaded_data(file, tables)
    frames = {"train": table, **{name: rows for name, rows in given.items() if rows is not None}}
    if "drop" not in one.get("data", {}) and file.config.data.drop:
        file = _with_columns_of(Teacher(teacher, data, frames))
        data = loaded_data(file, tables)
    own = {name: one[name] for name in STUDENT_SECTIONS if name in config}
    sections = student_sections(data.tables.rows["train"])
    drop_rates(sections, own.get("optimizer"))
    fill_missing(own, sections)
    data = replace(data, file=checked_sections({**file.document.data, **own}))
    with Progress(progress) as shown:
        shown.stage("predicting training rows and synthetic rows")
        data = replace(data, given=Teacher(teacher, data, frames).transfer_set(made))
        trainer = trainer_of(data)
        fitted = trainer.fit([*(callbacks or ()), shown])
        shown.stage("evaluating the weights of the best epoch")
        return _measured(data, trainer, fitted, [], [])


def _with_columns_of(teacher: Teacher) -> ConfigFile:
    """Return a student's config that keeps the columns its teacher reads, except text columns."""
    file, table = teacher.data.file, teacher.data.tables.parts["train"][0]
    drop = list(file.config.data.drop)
    for name in teacher.reads(drop):
        if kind_of(table[name]) in ("text", "mixed", "empty"):
            text = "warning: distill: column %r, of texts that hardly repeat, is left out, but %s"
            _log.warning(text, name, "the teacher's predictions change with it")
        else:
            drop.remove(name)
    return checked_sections(
        {**file.document.data, "data": {**file.document.data["data"], "drop": drop}}
    )


def _measured(
    data: LoadedData, trainer: Trainer, fitted: Fitted, decided: list[str], warned: list[str]
) -> tuple[Model, FitResult]:
    """Measure a training; return the model and the result of `fit`."""
    beside = data.transfer.beside if data.transfer else None
    file = data.file
    with trainer.pinned():
        measured = measure(fitted, data.parts, data.folds, blocks=data.blocks, beside=beside)
        if fitted.diagnostics:
            fitted.diagnostics.core.baseline_score = linear_comparison(data, fitted.mean)
        of_run = fitted.verdicts()
    of_columns = column_verdicts(file, data.tables)
    of_data = [*cell_verdicts(file, data.tables), *of_columns]
    model = data.recorded(fitted.model(data.tables.preprocessor), measured)
    source = data.tables.parts["train"][0].source
    told = [*(f"{source}: {line}" for line in warned), *data.loss_remarks]
    return model, FitResult(
        **vars(fitted.result),
        metrics=measured.metrics,
        spreads=measured.spreads,
        remarks=[*dict.fromkeys([*data.tables.remarks, *told, *map(str, of_columns)])],
        verdicts=merged_verdicts(file, of_data, of_run, measured),
        decided=decided,
        trained=FitParts(data, model, fitted, measured.last),
    )


def loaded_data(
    file: ConfigFile,
    tables: Mapping[str, Table],
    fitted: Preprocessor | None = None,
    *,
    warm_start: Model | None = None,
    one_value: bool = False,
) -> LoadedData:
    """Return the data of a config; `tables` has parts in memory, such as "train".

    `fitted` and `warm_start` are the arguments `preprocessor` and `warm_start` of `load_data`.
    """
    if warm_start:
        fitted = warm_start.preprocessor
        file = with_preprocessing(file, fitted)
    source = read_source(file, table=tables.get("train"), fitted=fitted)
    own = {part: table for part, table in tables.items() if part != "train"}
    read = read_tables(file, source, fitted, own, one_value=one_value)
    return load_data(file, tables=read, warm_start=warm_start)


def _config(
    table: Any,
    target: str | Sequence[str] | None,
    given: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    model: Model | None = None,
    name: str = NAME,
) -> tuple[ConfigFile, dict[str, Table], list[str], list[str]]:
    """Return the checked config, the tables in memory by part, the decisions, and warnings.

    `model` is the model of a warm start.
    """
    _check_call(table, target, given, config, name)
    sections = as_config(config)
    own = sections.setdefault("data", {})
    if not isinstance(own, dict):
        raise UsageError(f"{name}: data must be a mapping of keys (got {quoted(own)})")
    if target is not None:
        own["target"] = as_config(target)
    categorical = dict.fromkeys(_names(own.get("categorical")))
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
    targets = _names(own.get("target"))
    features = [name for name in categorical if name not in targets]
    if features:
        own["categorical"] = features
    texts, infers = _texts(own, [*categorical], targets, model)
    tables: dict[str, Table] = {}
    decided: list[str] = []
    warned: list[str] = []
    detected = None
    if model is None and not own.get("stream"):
        with suppress(ConfigError, DataError):  # raised again by the check below or in training
            checked = checked_sections({"data": deepcopy(own)}, name)
            reading, data = reading_of(checked), checked.config.data
            how = reading.to_dict()
            if "train" in in_memory:
                tables["train"] = _in_memory(table, texts, targets, how, infers=infers)
                detected = Detected(tables["train"], reading, [])
            elif how:
                codes = codes_of(checked)
                whole = read_table(own["source"], labels=targets, codes=codes, **how)
                detected = Detected(whole, reading, [])
            else:
                group, codes = data.split.group, codes_of(checked)
                detected = detect(own["source"], target=data.target, group=group, codes=codes)
        if detected and detected.table.n_rows != 1:  # the split refuses a single row
            try:
                facts = None
                if (history := history_of(checked)).names:
                    whole = history.extended(detected.table)
                    facts = TableCheck.of(checked, whole, data.target).facts
                decided, warned = complete_config(sections, detected, features, facts)
            except DataError:
                checked_sections(sections, name)  # errors of the settings come first
                raise
    file = checked_sections(sections, name)
    how = reading_of(file).to_dict()
    known, how["numbers"] = _columns_by_kind(model, detected.table if detected else None)
    texts += known
    for part, rows in in_memory.items():
        if part not in tables:
            own_infers = infers and part == "train"
            source = "table" if part == "train" else part
            tables[part] = _in_memory(rows, texts, targets, how, source, infers=own_infers)
    warned += _equal_numbers(tables.get("train"), targets, infers=infers)
    warned += _remarks(in_memory)
    return file, tables, decided, warned


def _columns_by_kind(model: Model | None, table: Table | None) -> tuple[list[str], list[str]]:
    """Return the columns of texts in a model or in the training table, and the table's others."""
    if model:
        return model.preprocessor.text_columns, []
    kinds = {name: table[name].kind for name in table.names} if table else {}
    return [n for n in kinds if kinds[n] == "text"], [n for n in kinds if kinds[n] != "text"]


def _equal_numbers(table: Table | None, targets: Sequence[str], *, infers: bool) -> Iterator[str]:
    """Yield and log a warning for each column where two texts are read as one number.

    Targets are left out if a setting states the task.
    """
    for name, texts in table.number_texts.items() if table else ():
        key = "data.task: classification" if name in targets else f"data.categorical: [{name}]"
        if texts and (infers or name not in targets):
            line = one_number(name, texts, f"set {key}")
            _log.warning("warning: table: %s", line)
            yield line


def _remarks(in_memory: Mapping[str, Any]) -> Iterator[str]:
    """Yield a remark for each column of durations."""
    for name, kind in time_columns(in_memory.get("train", {})).items():
        if kind.startswith(("timedelta", "duration")):
            yield f"column {name!r}: durations are read in seconds"


def _names(given: Any) -> list[str]:
    """Return a name or names as a list; other values are refused later."""
    return [given] if isinstance(given, str) else given if isinstance(given, list) else []


def _texts(
    data: Mapping[str, Any], categorical: list[str], targets: list[str], model: Model | None
) -> tuple[list[str], bool]:
    """Return the columns in memory that stay text, and whether the target's texts decide it.

    A model of a warm start with numbers as classes needs numbers.
    """
    if model and not any(isinstance(label, str) for label in model.preprocessor.classes):
        return [name for name in categorical if name not in targets], False
    task = data.get("task", "auto")
    texts = [*categorical, *(targets if task == "classification" else ())]
    return texts, task in ("auto", None) and "event" not in data and len(targets) == 1


def _in_memory(
    rows: Any,
    texts: list[str],
    targets: Sequence[str],
    how: Mapping[str, Any],
    source: str = "table",
    *,
    infers: bool,
) -> Table:
    """Return rows in memory as a table; the columns `texts` stay text.

    If it `infers` the task, a target of texts with classes stays text, too, and joins `texts`.
    """
    table = as_table(rows, text=texts, labels=targets, source=source, **how)
    if (
        infers
        and targets[0] in table.number_texts
        and task_of([table[targets[0]]]) == "classification"
    ):
        texts += targets
        return as_table(rows, text=texts, labels=targets, source=source, **how)
    return table


def checked_sections(sections: dict[str, Any], name: str = NAME) -> ConfigFile:
    """Return the sections of a config as a checked config; messages begin with `name`.

    Raises: ConfigError listing every problem.
    """
    document = Document(name, data=sections)
    document.places[()] = (name, 0)
    return check_config(Path(name), document)


def _check_call(
    table: Any, target: Any, given: Mapping[str, Any], config: Mapping[str, Any], where: str
) -> None:
    """Raise UsageError for unknown arguments, tables without columns, and targets without names."""
    for key in config.keys() - Config.__dataclass_fields__.keys():
        meant = "target" if key in ("y", "label") else OTHER_NAMES.get(key, key)
        if where == NAME and (near := suggestion(meant, signature(fit).parameters)):
            raise UsageError(f"{where}: {key}: unknown argument{near}")
    for part, rows in given.items():
        if isinstance(rows, float | int):
            raise UsageError(
                f"{where}: {part} must be a table (got {rows}); for a share of the rows write "
                f"data={{'split': {{{part!r}: {rows}}}}}"
            )
    names = [target] if isinstance(target, str) or not isinstance(target, Sequence) else target
    matrix = isinstance(table, np.ndarray) and table.dtype.names is None
    if not matrix and isinstance(target, int | np.integer):
        raise UsageError(f"{where}: target must be text (got {target}); write '{target}'")
    if matrix or not all(name is None or isinstance(name, str) for name in names):
        raise UsageError(
            f"{where}: target must be the name of a column of the table (got {quoted(table)} and "
            f"{quoted(target)}); write {FIT_EXAMPLE}, or, for arrays, "
            "mlpengine.MlpRegressor().fit(x, y) or mlpengine.MlpClassifier().fit(x, y)"
        )


def as_config(value: Any) -> Any:
    """Return a Python value as plain values for a config: lists for tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(key): as_config(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | KeysView):
        return [as_config(item) for item in value]
    if isinstance(value, np.generic) or (hasattr(value, "tolist") and hasattr(value, "dtype")):
        return as_config(value.tolist())  # also an Index or Series of pandas
    return os.fspath(value) if isinstance(value, os.PathLike) else value
