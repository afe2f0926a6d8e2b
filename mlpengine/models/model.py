"""A trained network, or several, with everything needed to predict from a table."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import chain, groupby, islice
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any, NotRequired

import numpy as np
from typing_extensions import TypedDict

from mlpengine.core.errors import (
    CheckpointError,
    DataError,
    MlpEngineError,
    NumericalError,
    UsageError,
)
from mlpengine.core.fields import POSITIVE, Limits
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.core.structure import check_keys, of_type
from mlpengine.core.wording import cut, label_text, plural, quoted
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.drift import NewRows
from mlpengine.data.tables import Column, Table, read_table
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.rows import usable_rows
from mlpengine.models.background import KEPT_ROWS, background_rows
from mlpengine.models.baselines import Guess, baseline_scores, by_pinball, compared_metrics
from mlpengine.models.calibration import (
    RESIDUALS,
    SET_CHANCES,
    SET_CLASSES,
    ClassSets,
    Residuals,
    checked_level,
)
from mlpengine.models.evaluate import Scorer
from mlpengine.models.explain import (
    DEPENDENCE_ROWS,
    GRID,
    PERMUTED_COLUMNS,
    dependence,
    feature_columns,
    importances,
    sensitive_columns,
)
from mlpengine.models.explanation import CURVES, EXPLAINED_ROWS, Explanation
from mlpengine.models.forward import Features
from mlpengine.models.members import NetworkMean, networks_text
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.row_predictor import RowPredictor
from mlpengine.models.shapley import (
    EVALUATIONS,
    MOST_PAIRS,
    MULTIPLICATIONS,
    RowExplanation,
    pairs_of,
    shapley_values,
)
from mlpengine.models.task import (
    CensoredTimes,
    Classification,
    Regression,
    Split,
    Task,
    Threshold,
    make_split,
    task_for,
)
from mlpengine.models.threshold import restored_threshold
from mlpengine.nn import NETWORKS, TabularNetwork
from mlpengine.nn.population import Population
from mlpengine.nn.safetensors_file import check_finite, read_tensors, write_tensors
from mlpengine.nn.saving import NETWORK_KEY
from mlpengine.ops import REGISTRY, Loss
from mlpengine.settings.structure import conform

if TYPE_CHECKING:
    from mlpengine.models.comparison import Comparison
    from mlpengine.models.drift_check import DriftCheck

MODEL_FILE = "model.safetensors"

POPULATIONS = "populations"
"""Key in a file.  The parameters of population k have names such as ``populations.k.weight``."""

SHOWN_OUTPUTS = 3
"""Number of outputs that the text of an explanation of a row shows."""

SHOWN_COLUMNS = 12
"""Number of columns that the text of a model lists."""

_log = logging.getLogger("mlpengine")


class TrainingRecord(TypedDict):
    """The training rows of a model, and its score; equal runs give equal records.

    `rows` has the number of rows of each part.  `metrics` are the finite metrics of `part`, to six
    digits.  `checksum` covers the rows of each part and the folds.
    """

    source: str
    seed: int
    folds: int | None
    rows: dict[str, int]
    part: str
    metrics: dict[str, float]
    checksum: NotRequired[int]
    warm_start: NotRequired[str]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """One or more networks with their preprocessing and their loss (a name and options).

    `predict`, `predict_proba` and `evaluate` take a table in any form: a data frame of pandas,
    polars or pyarrow; a mapping from names to columns; a list of rows, or a single row, as mappings
    from names to values; a path; or a matrix with the model's `columns` in order.  Named columns
    may be in any order, and further columns are ignored.  Any number of threads may call these
    methods.  A single network predicts a single row in memory in some tens of microseconds.

    With `populations`, the model has several networks, and the prediction is the mean of all
    networks' predictions; `mlp` is the first network.  The networks of a population have one
    architecture.  Networks are ordered by type, and `ensemble_weights` are the weights of the types
    in the mean.

    `residuals` are out-of-fold errors, scaled to the size of the mean's errors.  `sets` has the
    out-of-fold probabilities of the true classes.  `record` describes the training (a
    `TrainingRecord`, or empty).  With a `threshold`, one of two classes is predicted if its
    probability is above the threshold, instead of 0.5.  `background` has rows for `explain_row`, as
    values by column (`with_background`).  `Mlp.load` can read the file of a single network, too.
    """

    mlp: TabularNetwork
    preprocessor: Preprocessor
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    populations: Sequence[Population[TabularNetwork]] = ()
    residuals: Residuals | None = None
    ensemble_weights: tuple[float, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    sets: ClassSets | None = None
    threshold: Threshold | None = None
    background: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def networks(self) -> tuple[TabularNetwork, ...]:
        """All networks of the populations, or the single network."""
        return tuple(chain(*self.populations)) or (self.mlp,)

    def row_predictor(self) -> RowPredictor:
        """Return a predictor of single rows, with its own buffers."""
        by_architecture: Sequence[Sequence[TabularNetwork]] = self.populations or [self.networks]
        return RowPredictor(by_architecture, self.preprocessor, self.mean.combine)

    @property
    def task(self) -> Task:
        """The task, which turns outputs into predictions and metrics."""
        return task_for(self.preprocessor.target, self.plain_loss, self.threshold)

    def task_with(self, metrics: Sequence[str]) -> Task:
        """Return the task with further metrics.  Raises: UsageError for an unknown metric."""
        task = self.task
        for name in metrics:
            task.watch(name)
        return task

    @property
    def columns(self) -> list[str]:
        """Columns that predictions need, in the order of a matrix."""
        return self.preprocessor.table_columns

    @property
    def target(self) -> list[str]:
        """Predicted columns."""
        return list(self.preprocessor.target.columns) if self.preprocessor.target else []

    @property
    def predicts(self) -> list[str]:
        """Names of the predicted numbers, such as claims_per_years; of classes, `target`."""
        task = self._task
        return task.target.names if isinstance(task, Regression) else self.target

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of the columns of `predict_proba`; empty for regression."""
        task = self.preprocessor.task
        return self.target if task == "multilabel" else list(self.preprocessor.classes)

    def predict(self, data: Any) -> Array:
        """Return the predicted label of each row, or predicted numbers in the target's units.

        Shapes: (rows,), or (rows, targets) for several targets.  A multi-label model predicts 0 or
        1 for each label.

        Raises: DataError for a table without a needed column, or with an unusable value.
        """
        predicted = self._task.predict(self.outputs(data))
        if isinstance(self._task, Classification):
            labels: Array = self._labels[predicted]
            return labels
        return predicted[:, 0] if predicted.shape[1] == 1 else predicted

    def predict_next(self, history: Any, row: Any = None) -> Array:
        """Return `predict` for the row that is ``data.ahead`` rows after the last of `history`.

        `history` is a table of earlier rows.  `row` has the other columns that the model reads, for
        the predicted row.  With ``data.series``, `row` also has the series; `row` may be a table
        with one row for each series.

        Raises: UsageError for a model without lags and windows; DataError as `predict`.
        """
        own = self.preprocessor.history
        if not own.names:
            raise UsageError("predict_next: needs a model with data.lags or data.rolling")
        before = self._read(history)
        if not before.n_rows:
            raise DataError("predict_next: history must have rows (got none)")
        rows = (
            Table({self.target[0]: Column(np.full(1, np.nan))}, "row")
            if row is None
            else self._read(row)
        )
        if row is None and own.series is not None:
            text = f"write predict_next(history, {{{own.series!r}: ...}})"
            raise UsageError(f"predict_next: needs the series to continue; {text}")
        return self.predict(own.next_rows(before, rows))

    def with_threshold(self, value: float) -> "Model":
        """Return the model with another threshold for the probability of the positive class.

        The positive class is the class of the current threshold, by default the second class.

        Raises: UsageError for a model without two classes, or for a value that is not from 0 to 1.
        """
        if not isinstance(self._task, Classification) or len(self.classes) != 2:
            raise UsageError(
                "threshold: needs a model of two classes (this one predicts "
                f"{self._facts()['predicts']})"
            )
        checked = Limits(at_least=0, at_most=1).check("threshold", value)
        return replace(self, threshold=(self.threshold or Threshold())._replace(value=checked))

    def predict_proba(self, data: Any) -> Array:
        """Return the probability of each of the `classes`, float64 (rows, classes).

        Raises: UsageError for a regression model; DataError as `predict`.
        """
        if isinstance(self._task, Regression):
            raise UsageError(
                f"predict_proba: a model of classes is needed (this one predicts numbers of "
                f"{', '.join(map(repr, self.target))})"
            )
        return self._task.predicted_numbers(self.outputs(data))

    def predict_columns(self, data: Any) -> dict[str, Array]:
        """Return all numbers that the loss predicts, (rows,) by name, in the target's units.

        Names are, for example, ``price_0.1`` and ``price_0.9`` for two quantiles, or ``price`` and
        ``price_std`` for mean and deviation.

        Raises: UsageError for a classification model; DataError as `predict`.
        """
        if not isinstance(self._task, Regression):
            raise UsageError(
                f"predict_columns: a model of numbers is needed (this one predicts classes of "
                f"{', '.join(map(repr, self.target))})"
            )
        return self._task.columns(self.outputs(data))

    def evaluate(
        self, data: Any, metrics: Sequence[str] = (), *, threshold: float | None = None
    ) -> dict[str, float]:
        """Return the loss and every metric of the task; `data` has the targets, too.

        `metrics` are further metrics with a number in their name, such as ``pinball_0.9``.
        `threshold` replaces the model's threshold, as in `with_threshold`.

        The loss is computed from standardized targets, without class weights and label smoothing;
        all other metrics are in the target's units.  Rows without a target are left out, with a
        warning in the log.

        Raises: DataError as `predict`, and for missing targets; UsageError for an unknown metric.
        """
        if isinstance(metrics, str) or not isinstance(metrics, Iterable):
            raise UsageError(
                f"evaluate: metrics must be a list (got {metrics!r}); write metrics=['r2']"
            )
        if threshold is not None:
            return self.with_threshold(threshold).evaluate(data, metrics)
        task = self.task_with(metrics)
        part = self._split(*self._usable("evaluate", data), on_demand=True)
        return self.scorer(task).run(self.forward(part.x), part, full=True)

    def explain(self, data: Any, *, curves: int = CURVES) -> Explanation:
        """Return which columns the predictions depend on, and how; `data` has the targets, too.

        The values of a column are permuted among the rows.  The importance of the column is the
        rise of the loss, and the fall of R2 or accuracy, with standard errors.  Up to `curves` of
        the most important columns get partial dependence.  Do not use training rows.

        Raises: DataError as `evaluate`, and for fewer than two rows.
        """
        curves = Limits(at_least=0, whole=True).check("explain: curves", curves)
        table, rows = self._usable("explain", data)
        table = table if rows is None else table.rows(rows)
        if table.n_rows < 2:
            raise DataError(
                f"explain: at least two rows are needed to permute values (got {table.n_rows})"
            )
        part = self._split(table, evenly_spaced(table.n_rows, EXPLAINED_ROWS))
        return self.explanation("data", part, self.forward, table, curves=curves)

    def explanation(
        self,
        part: str,
        rows: Split,
        forward: Callable[[Array], Array],
        table: Table,
        *,
        curves: int = CURVES,
        most: int = PERMUTED_COLUMNS,
        points: int = GRID,
        averaged: int = DEPENDENCE_ROWS,
    ) -> Explanation:
        """Return the result of `explain` for the encoded `rows` of a part.

        `forward` maps features to outputs (see `importances`).  At most `most` columns are
        permuted, chosen by `sensitive_columns`.  Curves of partial dependence have `points` points;
        each point is the mean over `averaged` rows of `table`.
        """
        columns = feature_columns(self.preprocessor)
        permuted = sensitive_columns(self.mean, rows.x, columns, most)
        with np.errstate(over="ignore", invalid="ignore"):  # large weights may give infinity
            ranked = importances(
                forward, self.scorer(self.task), rows, columns, permuted_columns=permuted
            )
            shown = [row.column for row in ranked if row.column in table and row.loss > 0]
            parts = self.forward, self.preprocessor, self.task, table
            drawn = [dependence(*parts, n, points=points, rows=averaged) for n in shown[:curves]]
        outputs = [*map(label_text, self.classes or self.target)]
        count, metric = len(set(columns)), self.task.headline[0]
        return Explanation(part, len(rows), metric, count, ranked, drawn, outputs)

    def explain_row(self, row: Any, background: Any = None) -> RowExplanation:
        """Return the contribution of each column to the prediction of one row.

        Contributions are Shapley values: the mean change of the prediction if the column's value in
        a background row is replaced by the value in `row`.  `background` is a table, such as the
        training rows.  By default, the rows that the model keeps are used (`with_background`).

        Raises: DataError as `predict`, for more or less than one row, and without background rows;
            UsageError for a model that keeps no rows.
        """
        table = self.table(row)
        if table.n_rows != 1:
            raise DataError(f"explain_row: one row is needed (got {table.n_rows:,})")
        self._warn_of(table)
        is_given = background is not None
        if not (is_given or self.background):
            raise UsageError("explain_row: the model keeps no rows; write background=table")
        rows = self.table(background if is_given else self.background)
        if not rows.n_rows:
            raise DataError("explain_row: background must have rows (got none)")
        rows = rows.rows(evenly_spaced(rows.n_rows, MOST_PAIRS))
        origin = f"{plural(rows.n_rows, 'row')} {'given' if is_given else 'of the model'}"
        columns, task, predict = feature_columns(self.preprocessor), self._task, self._numbers
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.features(table)
            parts = shapley_values(
                predict, x[0], self.features(rows), columns, evaluations=self._evaluations
            )
            (prediction,) = predict(x)
        names = [*dict.fromkeys(columns)]
        cells = self.preprocessor.with_computed(table)
        outputs = [*map(label_text, self.classes)]
        shown = [*range(min(len(prediction), SHOWN_OUTPUTS))]
        if isinstance(task, Regression):
            outputs = task.column_names
        elif isinstance(task, Classification):
            positive = (self.threshold or Threshold()).positive
            shown = [positive if len(outputs) == 2 else int(prediction.argmax())]
        contributions, errors, base = parts
        return RowExplanation(
            names,
            [cells[name].text(0) for name in names],
            outputs,
            prediction,
            base,
            contributions,
            errors,
            shown,
            origin,
        )

    def with_background(self, data: Any) -> "Model":
        """Return the model with rows for `explain_row` that are like the rows of a table.

        Their mean prediction is near the mean prediction for the table.  Their numbers come from
        other rows with similar ranks (`background_rows`).  With None, the model keeps no rows.
        """
        if data is None:
            return replace(self, background={})
        own = self.preprocessor
        count = pairs_of(len({*feature_columns(own)}), self._evaluations)
        texts = [name for name, kind in own.kinds.items() if kind == "category"]

        def predict(rows: Table) -> Array:
            return self._numbers(self.features(rows))

        with np.errstate(over="ignore", invalid="ignore"):
            table = self.table(data).select(own.columns)
            rows = background_rows(table, texts, predict, min(count, KEPT_ROWS))
        return replace(self, background=rows)

    def _numbers(self, x: Array) -> Array:
        return self._task.predicted_numbers(self.forward(x))

    @property
    def _evaluations(self) -> int:
        """Maximum number of rows that `explain_row` predicts."""
        return min(EVALUATIONS, int(MULTIPLICATIONS // max(1, self.n_parameters)))

    def check(self, data: Any) -> "DriftCheck":
        """Return how far the columns of new rows differ from the training rows.

        Raises: DataError for a table without rows or without a needed column; targets may be
            missing.
        """
        from mlpengine.models.drift_check import DriftCheck

        return DriftCheck.of(self.preprocessor, self._with_rows("check", data))

    def compare(
        self, other: "Model", data: Any, *, names: Sequence[str] = ("this model", "the other")
    ) -> "Comparison":
        """Return the metrics of two models, and the better model; `data` has the targets, too.

        Do not use training rows of either model.  The standard error is of the difference between
        the models, from paired rows.  If a model has costs, the metric is the mean cost.  Rows have
        the weights of this model (data.weight, exposure); if it has none, of the other model.

        Raises: UsageError unless both predict the same target; DataError as `evaluate`.
        """
        from mlpengine.models.comparison import Comparison, Lead, level_of

        if not isinstance(other, Model):
            raise UsageError(f"compare: other must be a model (got {quoted(other)})")
        if isinstance(names, str) or len(names) != 2:
            raise UsageError(
                f"compare: names must be the names of two models (got {quoted(names)})"
            )
        if (self.predicts, self.classes) != (other.predicts, other.classes):
            own, others = (model._facts()["predicts"] for model in (self, other))
            differ = ", ".join(sorted(map(label_text, {*self.classes} ^ {*other.classes})))
            text = f"; the classes differ: {cut(differ or 'in their order')}" * (own == others)
            raise UsageError(
                f"compare: both models must predict the same ({own}, and {others}{text})"
            )
        table, rows = self._usable("compare", data)
        parts = [self._split(table, rows), other._split(other.table(data), rows)]
        truth = parts[0].truth
        with_costs = [one for one in (self, other) if one.threshold and one.threshold.costs]
        judge = (with_costs or [self])[0]
        rivals = {
            name: model._guess(part, truth)._replace(threshold=judge.threshold)
            for name, model, part in zip(("first", "other"), (self, other), parts, strict=True)
        }
        levels = [[*one.task.levels] for one in (self, other)]
        if levels[0] != levels[1] and not all(0.5 in one for one in levels if one):
            known = " and ".join(map(str, levels))
            raise UsageError(f"compare: both models must predict the same quantiles (got {known})")
        quantiles = by_pinball([self.task, other.task], truth)
        metrics = [*["pinball"] * quantiles, *compared_metrics(judge.task, truth)]
        weights = next((one.weights for one in parts if one.weights is not None), None)
        scores = baseline_scores(metrics, truth, rivals, weights)
        both = {n: [(one[n]["value"], one[n]["error"]) for one in scores.values()] for n in metrics}
        ahead = scores["other"]["ahead"]
        wins = (ahead["value"] >= 0) == higher_is_better(metrics[0])
        level = level_of(metrics[0], scores)
        lead = Lead(metrics[0], "data", int(not wins), abs(ahead["value"]), ahead["error"], level)
        return Comparison(names, len(truth), both, lead)

    def _guess(self, part: Split, truth: Array) -> Guess:
        task, output = self._task, self.forward(part.x)
        losses = task.pinball_losses(truth, output)
        return Guess(task.predict(output), task.probabilities(output), losses=losses)

    def _with_rows(self, where: str, data: Any) -> Table:
        table = self.table(data)
        if not table.n_rows:
            raise DataError(f"{where}: rows are needed (got none)")
        return table

    def _usable(self, where: str, data: Any) -> tuple[Table, Array | None]:
        """Return a table, and the indices of its usable rows (None for all)."""
        table = self._with_rows(where, data)
        usable = usable_rows(table, self.target, self.preprocessor.rows_in_use(table))
        for line in usable.remarks:
            _log.warning("warning: %s", line)
        return table, usable.rows

    def _split(self, table: Table, rows: Array | None, *, on_demand: bool = False) -> Split:
        """Encode rows of a table; warn of values that differ from the training rows."""
        dtype = self.mlp.dtype
        part = make_split(table, rows, self.preprocessor, self.task, dtype, on_demand=on_demand)
        self._warn_of(table if rows is None else table.rows(rows))
        return part

    def scorer(self, task: Task) -> Scorer:
        """Return a scorer with the evaluation loss and the metrics of `task`."""
        return Scorer(self.plain_loss, task, task.outputs, self.mlp.dtype)

    def outputs(self, data: Any) -> Array:
        """Return the combined output (rows, out_dim) of the networks for a table."""
        thread = self._thread
        if not hasattr(thread, "one_row"):
            thread.one_row = self.row_predictor()
        output: Array | None = thread.one_row(data)
        if output is not None:
            return _finite(output)
        table = self.table(data)
        output = self.forward(self.preprocessor.features_of(table))  # raises for missing columns
        self._warn_of(table)
        return output

    def _warn_of(self, table: Table) -> None:
        """Log a line for each difference between a table and the training rows."""
        for line in NewRows(self.preprocessor).add(table).lines():
            _log.warning("warning: %s: %s", table.source, line)

    def features(self, table: Table) -> Array:
        """Return the features (rows, in_dim) of a table, the input of the networks."""
        features = self.preprocessor.transform(table, targets=False).features
        return np.asarray(features, self.mlp.dtype)

    def forward(self, x: Features) -> Array:
        """Return the output (rows, out_dim) for features (rows, in_dim).

        The outputs of several networks are combined into one output (`Task.combine`).

        Raises: ShapeError or DtypeError; NumericalError for outputs that are not finite.
        """
        return _finite(self.mean.forward(x))

    @property
    def mean(self) -> NetworkMean:
        """The mean of the networks."""
        return NetworkMean(self.networks, self._task, self.ensemble_weights)

    def with_mean(self, mean: NetworkMean) -> "Model":
        """Return the model with copies of the networks of `mean`, and its ensemble weights."""
        alike = groupby(mean.networks, key=lambda network: network.describe())
        populations = [_population([*networks]) for _, networks in alike]
        return replace(
            self,
            mlp=populations[0][0],
            populations=populations,
            ensemble_weights=mean.ensemble_weights,
        )

    def predict_interval(self, data: Any, level: float = 0.9) -> tuple[Array, Array]:
        """Return the lower ends and the upper ends of intervals for the targets of new rows.

        If new rows are like the training rows, intervals hold a fraction `level` of the targets.
        Shapes: (rows,) each, or (rows, targets) for several targets.

        Raises: UsageError for a classification model, or one that was trained without folds.
        """
        low, high = self.interval_of(self.outputs(data), level)
        return (low[:, 0], high[:, 0]) if low.shape[1] == 1 else (low, high)

    def interval_of(
        self, output: Array, level: float, where: str = "predict_interval"
    ) -> tuple[Array, Array]:
        """Return the intervals (rows, targets) of `predict_interval` for outputs (rows, out_dim).

        Intervals stay in the range of targets: from 0 for counts and for learned logarithms.
        """
        if not isinstance(self._task, Regression) or self.residuals is None:
            raise self._without_folds(where, "numbers")
        low, high = self.residuals.interval(self._task.predict(output), level)
        ends = self._task.target_range
        return np.clip(low, *ends), np.clip(high, *ends)

    def predict_quantile(self, data: Any, level: float) -> Array:
        """Return a quantile of each row's target: the target is below it with probability `level`.

        With the losses `gaussian_nll` and `survival`, the predicted distribution gives the
        quantile.  With the loss `quantile`, the level must lie between the levels of the loss.
        For other losses, out-of-fold errors give the quantile.
        Shapes: (rows,), or (rows, targets) for several targets.

        Raises: UsageError for a classification model, for a level beyond the levels of the loss,
            and for another loss if the model was trained without folds.
        """
        values = self.quantile_of(self.outputs(data), level)
        return values[:, 0] if values.shape[1] == 1 else values

    def quantile_of(self, output: Array, level: float, where: str = "predict_quantile") -> Array:
        """Return the result (rows, targets) of `predict_quantile` for outputs (rows, out_dim)."""
        level, task = checked_level(level, where), self._task
        values = task.quantile(output, level) if isinstance(task, Regression) else None
        if values is not None:
            return values
        if isinstance(task, Regression) and task.orders:
            levels = [f"{one.level:g}" for one in task.loss.predictions]
            raise UsageError(
                f"{where}: must lie between the levels of the loss, {levels[0]} and {levels[-1]} "
                f"(got {level:g})"
            )
        if not isinstance(task, Regression) or self.residuals is None:
            raise self._without_folds(where, "numbers")
        low, high = task.target_range
        return np.clip(self.residuals.quantile(task.predict(output), level), low, high)

    def predict_survival(self, data: Any, times: Sequence[float]) -> Array:
        """Return the probabilities (rows, times) that a row's event has not happened by each time.

        `times` are in the target's unit.

        Raises: UsageError for a model of another task, and for a time that is not above 0.
        """
        return self.survival_of(self.outputs(data), times)

    def survival_of(
        self, output: Array, times: Sequence[float], where: str = "predict_survival"
    ) -> Array:
        """Return the result (rows, times) of `predict_survival` for outputs (rows, out_dim)."""
        if not isinstance(self._task, CensoredTimes):
            raise UsageError(
                f"{where}: a model of censored times is needed, trained with data.event (this one "
                f"predicts {self.preprocessor.task})"
            )
        if np.ndim(times) != 1:
            raise UsageError(
                f"{where}: times must be a list such as [30, 90] (got {quoted(times)})"
            )
        given = [POSITIVE.check(f"{where}: a time", time) for time in times]
        return self._task.survival(output, np.array(given))

    def predict_set(self, data: Any, level: float = 0.9, *, by_class: bool = False) -> Array:
        """Return which of the `classes` are in each row's prediction set, bool (rows, classes).

        If new rows are like the training rows, a fraction `level` of their sets contains the
        true class.  With `by_class`, this holds for the rows of each class, and sets are larger.  A
        set may be empty if predictions are right more often than `level`.

        Raises: UsageError for a regression model, or one that was trained without folds.
        """
        return self.set_of(self.outputs(data), level, by_class=by_class)

    def set_of(
        self, output: Array, level: float, where: str = "predict_set", *, by_class: bool = False
    ) -> Array:
        """Return the sets (rows, classes) of `predict_set` for outputs (rows, out_dim)."""
        if self.sets is None:
            raise self._without_folds(where, "classes")
        chances = self._task.predicted_numbers(output)
        return self.sets.contain(chances, level, by_class=by_class)

    def _without_folds(self, where: str, what: str) -> UsageError:
        if isinstance(self._task, CensoredTimes):
            return UsageError(
                f"{where}: is not for censored times; write predict_quantile, or --quantile"
            )
        has_folds = self.residuals or self.sets
        predicts, advice = {
            "regression": ("numbers", "predict_interval(table) or --interval, for numbers"),
            "classification": ("classes", "predict_set(table) or --set, for classes"),
        }.get(str(self.preprocessor.task), ("labels", "predict_proba(table), without this option"))
        if predicts == what:
            return UsageError(
                f"{where}: needs folds (this model was trained without folds); write training: "
                "{folds: 8} in the config, or training={'folds': 8} for fit"
            )
        advice += "" if has_folds or predicts == "labels" else ", and train with training.folds"
        text = f"needs a model of {what} (this one predicts {predicts})"
        return UsageError(f"{where}: {text}; write {advice}")

    def table(self, data: Any, history: Any = None) -> Table:
        """Return data in any form as a table with the kinds and derived columns of training.

        Lags and windows of a row read earlier rows in `data` and in `history`, a table of further
        rows.  Every method accepts the returned table.  Columns that are not used are left out.

        Raises: DataError if the data cannot be read as a table; UsageError for a `history` of a
            model without lags and windows.
        """
        if history is not None and not self.preprocessor.history.names:
            raise UsageError("--history: needs a model with data.lags or data.rolling")
        before = None if history is None else self._read(history)
        own, table = self.preprocessor, self._read(data)
        if not all(name in table for name in own.history.names):
            table.require(own.table_columns, "the model")
        return own.history.extended(table, before, "the model")

    def _read(self, data: Any) -> Table:
        how = self.preprocessor.read_arguments | self.preprocessor.used_columns
        if isinstance(data, str | os.PathLike):
            return read_table(data, **how)
        return as_table(data, names=self.columns, source="data", **how)

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all networks."""
        return sum(len(one.params) for one in self.networks)

    def _facts(self) -> dict[str, str]:
        """Return the main properties by title, for `repr` and notebooks."""
        columns = self.columns
        more = ", ..." if len(columns) > SHOWN_COLUMNS else ""
        return {
            "predicts": ", ".join(self.predicts) + f" ({self.preprocessor.task})",
            "from": ", ".join(columns[:SHOWN_COLUMNS]) + more,
            "network": f"{networks_text(self.networks)}, {plural(self.n_parameters, 'parameter')}",
            "loss": self.loss,
            **({"threshold": self.threshold_text} if self.threshold else {}),
        }

    @property
    def threshold_text(self) -> str:
        """The threshold and its class, such as ``0.3 for yes``."""
        threshold = self.threshold or Threshold()
        return f"{threshold.value:.3g} for {label_text(self.classes[threshold.positive])}"

    def __repr__(self) -> str:
        return f"Model({'; '.join(f'{name} {text}' for name, text in self._facts().items())})"

    def _repr_html_(self) -> str:
        from mlpengine.drawing.cell import cell_html
        from mlpengine.drawing.markup import scrolling_table

        facts = self._facts().items()
        return cell_html(scrolling_table(["", ""], facts, "Model", words=2, named=False))

    @cached_property
    def _task(self) -> Task:
        return self.task

    @cached_property
    def _labels(self) -> Array:
        """Labels by class index; dtype object unless all are numbers or all are booleans."""
        kinds = {type(label) for label in self.preprocessor.classes}
        plain = kinds <= {int, float} or kinds == {bool}
        return np.array(self.preprocessor.classes, None if plain else object)

    @cached_property
    def _thread(self) -> local:
        return local()  # .one_row is the `RowPredictor` of a thread

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights, ready for JSON."""
        return {
            NETWORK_KEY: self.mlp.describe(),
            "preprocessing": self.preprocessor.state_dict(),
            "loss": self.loss,
            **({POPULATIONS: [*map(_description, self.populations)]} if self.populations else {}),
            **({"ensemble_weights": [*self.ensemble_weights]} if self.ensemble_weights else {}),
            **({"loss_options": dict(self.loss_options)} if self.loss_options else {}),
            **({"record": dict(self.record)} if self.record else {}),
            **({"threshold": self.threshold._asdict()} if self.threshold else {}),
            **({"background": dict(self.background)} if self.background else {}),
        }

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by name; parameters of a population are stacked."""
        if not self.populations:
            return self.mlp.state_dict()
        return {
            f"{POPULATIONS}.{k}.{name}": rows
            for k, population in enumerate(self.populations)
            for name, rows in population.state_dict().items()
        }

    @property
    def plain_loss(self) -> Loss:
        """The loss for evaluation, without class weights and label smoothing."""
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in self.loss_options.items()}
        loss = REGISTRY[self.loss](**options)
        assert isinstance(loss, Loss)
        return loss

    @classmethod
    def restored(
        cls, description: Mapping[str, Any], state: Mapping[str, Array], where: Path
    ) -> "Model":
        """Return a model from the results of `to_dict` and `state_dict`.

        Raises: CheckpointError that begins with `where`, for an invalid description or parameter.
        """
        if not isinstance(description, Mapping) or not isinstance(state, Mapping):
            raise CheckpointError(f"{where}: is not a model (got {quoted(description)})")
        if missing := {"preprocessing", "loss", NETWORK_KEY} - description.keys():
            names = ", ".join(sorted(missing))
            text = f"{where}: is not a model ({names} missing)"
            for key, held in (("step", "training step"), (NETWORK_KEY, "network")):
                if key in description:
                    text += f"; the file holds a {held}: use the method load of its class"
                    break
            raise CheckpointError(text)
        try:
            more = (POPULATIONS, "ensemble_weights", "loss_options", "record", "threshold")
            needed = (NETWORK_KEY, "preprocessing", "loss")
            check_keys(description, "model", needed, (*more, "background"))
            preprocessor = Preprocessor.from_state(description["preprocessing"])
            populations = _restored_populations(description.get(POPULATIONS, []), state)
            mlp = populations[0][0] if populations else _network(description, state)
            loss, options = description["loss"], description.get("loss_options", {})
            _check_loss(loss, options)
            model = cls(mlp, preprocessor, loss, options, populations)
            weights = _ensemble_weights(description, len(model.networks))
            model = replace(model, ensemble_weights=weights)
            if "record" in description:
                conform(description["record"], TrainingRecord, "record")
                model = replace(model, record=description["record"])
            if "threshold" in description:
                if len(preprocessor.classes) != 2:
                    raise CheckpointError("threshold: needs two classes")
                model = replace(model, threshold=restored_threshold(description["threshold"]))
            if "background" in description:
                _check_background(description["background"], preprocessor.columns)
                model = replace(model, background=description["background"])
            _ = model.plain_loss  # raises for values that the loss refuses
            fits = (preprocessor.n_features, model.task.outputs) == (mlp.in_dim, mlp.outputs)
        except MlpEngineError as error:
            text = "is not a whole model, or one of a newer version"
            raise CheckpointError(f"{where}: {text} ({error})") from error
        if not fits:
            raise CheckpointError(f"{where}: preprocessing and network do not fit each other")
        return model

    def save(self, path: str | Path) -> None:
        """Write the model, atomically; equal models give equal bytes."""
        more = self.residuals.to_arrays() if self.residuals else {}
        if self.sets:
            more |= self.sets.to_arrays()
        write_tensors(path, {**self.state_dict(), **more}, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Model":
        """Read a model.  Raises: CheckpointError if the file is damaged or not a model."""
        arrays, header = read_tensors(path)
        more = {
            n: arrays.pop(n)
            for n in [*arrays]
            if n.startswith((RESIDUALS, SET_CHANCES, SET_CLASSES))
        }
        model = cls.restored(header, arrays, Path(path))
        check_finite(arrays, path)
        try:
            residuals = Residuals.taken_from(more, len(model.target))
            sets = ClassSets.taken_from(more, len(model.classes))
            return replace(model, residuals=residuals, sets=sets)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error


def _check_background(background: object, columns: Sequence[str]) -> None:
    conform(background, dict[str, list[float | str | None]], "background")
    assert isinstance(background, Mapping)
    if {*background} != {*columns} or len({*map(len, background.values())}) > 1:
        raise CheckpointError("background: must have all columns, each with as many values")


def _finite(output: Array) -> Array:
    """Return `output` (rows, out_dim).  Raises: NumericalError for a value that is not finite."""
    if not (finite := np.isfinite(output)).all():
        row = int(finite.all(axis=1).argmin()) + 1
        raise NumericalError(
            f"model: an output is not finite (row {row} of {len(output):,}), as after a run that "
            "failed; train again"
        )
    return output


def _ensemble_weights(description: Mapping[str, Any], networks: int) -> tuple[float, ...]:
    weights = description.get("ensemble_weights", [])
    numbers = isinstance(weights, list) and all(type(one) in (int, float) for one in weights)
    whole = numbers and (not weights or (min(weights) >= 0 and abs(sum(weights) - 1) < 1e-9))
    if not whole or (weights and networks % len(weights)):
        raise CheckpointError(
            f"ensemble_weights: must add up to 1, one for each type of the {networks} networks "
            f"(got {quoted(weights)})"
        )
    return tuple(map(float, weights))


def _population(networks: Sequence[TabularNetwork]) -> Population[TabularNetwork]:
    members = Population(networks[0], len(networks))
    for member, network in zip(members, networks, strict=True):
        member.params.flat[...] = network.params.flat
    return members


def _description(population: Population[TabularNetwork]) -> dict[str, Any]:
    return {NETWORK_KEY: population[0].describe(), "members": len(population)}


def stacked(states: Sequence[Mapping[str, Array]], descriptions: Any) -> dict[str, Array]:
    """Return the parameters of networks with the names of `Model.state_dict`.

    `descriptions` are the populations of `Model.to_dict`, or empty for a single network.
    """
    if not descriptions:
        return dict(states[0])
    left = iter(states)
    parts = [[*islice(left, one["members"])] for one in descriptions]
    return {
        f"{POPULATIONS}.{k}.{name}": np.stack([state[name] for state in part])
        for k, part in enumerate(parts)
        for name in part[0]
    }


def _restored_populations(
    descriptions: Any, state: Mapping[str, Array]
) -> list[Population[TabularNetwork]]:
    """Return the populations of a file; names of parameters contain the population's number."""
    populations: list[Population[TabularNetwork]] = []
    for k, one in enumerate(of_type(descriptions, list, POPULATIONS)):
        check_keys(one, POPULATIONS, (NETWORK_KEY, "members"))
        count, prefix = one["members"], f"{POPULATIONS}.{k}."
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise CheckpointError(f"members: must be a whole number from 1 (got {quoted(count)})")
        own = {n.removeprefix(prefix): rows for n, rows in state.items() if n.startswith(prefix)}
        for name, rows in own.items():
            if not getattr(rows, "ndim", 0) or len(rows) != count:
                raise CheckpointError(
                    f"parameters: {name} must have a row for each of {count} members"
                )
        members = Population(_network(one, {name: rows[0] for name, rows in own.items()}), count)
        members.load_state_dict(own)
        populations.append(members)
    return populations


def _network(description: Mapping[str, Any], state: Mapping[str, Array]) -> TabularNetwork:
    described = description[NETWORK_KEY]
    name = described.get("name") if isinstance(described, dict) else described
    kinds = {kind.__name__: kind for kind in NETWORKS.values()}
    if not isinstance(name, str) or name not in kinds:
        raise CheckpointError(f"network: must be one of {', '.join(kinds)} (got {quoted(name)})")
    return kinds[name].restored(described, state)


def _check_loss(loss: object, options: object) -> None:
    """Check the name of a loss in a file, and the structure of its options."""
    kind = REGISTRY.get(loss, object) if isinstance(loss, str) else object
    if not issubclass(kind, Loss):
        raise CheckpointError(
            f"loss: no loss has the name {loss!r}; if it is your own, import its module first"
        )
    if is_dataclass(kind):
        conform(options, kind, "loss_options")
    elif options != {}:
        raise CheckpointError(f"loss_options: {loss} has none (got {quoted(options)})")
