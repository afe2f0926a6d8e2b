"""Read, check and split the table that a config names."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.reader import MAX_PROBLEMS, KeyPath
from mlpengine.core.errors import DataError, FormulaError
from mlpengine.core.files import pasted, read_mapping, similar_file
from mlpengine.core.spec import Array
from mlpengine.core.wording import cut, listed_labels, plural, quoted, suggestion
from mlpengine.data.features import Preprocessor, fold_rows, split_rows, task_of
from mlpengine.data.features.categories import level_shares
from mlpengine.data.features.checks import ONE_VALUE
from mlpengine.data.features.column_kinds import comma_text
from mlpengine.data.features.computed import (
    computed_column,
    computed_columns,
    row_filter,
    rows_that_fulfil,
    with_columns,
)
from mlpengine.data.features.duplicate_rows import DuplicateRows, count_copies, table_duplicates
from mlpengine.data.features.lags import RowHistory
from mlpengine.data.features.splits import SPLIT_PARTS, dividing_values
from mlpengine.data.features.targets import ClassTarget, row_weights
from mlpengine.data.features.thresholds import BY_CHANCE, COPIED, FEW_LEVELS, MAX_ONE_HOT
from mlpengine.data.tables import DATASETS, Table, load_dataset, read_table
from mlpengine.data.tables.dialect import CsvDialect, date_patterns
from mlpengine.data.tables.parsing import dates
from mlpengine.data.tables.progress import OnProgress
from mlpengine.data.tables.reader import store_table
from mlpengine.data.tables.rows import usable_rows
from mlpengine.ops import EntryLoss
from mlpengine.settings import FeatureSettings
from mlpengine.training.run_directory import ENVIRONMENT_FILE, RESOLVED

NOT_PREPROCESSING = {"target", "where", "weight", "class_weights"}
"""Feature settings that a warm start may change.  The target is checked elsewhere."""


class Tables(NamedTuple):
    """Rows by part, from one or more files, and the preprocessing fitted on the training rows."""

    preprocessor: Preprocessor
    parts: dict[str, tuple[Table, Array]]
    """Table and row indices of train, validation and test, without empty parts."""

    remarks: list[str]
    """Lines about rows that are left out, and warnings about columns and parts."""

    folds: Array | None = None
    """The fold of each training row, if there are `training.folds`."""

    weights: Array | None = None
    """The weight of each training row, if there are weights or duplicate rows."""

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: len(rows) for name, (_, rows) in self.parts.items()}

    def place(self, part: str, row: int) -> str:
        """Return the position of a part's row in its source: "line 17", or "row 16" for arrays."""
        table, rows = self.parts[part]
        return table.place(int(rows[row]))


def read_tables(
    file: ConfigFile,
    source: tuple[Table, list[str]] | None = None,
    preprocessor: Preprocessor | None = None,
    own: Mapping[str, Table] | None = None,
    *,
    one_value: bool = False,
) -> Tables:
    """Read and split the data of a config, and fit the preprocessing on the training rows.

    `source` is the result of an earlier `read_source`.  No preprocessor is fitted if one is given.
    The target of a new model may have one value only with `one_value`.
    `own` has tables in memory by part.  Rows without a target are left out.

    Raises: ConfigError for a file or column that does not exist; DataError for data that cannot be
    learned.
    """
    table, target = read_source(file, fitted=preprocessor) if source is None else source
    if preprocessor is not None:
        _check_target(file, preprocessor, target)
    tables = {"train": table, **(own or {})}
    for part in ("validation", "test"):
        path = getattr(file.config.data, f"{part}_source")
        if path and part not in tables:
            _check_other_rows(file, part)
            texts = [name for name in table.names if table[name].kind == "text"]
            tables[part] = _read(file, f"{part}_source", path, fitted=preprocessor, text=texts)
        if part in tables:
            if not tables[part].n_rows:
                raise DataError(f"{tables[part].source}: rows are needed (got none)")
            tables[part] = history_of(file).extended(tables[part])
        for name in target if part in tables else ():
            if name not in tables[part]:
                text = (
                    f"{tables[part].source} needs the target column {name!r}, by which the model "
                    "is measured; leave this file out, and predict its rows with the model"
                )
                raise file.wrong(("data", f"{part}_source"), text)
    usable = {
        name: usable_rows(
            other, target, rows_in_use(file, other), history_of(file).early_rows(other)
        )
        for name, other in tables.items()
    }
    kept = {
        name: np.arange(tables[name].n_rows) if one.rows is None else one.rows
        for name, one in usable.items()
    }
    rows = _split(file, table, target, kept["train"], own_files=set(tables))
    counted = len(rows["train"])
    rows["train"], weights, duplicates = _merge_repeated(file, table, target, rows["train"])
    one_value |= preprocessor is not None
    if preprocessor is None:
        preprocessor = preprocessor_of(file, target).fit(table, rows["train"])
    parts = {name: (table, rows[name]) for name in SPLIT_PARTS if len(rows[name])}
    own_parts = {name: (other, kept[name]) for name, other in tables.items() if name != "train"}
    parts |= own_parts
    remarks = [line for one in usable.values() for line in one.remarks]
    if copied := counted - len(rows["train"]):
        remarks.append(
            f"{table.source}: {plural(copied, 'repeated training row')}; equal rows "
            "become one row, with the sum of their row weights"
        )
    remarks += _odd_shares(file, parts, tables, table.source)
    remarks += _copied(file, (table, rows["train"]), own_parts)
    remarks += _constant(preprocessor, table, rows["train"], one_value=one_value)
    remarks += _many_classes(preprocessor, table, sum(map(len, rows.values())))
    remarks += _commas(preprocessor, table)
    remarks += _rare_texts(preprocessor, table)
    remarks += close_numbers(preprocessor, table.source)
    folds = _folds(file, table, target, rows["train"], duplicates)
    if folds is not None:
        remarks += _levels_by_chance(preprocessor, table, rows["train"])
    if isinstance(preprocessor.target, ClassTarget):
        remarks += _classes_without_rows(preprocessor.target, parts)
    return Tables(preprocessor, parts, remarks, folds, weights)


def _check_other_rows(file: ConfigFile, part: str) -> None:
    """Raise ConfigError if the file of a part is also the file of another part."""
    data, key = file.config.data, f"{part}_source"
    own = getattr(data, key)
    for other in ("source", "validation_source"):
        name = None if other == key else getattr(data, other)
        if name and (own == name or file.find(own) == file.find(name) is not None):
            raise file.wrong(("data", key), f"needs other rows than data.{other} (got {own})")


def _odd_shares(
    file: ConfigFile, parts: Iterable[str], own: Iterable[str], source: str
) -> Iterator[str]:
    """Yield a warning for each share of the split that gives no rows, or that has no effect."""
    given = file.document.data["data"].get("split") or {}
    shares = {"validation": file.config.validation_share, "test": file.config.data.split.test}
    for name, share in shares.items():
        if share and name not in parts:
            yield f"{source}: no {name} rows: there are too few rows of each class or group"
        elif share and name in own and name in given:
            yield f"{source}: data.split.{name} has no effect: another table has the {name} rows"


def _copied(
    file: ConfigFile, train: tuple[Table, Array], parts: Mapping[str, tuple[Table, Array]]
) -> Iterator[str]:
    """Yield a warning for each part with rows of its own that repeat training rows."""
    data = file.config.data
    for part, (other, rows) in parts.items() if not data.stream else ():
        names = [name for name in train[0].names if name in other and name not in data.drop]
        here, there = other.select(names).rows(rows), train[0].select(names).rows(train[1])
        copied, by_chance = count_copies(here, there, names)
        if copied - by_chance > COPIED * len(rows):
            yield (
                f"{other.source}: {copied} of {plural(len(rows), f'{part} row')} are equal to "
                "training rows, so their scores are too good"
            )


def _classes_without_rows(
    target: ClassTarget, parts: Mapping[str, tuple[Table, Array]]
) -> Iterator[str]:
    """Yield a warning for each part that has no row of a class."""
    for part, (table, rows) in parts.items():
        codes = {*target.encode(table.select(target.columns).rows(rows)).tolist()}
        if without := [one for k, one in enumerate(target.classes) if k not in codes]:
            yield f"{table.source}: no {part} row has the class {cut(listed_labels(without))}"


def _constant(fitted: Preprocessor, table: Table, rows: Array, *, one_value: bool) -> Iterator[str]:
    """Yield a warning for each target of numbers or labels that is constant in training rows.

    Raises: DataError if all are constant, unless `one_value` is true.
    """
    targets = fitted.target.columns if fitted.target and fitted.task != "survival" else []
    values = {name: table[name].values[rows] for name in targets}
    alike = [name for name, one in values.items() if np.nanmin(one) == np.nanmax(one)]
    if alike and alike == targets and not one_value:
        cell = table[alike[0]].text(int(rows[0]))
        count = plural(len(rows), "row")
        raise DataError(f"{table.where(alike[0])}: {ONE_VALUE} ({cell} in {count})")
    for name in alike:
        yield f"{table.source}: column {name!r}: {ONE_VALUE}"


def _many_classes(fitted: Preprocessor, table: Table, rows: int) -> Iterator[str]:
    """Yield a warning if classes are numbers that rarely repeat."""
    count = len(fitted.classes)
    if count > FEW_LEVELS and 2 * count > rows and not isinstance(fitted.classes[0], str):
        name = fitted.target.columns[0] if fitted.target else ""
        yield (
            f"{table.source}: column {name!r}: {plural(count, 'different number')} in "
            f"{plural(rows, 'row')}, read as classes; to predict numbers, set data.task: regression"
        )


def _commas(fitted: Preprocessor, table: Table) -> Iterator[str]:
    """Yield a warning for each column of numbers with commas that becomes categories."""
    names = [category.column for category in fitted.categories]
    if isinstance(fitted.target, ClassTarget):
        names += fitted.target.columns
    for name in names:
        if name not in fitted.options.categorical and (text := comma_text(table[name])):
            yield f"{table.source}: column {name!r}: {text}"


def _rare_texts(fitted: Preprocessor, table: Table) -> Iterator[str]:
    """Yield a warning for each category without a text in enough training rows."""
    for category in fitted.categories:
        if not category.levels:
            yield (
                f"{table.source}: column {category.column!r}: none of its texts is in "
                f"{plural(fitted.options.min_count, 'training row')}, so that all are one feature; "
                "list it under data.drop, or set data.min_count: 1"
            )


def _levels_by_chance(fitted: Preprocessor, table: Table, rows: Array) -> Iterator[str]:
    """Yield a warning for each category whose levels are frequent in training rows by chance."""
    for category in fitted.categories:
        column = table[category.column].take(rows)
        known, fresh = level_shares(column, fitted.options)
        if known - fresh > BY_CHANCE:
            fits = len(column.distinct()) <= MAX_ONE_HOT
            advice = "set data.max_levels: null and data.min_count: 1"
            yield (
                f"{table.source}: column {category.column!r}: {known:.0%} of the training rows "
                f"have a text with a feature of its own, but about {fresh:.0%} of new rows, so "
                "out-of-fold scores are too good; "
                f"{advice if fits else 'drop the column, or judge by test rows'}"
            )


def close_numbers(fitted: Preprocessor, source: str) -> Iterator[str]:
    """Yield a warning for each column of numbers that are too close together for float64."""
    ranges = fitted.fitted_numbers.ranges
    for name in fitted.fitted_numbers.constant:
        low, high = ranges.get(name, (0.0, 0.0))
        if low < high:
            yield (
                f"{source}: column {name!r} has no effect: its numbers are too close together "
                f"({low!r} to {high!r}); subtract {low!r} from all, or multiply them"
            )


def _check_target(file: ConfigFile, fitted: Preprocessor, target: list[str]) -> None:
    known = fitted.target.columns if fitted.target else []
    if known != target:
        text = f"the model of the warm start predicts {', '.join(map(repr, known))}"
        raise file.wrong(("data", "target"), f"{text} (got {', '.join(map(repr, target))})")


def with_preprocessing(file: ConfigFile, fitted: Preprocessor) -> ConfigFile:
    """Return the config of a warm start with the preprocessing settings of its model.

    Raises: ConfigError for a setting that is given and differs.
    """
    data, own = file.config.data, {}
    given = file.document.data["data"]
    target = fitted.target.columns if fitted.target else []
    built = preprocessor_of(file, target).options
    categories = {category.column for category in fitted.categories}
    for name in (one.name for one in fields(FeatureSettings) if one.name not in NOT_PREPROCESSING):
        value, known = getattr(data, name), getattr(fitted.options, name)
        accepted = [known, str(fitted.task)] if name == "task" else [known]
        if value in accepted or getattr(built, name) == known:
            continue
        if name not in given:
            own[name] = known
        elif name != "categorical" or not categories.issuperset(value):
            text = f"must be as in the model of the warm start ({known!r}, now {value!r})"
            raise file.wrong(("data", name), f"{text}; leave it out, or train anew")
    if fitted.history.names and data.split.time is None:
        own["split"] = replace(data.split, time=fitted.history.time)
    return replace(file, config=replace(file.config, data=replace(data, **own)))


def profiled_table(file: ConfigFile, table: Table) -> Table:
    """Return the rows of a table that `data.where` keeps, with the computed columns."""
    rows = usable_rows(table, [], rows_in_use(file, table)).rows
    columns = computed_columns(file.config.data.features, table.names)
    return with_columns(table if rows is None else table.rows(rows), columns, strict=False)


def rows_in_use(file: ConfigFile, table: Table) -> Array | None:
    """Return for each row whether `data.where` is true; None without `data.where`."""
    data = file.config.data
    if data.where is None:
        return None
    columns = computed_columns(data.features, table.names)
    formula = row_filter(data.where, [*table.names, *data.features])
    return rows_that_fulfil(table, formula, columns)


def preprocessor_of(file: ConfigFile, target: list[str]) -> Preprocessor:
    """Return a config's preprocessor, not fitted yet.  Raises: ConfigError, DataError."""
    config, data = file.config, file.config.data
    loss, transform, standardizes = config.loss, data.transform_target, data.standardize_target
    if isinstance(loss, EntryLoss) and not loss.takes_logs:
        if transform == "log":
            text = f"{loss.name} is not for logarithms: use none"
            raise file.wrong(("data", "transform_target"), text)
        transform = "none"
    if isinstance(loss, EntryLoss) and loss.log_link and standardizes:
        standardizes = False if loss.scaling is None else "mean"
    elif isinstance(loss, EntryLoss) and loss.has_target_range:
        standardizes = standardizes == "mean" and standardizes  # targets stay in the range
    power = loss.scaling if isinstance(loss, EntryLoss) and loss.log_link else None
    if data.exposure and power is None:
        text = f"needs loss poisson, tweedie or gamma (got {loss.name if loss else None})"
        raise file.wrong(("data", "exposure"), text)
    drop = tuple(dict.fromkeys([*data.drop, *filter(None, [data.split.group])]))
    features = {one.name: getattr(data, one.name) for one in fields(FeatureSettings)} | {
        "target": tuple(target),
        "drop": drop,
        "standardize_target": standardizes,
        "transform_target": transform,
        "exposure_power": power or 0.0,
    }
    time = data.split.time
    periods = [name for name in [time] if name and name not in drop]
    dtype = config.training.dtype
    reading = reading_of(file)
    return Preprocessor(**features, dtype=dtype, periods=periods, time=time, reading=reading)


def history_of(file: ConfigFile) -> RowHistory:
    """Return the columns that a config derives from earlier rows: lags and windows."""
    return RowHistory.of(file.config.data, file.config.data.split.time)


def reading_of(file: ConfigFile) -> CsvDialect:
    """Return the format in which a config's tables are read."""
    data = file.config.data
    return CsvDialect(**{one.name: getattr(data, one.name) for one in fields(CsvDialect)})


def codes_of(file: ConfigFile) -> list[str]:
    """Return the columns of categories and classes, where 3.1 and 3.10 are not one value."""
    data = file.config.data
    names = [*data.categorical, *(data.target if data.task == "classification" else ())]
    return [name for name in names if name != data.split.time]


def read_source(
    file: ConfigFile,
    progress: OnProgress | None = None,
    table: Table | None = None,
    fitted: Preprocessor | None = None,
) -> tuple[Table, list[str]]:
    """Return the training table of a config, and the names of its target columns.

    `progress` is called with the share of the file that is read.  A `table` in memory is used
    unchanged.  A `fitted` preprocessor determines which columns are texts.
    Raises: ConfigError for a file or column that does not exist; DataError.
    """
    if table is None:
        table = _read(file, "source", file.config.data.source, progress, fitted)
    known = list(fitted.target.columns) if fitted and fitted.target else None
    target = list(file.config.data.target) or known or _own_target(file, table)
    _check_columns(file, table)
    if fitted is None:
        _check_dates(file, table)
    history = history_of(file)
    table = history.extended(table)
    for name in history.names if fitted is None else ():
        if table[name].missing.all():
            raise DataError(
                f"{table.source}: column {name!r} is missing in every row, because no series has "
                "enough rows; give a smaller lag, window or ahead"
            )
    _check_formulas(file, table, target)
    return table, target


def digests(file: ConfigFile) -> dict[str, str]:
    """Return the SHA-256 of each file of a config by its name, as ``sha256sum`` prints it.

    Data sets of the package are left out, because the package's version determines them.  Streamed
    files are left out, too.
    """
    data = file.config.data
    names = [name for name in (data.source, data.validation_source, data.test_source) if name]
    known: dict[str, str] = {}
    for name in names if not data.stream else ():
        path = None if name in DATASETS else file.find(name)
        if path is not None and path.is_file():
            with path.open("rb") as stream:
                known[path.name] = file_digest(stream, "sha256").hexdigest()
    return known


def changed_files(run: Path, file: ConfigFile) -> list[str]:
    """Return the names of the data files that have changed since a run was trained."""
    try:
        before = dict(read_mapping(run / ENVIRONMENT_FILE)["data_sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return []  # a run of an older version, or a removed file
    return [name for name, now in digests(file).items() if before.get(name, now) != now]


def _read(
    file: ConfigFile,
    key: str,
    source: str,
    progress: OnProgress | None = None,
    fitted: Preprocessor | None = None,
    text: Sequence[str] | None = None,
) -> Table:
    """Read a table; `text` are the text columns of the training table, if it is known."""
    if source in DATASETS:
        return load_dataset(source)
    path = file.find(source)
    if path is None:
        beside, here = file.path.parent / source, Path.cwd() / source
        places = f"{beside}" if beside.absolute() == here else f"{beside} and {here}"
        known = ", ".join(sorted(DATASETS))
        text = f"there is no such file or data set (looked for {places}; data sets: {known})"
        resolved = file.path.with_name(RESOLVED)
        if file.path.name != RESOLVED and resolved.exists():  # the config of a run
            text += f"; write mlpengine train {pasted(resolved)}, a config with all paths"
        elif file.path.name == RESOLVED:
            text += "; put the file, or a link to it, there (evaluate and explain also take a FILE)"
        raise file.wrong(
            ("data", key), text + (similar_file(beside) or suggestion(source, DATASETS))
        )
    if not path.is_file():  # a run may read the file again
        what = "a directory; name a file in it" if path.is_dir() else "a pipe or a device"
        raise file.wrong(("data", key), f"must be a file (got {path}, {what})")
    how: dict[str, Any] = {"labels": file.config.data.target}
    if fitted:
        how |= fitted.read_arguments
    else:
        how |= {"codes": codes_of(file)} if text is None else {"text": text}
    how |= reading_of(file).to_dict()
    stream = file.config.data.stream
    if stream:
        skip = unread_columns(file)
        return store_table(path, Path(stream.directory), skip=skip, progress=progress, **how)
    return read_table(path, progress=progress, **how)


def unread_columns(file: ConfigFile) -> list[str]:
    """Return the columns that `data.stream` leaves out: dropped, and used by no other setting."""
    data = file.config.data
    if not data.stream:
        return []
    formulas = " ".join([*data.features.values(), data.where or ""])
    special = data.weight, data.exposure, data.event
    read = {*(data.target or ()), *special, data.split.group, data.split.time}
    return [name for name in data.drop if name not in read and name not in formulas]


def _own_target(file: ConfigFile, table: Table) -> list[str]:
    known = DATASETS.get(file.config.data.source)
    if known:
        return [known]
    names = table.names if len(table.names) <= 20 else [*table.names[:14], "...", *table.names[-5:]]
    text = f"this key is required (one of the columns {', '.join(names)})"
    raise file.wrong(("data", "target"), text)


def _check_columns(file: ConfigFile, table: Table) -> None:
    """Check that all columns in a config exist; report all missing columns together."""
    data = file.config.data
    named: list[tuple[KeyPath, str | None]]
    named = [(("data", key), getattr(data, key)) for key in ("weight", "exposure", "event")]
    for key in ("target", "drop", "categorical"):
        named += [(("data", key), name) for name in sorted(getattr(data, key) or [])]
    if isinstance(data.date_format, dict):
        named += [(("data", "date_format", name), name) for name in data.date_format]
    named += [(("data", "split", key), getattr(data.split, key)) for key in ("group", "time")]
    named += [
        (("data", key, name), name) for key in ("lags", "rolling") for name in getattr(data, key)
    ]
    named += [(("data", "series"), data.series)]
    planned = {*data.features, *history_of(file).names}
    for path, name in named:
        if name is None or name in table:
            continue
        if path != ("data", "drop") or name not in planned:
            if len(file.document.problems) >= MAX_PROBLEMS:  # counted, but not shown
                file.document.report(path, name)
                continue
            target: Sequence[str] = () if path == ("data", "target") else data.target
            free = [other for other in table.names if other not in target]
            hint = table.header_hint() or suggestion(name, free)
            parts = [part for part in re.split(r"[,;\s]+", name) if part]
            if len(parts) > 1 and {*parts} <= {*table.names}:
                hint = f"; write [{', '.join(parts)}]"
            hint = hint or f"; it has {', '.join(map(repr, table.names[:20]))}"
            text = f"{table.source} has no column {name!r}{hint}"
            file.document.report(path, text)
    for one in history_of(file).columns:
        if one.name in table:
            key = "lags" if one.function == "lag" else "rolling"
            text = f"a column is called {one.name!r} already; rename it in {table.source}"
            file.document.report(("data", key, one.source), text)
    file.document.check()


def _check_dates(file: ConfigFile, table: Table) -> None:
    """Check that `data.date_format` fits its columns; without names, at least one column."""
    forms = file.config.data.date_format
    for name, form in forms.items() if isinstance(forms, dict) else ():
        column, pattern = table[name], date_patterns(form)[""]
        if column.kind == "date" or column.missing.all():
            continue
        if name in codes_of(file):
            text = f"column {name!r} is a category or a class, and keeps its texts"
            file.document.report(("data", "date_format", name), f"{text}; leave out this line")
            continue
        missing = reading_of(file).missing
        row = next(
            (r for r in range(table.n_rows) if dates([column.text(r)], missing, pattern) is None), 0
        )
        text = f"must fit all values (got {form}, and {quoted(column.text(row))} in "
        file.document.report(("data", "date_format", name), f"{text}{table.where(name, row)})")
    if isinstance(forms, str) and all(column.kind != "date" for column in table.columns.values()):
        text = f"fits no column of {table.source} (got {forms}); correct it, or leave it out"
        file.document.report(("data", "date_format"), text)
    file.document.check()


def _check_formulas(file: ConfigFile, table: Table, target: list[str]) -> None:
    """Check every formula over columns; report all wrong formulas together."""
    data, known = file.config.data, table.names
    for name, text in data.features.items():
        try:
            column = computed_column(name, text, known)
            if set(column.reads) & {*target, data.event}:
                what = "event" if data.event in column.reads else "target"
                raise FormulaError(f"must not read the {what} (got {text!r})")
        except FormulaError as error:
            file.document.report(("data", "features", name), str(error))
        known = [*known, name]
    try:
        if data.where is not None:
            row_filter(data.where, known)
    except FormulaError as error:
        file.document.report(("data", "where"), str(error))
    file.document.check()


def _duplicates(
    file: ConfigFile, table: Table, target: list[str], rows: Array
) -> DuplicateRows | None:
    """Return which rows are duplicates; None if groups or times divide the rows."""
    data = file.config.data
    left_out = {*target, *data.drop, data.weight, data.event}
    names = [name for name in table.names if name not in left_out]
    if data.stream or data.exposure or data.split.group or data.split.time or not names:
        return None
    return table_duplicates(table, names, rows)


def _merge_repeated(
    file: ConfigFile, table: Table, target: list[str], rows: Array
) -> tuple[Array, Array | None, DuplicateRows | None]:
    """Merge repeated training rows; return the rows, their weights, and remaining duplicates."""
    duplicates, name = _duplicates(file, table, target, rows), file.config.data.weight
    target = [*target, *filter(None, [file.config.data.event])]
    if duplicates is None or not len(rows):
        return rows, None, duplicates
    targets = np.stack([table[one].values[rows] for one in target], axis=1)
    own = None if name is None else row_weights(table.select([name]).rows(rows), name)
    once = duplicates.learned_once(targets, own)
    if once is None:
        return rows, None, duplicates
    first, weights = once
    relative = weights if name else weights / weights.mean()
    return rows[first], relative, duplicates.of(first)


def _split(
    file: ConfigFile, table: Table, target: list[str], rows: Array, own_files: set[str]
) -> dict[str, Array]:
    config = file.config
    shares = {"validation": config.validation_share, "test": config.data.split.test}
    shares = {part: 0.0 if part in own_files else share for part, share in shares.items()}
    together = _kept_together(file, table, target, rows)
    duplicates = _duplicates(file, table, target, rows) if any(shares.values()) else None
    with file.errors_at("data", "split"):
        parts = split_rows(
            len(rows),
            (1.0 - sum(shares.values()), *shares.values()),
            seed=config.seed,
            duplicates=duplicates and duplicates.together,
            **together,
        ).parts()
    return {name: rows[numbers] for name, numbers in parts.items()}


def _folds(
    file: ConfigFile, table: Table, target: list[str], rows: Array, duplicates: DuplicateRows | None
) -> Array | None:
    count = file.config.training.folds
    if count is None:
        return None
    together = _kept_together(file, table, target, rows)
    with file.errors_at("training", "folds"):
        copied = duplicates and duplicates.together
        return fold_rows(len(rows), count, seed=file.config.seed, duplicates=copied, **together)


def _kept_together(
    file: ConfigFile, table: Table, target: list[str], rows: Array
) -> dict[str, Array]:
    """Return the labels, groups or times that divide the rows, as keywords of `split_rows`."""
    split, task = file.config.data.split, file.config.data.task
    table = table.select(filter(None, [*target, split.group, split.time])).rows(rows)
    for key, name in (("time", split.time), ("group", split.group)):
        if name:
            return {f"{key}s": dividing_values(table, key, name)}
    columns = [table[name] for name in target]
    classes = task == "classification" or (task == "auto" and task_of(columns) == "classification")
    return {"labels": columns[0].values} if classes else {}
