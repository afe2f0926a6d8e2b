"""Turns tables into arrays for a network; fitted on training rows and stored with the model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic import ValidationError

from mlpengine.core.errors import DataError, FormulaError, UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural, quoted, suggestion
from mlpengine.data.features.categories import Category, write_one_hots
from mlpengine.data.features.column_kinds import FeatureKind, comma_text, kind_of
from mlpengine.data.features.computed import (
    ComputedColumn,
    FormulaColumn,
    computed_columns,
    row_filter,
    rows_that_fulfil,
    used_columns,
    with_columns,
)
from mlpengine.data.features.dataset import Dataset, TableFeatures
from mlpengine.data.features.lags import RowHistory
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.options import Options
from mlpengine.data.features.prepared import prepared_rows
from mlpengine.data.features.saved_state import STATE_VERSION, checked_state
from mlpengine.data.features.sources import Source, check_numeric, date_sources
from mlpengine.data.features.summary import SummaryState, summary_of_rows
from mlpengine.data.features.target_transform import suits_log
from mlpengine.data.features.targets import (
    Label,
    NumberTarget,
    Target,
    TimeTarget,
    check_target,
    exposures,
    fit_target,
    row_weights,
    target_from_state,
)
from mlpengine.data.tables.dialect import CsvDialect
from mlpengine.data.tables.parsing import dates
from mlpengine.data.tables.stored import stored_file
from mlpengine.data.tables.table import Column, Table
from mlpengine.formula import Expr
from mlpengine.settings.base import options_of
from mlpengine.settings.features import TaskName
from mlpengine.settings.structure import fault_of


class Preprocessor:
    """Fits on training rows, then turns any table with the same columns into arrays.

    Options are the fields of `mlpengine.data.features.options.Options`, including those of
    `FeatureSettings`.  `fit` and `transform` do not apply the filter `where` (see `rows_in_use`).

    With `encoding` "piecewise", numbers and dates with three or more values get a further feature
    for each bin: 0 below the bin, 1 above the bin, linear within the bin.  Below the first bin its
    feature decreases to -1, and above the last bin its feature increases to 2.  Bin edges are
    quantiles of the training rows; equal quantiles give fewer bins.
    After standard and robust scaling, `clip` "smooth" maps numbers into -3 to 3, so that no single
    value decides a prediction.  Lags and windows turn this clipping off.

    The features of a date are the time, the time since the previous date column, and the sine and
    cosine of the date's position in a day, a week and a year.  A position that is nearly equal in
    all rows is left out.

    The order of the features is: numbers, booleans and dates as in the table; features of bins;
    indicators of missing values; one-hot categories.  If a category with more than five codes
    explains little of the target, its one-hot features have a small value in place of 1
    (`Category.weigh`).  A number that is constant in training becomes 0 everywhere, unless
    `standardize` is "none".

    Raises: DataError for invalid options.
    """

    def __init__(self, target: str | Sequence[str] = (), **options: Any) -> None:
        known = options_of(Options)
        if unknown := options.keys() - known:
            name = min(unknown)
            said = suggestion(name, known) or f"; it has {', '.join(known)}"
            raise UsageError(
                f"Preprocessor: has no option {name!r} (got {quoted(options[name])}){said}; write "
                "Preprocessor(target='price', drop=['id'])"
            )
        given = {"target": target, **options}
        try:
            self.options = Options(**given)
        except ValidationError as error:
            raise DataError(f"Preprocessor{fault_of(error, given)}") from None
        self.history = RowHistory.of(self.options, self.options.time)
        self.kinds: dict[str, FeatureKind] = {}
        self.numbers: Numbers | None = None
        self.categories: list[Category] = []
        self.target: Target | None = None
        self.computed: list[ComputedColumn] = []
        self.row_filter: Expr | None = None
        self.operands: dict[str, FormulaColumn] = {}
        self.summary: SummaryState = {"rows": 0, "columns": {}}

    def fit(self, table: Table, rows: Array | None = None) -> "Preprocessor":
        """Fit on the given rows of a table, by default all; all rows determine the column kinds.

        Raises: DataError with every unusable column, or with the first bad value.
        """
        if not isinstance(table, Table):
            raise UsageError(
                f"Preprocessor.fit: table must be a Table (got {quoted(table)}); write "
                f"fit(read_table('data.csv')); mlpengine.fit takes data frames, too"
            )
        options = self.options
        self._read_formulas(table.names)
        table = with_columns(table, self.computed, rows)
        others = options.weight, options.exposure, options.event
        special = [*options.target, *filter(None, others)]
        named = [*special, *options.drop, *options.categorical, *options.periods]
        named += self.history.names
        table.require(named, "the config")
        skipped = {*special, *options.drop}
        skipped |= {n for n in options.periods if not self._periods(table, n, rows)}
        names = [name for name in table.names if name not in skipped]
        if not names:
            raise DataError(f"{table.source}: no feature column is left; drop fewer columns")
        chosen = options.categorical
        self.kinds = {n: "category" if n in chosen else kind_of(table[n]) for n in names}
        self._refuse_unusable(table)
        if not table.n_rows or (rows is not None and not len(rows)):
            raise DataError(f"{table.source}: there are no training rows")
        if options.task == "auto" and options.event is None:
            check_target(table, options.target)
        clip = options.clip == "smooth" and options.standardize in ("standard", "robust")
        clip = clip and not self.history.names  # a series may rise beyond its training rows
        self.numbers = Numbers.fit(
            table,
            self._sources(table, rows),
            options.standardize,
            options.missing,
            rows,
            clip,
            options.bins if options.encoding == "piecewise" else None,
        )
        picked = [name for name, kind in self.kinds.items() if kind == "category"]
        self.categories = [
            Category.fit(_part(table, [name], rows), name, options) for name in picked
        ]
        if options.target:
            part = _part(table, special, rows)
            log = options.transform_target == "log"
            self.target = self._fitted_target(part, log=log)
            truth = self.target.encode(part)
            if isinstance(self.target, TimeTarget):
                truth = truth[:, :1]  # a bound may be infinite
            for category in self.categories:
                category.weigh(_part(table, [category.column], rows), truth)
            if (
                options.transform_target == "auto"
                and not self.history.names  # log bounds predictions; a series may rise
                and not isinstance(self.target, TimeTarget)
                and self._log_is_better(table, rows)
            ):
                self.target = self._fitted_target(part, log=True)
        self.operands = {
            name: FormulaColumn.of(table[name]) for name in used_columns(self.computed)
        }
        computed = {column.name for column in self.computed}
        ranges = {n: r for n, r in self.numbers.ranges.items() if n not in computed}
        self.summary = summary_of_rows(table, rows, ranges, self.categories)
        return self

    def _fitted_target(self, part: Table, *, log: bool) -> Target:
        options = self.options
        return fit_target(
            part,
            options.target,
            None if options.task == "auto" else options.task,
            options.standardize_target,
            bounded=options.bound_predictions,
            log=log,
            exposure=options.exposure,
            event=options.event,
            classes=options.classes,
        )

    def _log_is_better(self, table: Table, rows: Array | None) -> bool:
        """Return whether a small model of a single target is better if it learns the logarithm."""
        if not isinstance(self.target, NumberTarget) or len(self.options.target) > 1:
            return False
        y = table[self.options.target[0]].values

        def features(some: Array) -> Array:
            picked = some if rows is None else rows[some]
            return np.asarray(self.transform(table, picked, targets=False).features)

        return suits_log(y if rows is None else y[rows], features)

    def _read_formulas(self, names: Sequence[str]) -> None:
        self.computed = computed_columns(self.options.features, names)
        for column in self.computed:
            wrong = {*self.options.target} & {*column.reads}
            if wrong:
                text = f"features: {column.name}: must not read the target ({column.text})"
                raise FormulaError(text)
        if self.options.where is not None:
            known = [*names, *(column.name for column in self.computed)]
            self.row_filter = row_filter(self.options.where, known)

    def rows_in_use(self, table: Table) -> Array | None:
        """Return the mask of rows where `where` is true; None without `where` or its columns."""
        if self.row_filter is None or not all(name in table for name in self.formula_columns):
            return None
        return rows_that_fulfil(self._own(table), self.row_filter, self.computed)

    @property
    def formula_columns(self) -> list[str]:
        """The columns that computed columns and `where` read."""
        filters = [] if self.row_filter is None else [self.row_filter]
        return used_columns(self.computed, *filters)

    def with_computed(self, table: Table) -> Table:
        """Append the computed columns to a table; a result that is not finite is missing."""
        return with_columns(self._own(table), self.computed, strict=False)

    def _own(self, table: Table) -> Table:
        """Return a table without the columns that computed columns replace."""
        names = {column.name for column in self.computed}
        return table.drop(name for name in table.names if name in names) if names else table

    def _refuse_unusable(self, table: Table) -> None:
        problems = []
        for name, kind in self.kinds.items():
            column = table[name]
            if kind == "text":
                levels, comma = len(column.distinct()), comma_text(column)
                problems.append(
                    f"{table.where(name)}: {plural(levels, 'different text')} in "
                    f"{plural(table.n_rows, 'row')} cannot be learned from; "
                    "list the column under data.drop or data.categorical"
                    f"{f'; {comma}' if comma else ''}"
                )
            elif kind == "mixed":
                try:
                    check_numeric(table, name)
                except DataError as error:
                    problems.append(str(error))
        if problems:
            raise DataError("\n".join(problems))

    def _periods(self, table: Table, name: str, rows: Array | None) -> list[Source]:
        """Return the periods of a date that fit into the time span of the training rows."""
        if table[name].kind != "date" or name in self.options.categorical:
            return []
        values = table[name].values if rows is None else table[name].values[rows]
        known = values[~np.isnan(values)]
        span = np.ptp(known) if len(known) else 0.0
        return [s for s in date_sources(table, [name]) if s.part and span >= s.length]

    def _sources(self, table: Table, rows: Array | None) -> list[Source]:
        dates = [name for name, kind in self.kinds.items() if kind == "date"]
        only = {n: self._periods(table, n, rows) for n in self.options.periods if n in self.kinds}
        by_column = {name: only.get(name) or [Source(name)] for name in self.kinds}
        for source in date_sources(table, dates):
            if source.minus or (source.part and source.column not in only):
                by_column[source.column].append(source)
        return [
            source
            for name, kind in self.kinds.items()
            if kind != "category"
            for source in by_column[name]
        ]

    def transform(
        self, table: Table, rows: Array | None = None, *, targets: bool = True
    ) -> Dataset:
        """Return the arrays of the given rows of a table, by default all.

        Columns may be in any order; further columns are ignored.  Target and weights are None if
        the table lacks their columns, or if `targets` is False.

        Raises: DataError with the missing columns, or with the first unusable value.
        """
        table = self._checked(table, rows)
        picked = [category.column for category in self.categories]
        part = _part(table, picked + (self.target_columns(table) if targets else []), rows)
        n_rows = table.n_rows if rows is None else len(rows)
        features = np.empty((n_rows, self.n_features), self.options.dtype)
        self._write(table, [category.encode(part) for category in self.categories], features, rows)
        return Dataset(features, *self._targets(part))

    def features_of(self, table: Table) -> TableFeatures:
        """Return the features of all rows of a table, computed when they are read.

        Raises: DataError as `transform`; a bad number raises only when its row is read.
        """
        return self._features_of(self._checked(table, None))

    def on_demand(self, table: Table) -> Dataset:
        """Return the same as `transform` for all rows, but take the features from `features_of`.

        Raises: as `features_of`.
        """
        table = self._checked(table, None)
        return Dataset(self._features_of(table), *self._targets(table))

    def _features_of(self, table: Table) -> TableFeatures:
        codes = [category.encode(table) for category in self.categories]
        shape = table.n_rows, self.n_features

        def write(rows: range, out: Array) -> None:
            self._write(table, [own[rows.start : rows.stop] for own in codes], out, rows)

        return TableFeatures(write, shape, np.dtype(self.options.dtype))

    def _checked(self, table: Table, rows: Array | None) -> Table:
        """Append the computed columns to a table, and check that no training column is missing."""
        table = self._own(table)
        table.require(self.columns, "the model", taken=self.options.target)
        table = with_columns(table, self.computed, rows)
        self._check_kinds(table)
        return table

    def _write(
        self, table: Table, codes: Sequence[Array], out: Array, rows: Array | range | None
    ) -> None:
        """Write the features of the given rows; `codes` has their codes, an array per category."""
        numbers = self.fitted_numbers
        width = numbers.width
        numbers.encode(table, out[:, :width], rows)
        if self.categories:
            write_one_hots(self.categories, codes, out[:, width:])

    def unknown_texts(self, table: Table) -> dict[str, Counter[str]]:
        """Return, for each column, the texts that are not levels and their number of rows."""
        table.require(self.columns, "the model", taken=self.options.target)
        each = {c.column: c.unknown_texts(table) for c in self.categories}
        return {column: texts for column, texts in each.items() if texts}

    def stream(
        self,
        table: Table,
        rows: Array | None = None,
        *,
        batch_size: int,
        window: int = 64,
    ) -> Dataset:
        """Do the same as `transform`, but write the features to a file beside the stored columns.

        At most `window` blocks of 1 MB of this file are in memory.

        Raises: DataError if the columns of the table are not stored in a file.
        """
        if stored_file(table) is None:
            raise DataError(
                f"{table.source}: only CSV, Parquet and Feather files can be streamed; set "
                "stream to false"
            )
        table.require(self.columns, "the model", taken=self.options.target)
        names = dict.fromkeys([*self.columns, *used_columns(self.computed)])
        features = prepared_rows(
            table.select(names),
            rows,
            self.state_dict(),
            lambda part: np.asarray(self.transform(part, targets=False).features),
            self.n_features,
            window=window,
            batch_size=batch_size,
        )
        return Dataset(features, *self._targets(_part(table, self.target_columns(table), rows)))

    def _check_kinds(self, table: Table) -> None:
        kinds: dict[str, str] = {name: one.kind for name, one in self.operands.items()}
        for name, kind in (kinds | self.kinds).items():
            column = table[name]
            if kind == "date" and (row := self._row_without_date(name, column)) is not None:
                raise DataError(
                    f"{table.where(name, row)}: a date is needed, in the format of training "
                    f"({quoted(column.text(row))}); correct the value, or leave it empty"
                )
            if kind == "category" or column.kind == "text":
                continue
            if (kind == "date") != (column.kind == "date") and not column.missing.all():
                wanted = "a date" if kind == "date" else "a number"
                row = int(np.flatnonzero(~column.missing)[0])
                raise DataError(
                    f"{table.where(name, row)}: {wanted} is needed, as in training "
                    f"({quoted(column.text(row))})"
                )

    def _row_without_date(self, name: str, column: Column) -> int | None:
        """Return the first row with a text that is not a date; None if all are dates."""
        if column.kind != "text":
            return None
        pattern = self.options.reading.date_pattern(name)
        is_odd = [dates([level], frozenset(), pattern) is None for level in column.levels]
        rows = np.flatnonzero(np.array([*is_odd, False])[column.values])
        return int(rows[0]) if len(rows) else None

    def target_columns(self, table: Table) -> list[str]:
        """Return the table's weight and exposure columns, and the target columns if all exist."""
        targets = self.target.reads if self.target else []
        columns = list(targets) if all(name in table for name in targets) else []
        weights = self.options.weight, self.options.exposure
        return columns + [name for name in weights if name is not None and name in table]

    def _targets(self, part: Table) -> tuple[Array | None, Array | None]:
        encoded = weights = None
        if self.target is not None and all(name in part for name in self.target.reads):
            encoded = self.target.encode(part)
            if encoded.dtype.kind == "f":
                encoded = encoded.astype(self.options.dtype)
        if self.options.weight is not None and self.options.weight in part:
            weights = row_weights(part, self.options.weight)
        if self.options.exposure is not None and self.options.exposure in part:
            own = exposures(part, self.options.exposure) ** self.options.exposure_power
            weights = own if weights is None else own * weights
        return encoded, None if weights is None else weights.astype(self.options.dtype)

    @property
    def fitted_numbers(self) -> Numbers:
        """The features that are numbers.  Raises: DataError before `fit`."""
        if self.numbers is None:
            raise DataError(
                "preprocessor: fit must be called first; write preprocessor.fit(table), then "
                "preprocessor.transform(table)"
            )
        return self.numbers

    @property
    def task(self) -> TaskName | None:
        """The task, None without a target."""
        return self.target.task if self.target else None

    @property
    def classes(self) -> list[Label]:
        """The label of each class index; empty unless the task is classification."""
        return list(getattr(self.target, "classes", []))

    @property
    def columns(self) -> list[str]:
        """The columns that `transform` needs."""
        computed = {column.name for column in self.computed}
        return [
            name for name in dict.fromkeys([*self.kinds, *self.operands]) if name not in computed
        ]

    @property
    def table_columns(self) -> list[str]:
        """The columns that a table needs before `RowHistory.extended` adds derived columns."""
        derived = {*self.history.names}
        own = [name for name in self.columns if name not in derived]
        return list(dict.fromkeys([*own, *self.history.reads]))

    @property
    def text_columns(self) -> list[str]:
        """Categories that were text in training; `read_table(text=...)` reads them as text."""
        return [category.column for category in self.categories if category.text]

    @property
    def read_arguments(self) -> dict[str, Any]:
        """Arguments for `read_table` to read other tables as the training table was read."""
        texts = self.text_columns
        numbers = [name for name in self.kinds if name not in texts]
        numbers += [*self.history.sources, *{*self.formula_columns} - {*texts}]
        if any(isinstance(label, str) for label in self.classes):
            texts = [*texts, *self.options.target]
        dialect = self.options.reading.to_dict()
        return {"text": texts, "numbers": numbers, **dialect}

    @property
    def used_columns(self) -> dict[str, Any]:
        """Arguments for `read_table` and `as_table` to leave out columns that are not used."""
        own, history = [*self.columns, *self.formula_columns], self.history
        targets = self.target.reads if self.target else []
        others = filter(None, (self.options.weight, self.options.exposure, *history.reads))
        kept = [name for name in own if name not in history.names]
        return {"kept": kept, "optional": [*targets, *others]}

    @property
    def feature_names(self) -> list[str]:
        """The name of each column of the feature matrix."""
        one_hot = [name for c in self.categories for name in c.names]
        return self.fitted_numbers.names + one_hot

    @property
    def n_features(self) -> int:
        """Number of columns of the feature matrix."""
        one_hot = sum(category.size for category in self.categories)
        return self.fitted_numbers.width + one_hot

    @property
    def n_outputs(self) -> int:
        """Number of outputs for the target: its classes or columns; 0 without a target."""
        return self.target.n_outputs if self.target else 0

    @property
    def constant(self) -> list[str]:
        """Features that did not vary in training and are 0 everywhere."""
        return self.fitted_numbers.constant

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, ready for JSON; JSON keeps every float exactly."""
        options = vars(self.options)
        return {
            "version": STATE_VERSION,
            "options": {
                **{k: list(v) if isinstance(v, tuple) else v for k, v in options.items()},
                "features": [[name, text] for name, text in self.options.features.items()],
                "reading": self.options.reading.to_dict(),
            },
            "kinds": [[name, kind] for name, kind in self.kinds.items()],
            "numbers": self.fitted_numbers.state_dict(),
            "categories": [category.state_dict() for category in self.categories],
            "target": self.target.state_dict() if self.target else None,
            "reads": self.formula_columns,
            "operands": [[name, asdict(operand)] for name, operand in self.operands.items()],
            "summary": self.summary,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Preprocessor":
        """Return a fitted preprocessor from a `state_dict`.

        Raises: CheckpointError for a state that `state_dict` did not write; DataError for wrong
            options.
        """
        state = checked_state(state)
        options = state["options"]
        preprocessor = cls(
            **{**options, "reading": CsvDialect.from_dict(options.get("reading", {}))}
        )
        preprocessor.kinds = dict(state["kinds"])
        preprocessor.numbers = Numbers.from_state(state["numbers"])
        preprocessor.categories = [
            Category.from_state(one, preprocessor.options.reading.missing)
            for one in state["categories"]
        ]
        if state["target"] is not None:
            preprocessor.target = target_from_state(state["target"])
        preprocessor._read_formulas(state["reads"])
        operands = state["operands"].items()
        preprocessor.operands = {name: FormulaColumn(**one) for name, one in operands}
        preprocessor.summary = state["summary"]
        return preprocessor


def _part(table: Table, names: Sequence[str], rows: Array | None) -> Table:
    part = table.select(dict.fromkeys(names))
    return part if rows is None or not names else part.rows(rows)
