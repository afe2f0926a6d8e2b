"""From the data section of a config to the parts of a table, checked against its columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlpengine.config.load import ConfigFile
from mlpengine.config.reader import KeyPath
from mlpengine.data import (
    DATASETS,
    Preprocessor,
    Table,
    load_dataset,
    read_table,
    split_rows,
    task_of,
)
from mlpengine.data.splits import PARTS
from mlpengine.errors import DataError
from mlpengine.spec import Array
from mlpengine.wording import plural, suggestion


@dataclass(frozen=True)
class Tables:
    """Rows by part, of one table or of several files, and what was fitted on the training rows."""

    preprocessor: Preprocessor
    parts: dict[str, tuple[Table, Array | None]]
    """Table and row numbers (None: all) of train, validation, test; empty parts are left out."""

    without_target: dict[str, tuple[int, int]]
    """By file: how many rows have no target and are left out, and the number of all rows."""

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {
            name: table.n_rows if rows is None else len(rows)
            for name, (table, rows) in self.parts.items()
        }

    @property
    def remarks(self) -> list[str]:
        """A line for each file that has rows without a target."""
        return [
            f"{source}: {plural(count, 'row')} of {total:,} without a target left out"
            for source, (count, total) in self.without_target.items()
        ]

    def place(self, part: str, row: int) -> str:
        """Return where a row of a part stands in its source: "line 17", or "row 16" of arrays."""
        table, rows = self.parts[part]
        return table.place(row if rows is None else int(rows[row]))


def read_tables(
    file: ConfigFile,
    source: tuple[Table, list[str]] | None = None,
    preprocessor: Preprocessor | None = None,
) -> Tables:
    """Read and split the data of a config, and fit the preprocessing on the training rows.

    `source` is what `read_source` returned, if it was called before, and `preprocessor` a fitted
    one that is to be used instead. Rows without a target are left out.

    Raises: ConfigError for a file or column that does not exist; DataError for data that cannot be
    learned from.
    """
    table, target = read_source(file) if source is None else source
    tables = {"train": table}
    for part in ("validation", "test"):
        path = getattr(file.config.data, f"{part}_source")
        if path:
            tables[part] = _read(file, f"{part}_source", path)
    complete = {name: _with_target(other, target) for name, other in tables.items()}
    rows = _split(file, table, target, complete["train"], own_files=set(tables))
    if preprocessor is None:
        preprocessor = _preprocessor(file, target).fit(table, rows["train"])
    parts: dict[str, tuple[Table, Array | None]] = {
        name: (table, rows[name]) for name in PARTS if len(rows[name])
    }
    parts |= {name: (other, complete[name]) for name, other in tables.items() if name != "train"}
    without = {
        tables[name].source: (tables[name].n_rows - len(kept), tables[name].n_rows)
        for name, kept in complete.items()
        if kept is not None
    }
    return Tables(preprocessor, parts, without)


def _with_target(table: Table, target: list[str]) -> Array | None:
    """Return the rows that have every target, None if all have."""
    missing = np.zeros(table.n_rows, bool)
    for name in target:
        if name in table:
            missing |= table[name].missing
    if not missing.any():
        return None
    if missing.all():
        raise DataError(f"{table.source}: the target is missing in every row ({', '.join(target)})")
    return np.flatnonzero(~missing)


def _preprocessor(file: ConfigFile, target: list[str]) -> Preprocessor:
    data = file.config.data
    return Preprocessor(
        target,
        task=None if data.task == "auto" else data.task,
        drop=[*data.drop, *filter(None, (data.split.group, data.split.time))],
        categorical=data.categorical,
        weight=data.weight,
        standardize=data.standardize,
        missing=data.missing,
        standardize_target=data.standardize_target,
        min_count=data.min_count,
        max_levels=data.max_levels,
        clip=data.clip,
        dtype=file.config.training.dtype,
    )


def read_source(file: ConfigFile) -> tuple[Table, list[str]]:
    """Return the table that a config trains on and the names of its target columns.

    Raises: ConfigError for a file or column that does not exist; DataError.
    """
    table = _read(file, "source", file.config.data.source)
    target = file.config.data.target or _own_target(file, table)
    _check_columns(file, table)
    return table, target


def _read(file: ConfigFile, key: str, source: str) -> Table:
    if source in DATASETS:
        return load_dataset(source)
    path = file.find(source)
    if path is None:
        beside, here = file.path.parent / source, Path.cwd() / source
        places = f"{beside}" if beside.absolute() == here else f"{beside} and {here}"
        known = ", ".join(sorted(DATASETS))
        text = f"there is no such file or data set (looked for {places}; data sets: {known})"
        raise file.wrong(("data", key), text + suggestion(source, DATASETS))
    return read_table(path)


def _own_target(file: ConfigFile, table: Table) -> list[str]:
    known = DATASETS.get(file.config.data.source)
    if known:
        return [known]
    text = f"this key is required (one of the columns {', '.join(table.names[:20])})"
    raise file.wrong(("data", "target"), text)


def _check_columns(file: ConfigFile, table: Table) -> None:
    """Check every column that the config names; report all that do not exist at once."""
    data = file.config.data
    named: list[tuple[KeyPath, str | None]] = [(("data", "weight"), data.weight)]
    for key in ("target", "drop", "categorical"):
        named += [(("data", key), name) for name in getattr(data, key) or []]
    named += [(("data", "split", key), getattr(data.split, key)) for key in ("group", "time")]
    for path, name in named:
        if name and name not in table:
            text = f"{table.source} has no column {name!r}{suggestion(name, table.names)}"
            file.document.report(path, text)
    file.document.check()


def _split(
    file: ConfigFile, table: Table, target: list[str], kept: Array | None, own_files: set[str]
) -> dict[str, Array]:
    """Return the rows of each part; `kept` are those to divide, None for all."""
    config = file.config
    split, task = config.data.split, config.data.task
    shares = {
        part: 0.0 if part in own_files else getattr(split, part) for part in ("validation", "test")
    }
    table = table.select(filter(None, [*target, split.group, split.time]))
    if kept is not None:
        table = table.rows(kept)
    columns = [table[name] for name in target]
    classes = task == "classification" or (task == "auto" and task_of(columns) == "classification")
    stratify = split.stratify and classes and not (split.group or split.time)
    if split.time and table[split.time].missing.any():
        row = int(np.flatnonzero(table[split.time].missing)[0])
        raise DataError(
            f"{table.where(split.time, row)}: the time of a row is needed to split by time; fill "
            "it in, or delete the row"
        )
    try:
        parts = split_rows(
            table.n_rows,
            (1.0 - sum(shares.values()), *shares.values()),
            seed=config.seed,
            labels=columns[0].values if stratify else None,
            groups=table[split.group].values if split.group else None,
            times=table[split.time].values if split.time else None,
        ).parts()
    except DataError as error:
        raise file.wrong(("data", "split"), str(error)) from error
    return parts if kept is None else {name: kept[rows] for name, rows in parts.items()}
