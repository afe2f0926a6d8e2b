"""From the data section of a config to the parts of a table, checked against its columns."""

from dataclasses import dataclass
from pathlib import Path

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
from mlpengine.wording import suggestion


@dataclass(frozen=True)
class Tables:
    """Rows by part, of one table or of several files, and what was fitted on the training rows."""

    preprocessor: Preprocessor
    parts: dict[str, tuple[Table, Array | None]]
    """Table and row numbers (None: all) of train, validation, test; empty parts are left out."""

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {
            name: table.n_rows if rows is None else len(rows)
            for name, (table, rows) in self.parts.items()
        }


def read_tables(file: ConfigFile) -> Tables:
    """Read and split the data of a config, and fit the preprocessing on the training rows.

    Raises: ConfigError for a file or column that does not exist; DataError for data that cannot be
    learned from.
    """
    data = file.config.data
    table, target = read_source(file)
    tables = {"train": table}
    for part in ("validation", "test"):
        source = getattr(data, f"{part}_source")
        if source:
            tables[part] = _read(file, f"{part}_source", source)
    preprocessor = Preprocessor(
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
    )
    rows = _split(file, table, target, own_files=set(tables))
    preprocessor.fit(table, rows["train"])
    parts: dict[str, tuple[Table, Array | None]] = {
        name: (table, rows[name]) for name in PARTS if len(rows[name])
    }
    parts |= {name: (other, None) for name, other in tables.items() if name != "train"}
    return Tables(preprocessor, parts)


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
    file: ConfigFile, table: Table, target: list[str], own_files: set[str]
) -> dict[str, Array]:
    config = file.config
    split, task = config.data.split, config.data.task
    shares = {
        part: 0.0 if part in own_files else getattr(split, part) for part in ("validation", "test")
    }
    columns = [table[name] for name in target]
    classes = task == "classification" or (task == "auto" and task_of(columns) == "classification")
    stratify = split.stratify and classes and not (split.group or split.time)
    try:
        found = split_rows(
            table.n_rows,
            (1.0 - sum(shares.values()), *shares.values()),
            seed=config.seed,
            labels=columns[0].values if stratify else None,
            groups=table[split.group].values if split.group else None,
            times=table[split.time].values if split.time else None,
        )
    except DataError as error:
        raise file.wrong(("data", "split"), str(error)) from error
    return found.parts()
