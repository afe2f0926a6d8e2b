"""Explanations of a model: importance of columns by permutation, and partial dependence."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mlpengine.core.rows import evenly_spaced
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.data.tables.table import ColumnKind
from mlpengine.models.evaluate import Scorer, mean_error
from mlpengine.models.forward import Features
from mlpengine.models.members import NetworkMean
from mlpengine.models.metrics import influences
from mlpengine.models.task import Regression, Scored, Split, Task
from mlpengine.nn.network import PREDICT_ROWS

GRID, LEVELS = 20, 12
"""Number of points of a curve: quantiles of a number, or frequent levels of a category."""

PERMUTED_COLUMNS = 200
"""Maximum number of permuted columns (see `sensitive_columns`)."""

DEPENDENCE_ROWS = 300
"""Number of evenly spaced rows for the mean of partial dependence."""

STACKED_ROWS = 3_000
"""Maximum number of rows for one forward pass over all permutations of a column.

With more rows, each permutation has its own pass."""


ROW_GROUPS, GROUP_ROWS = 100, 8
"""Maximum number of groups of rows, and rows of a group in smaller tables.

The values of a column are permuted within groups, so that groups stay independent.  Standard errors
from 100 groups have a relative error of about 7 %.
"""


class Importance(NamedTuple):
    """The change of loss and metric if the values of a column are permuted.

    `loss` is the mean rise of the loss over repetitions.  `metric` is the mean fall of the task's
    first metric, such as R2 or accuracy.  `loss_error` and `metric_error` are standard errors over
    the rows, not over repetitions.
    """

    column: str
    loss: float
    loss_error: float
    metric: float
    metric_error: float


class Dependence(NamedTuple):
    """Partial dependence: the mean prediction if all rows have the same value in a column.

    `predictions` (points, outputs) has the mean for each of `values`.  Outputs are targets in their
    own units, or probabilities of classes or labels.  `kind` is the column's kind; dates are
    seconds since 1970.
    """

    column: str
    values: list[float] | list[str]
    predictions: Array
    kind: ColumnKind = "number"


def feature_columns(preprocessor: Preprocessor) -> list[str]:
    """Return, for each feature, the name of its column (in the table, or computed)."""
    numbers = preprocessor.fitted_numbers
    sources = [source.column for source in numbers.sources]
    names = [*sources, *(sources[i] for i in numbers.bins.columns)]
    names += [sources[i] for i in numbers.flagged]
    for category in preprocessor.categories:
        names += [category.column] * category.size
    return names


def sensitive_columns(mean: NetworkMean, x: Array, columns: Sequence[str], count: int) -> list[str]:
    """Return the `count` columns to which outputs are most sensitive, in the order of `columns`.

    `columns` has the column of each feature of `x`.  If the features of a column are permuted
    together, the outputs change; the sensitivity is the mean square of the first-order change, over
    some rows and all networks.  One backward pass per network gives the sensitivity to all columns.
    The pass adds up the changes of the outputs with random signs; the expected square of this sum
    is the sum of the squared changes.

    Source: Hutchinson 1990, "A stochastic estimator of the trace", for the signs.
    """
    places = {name: k for k, name in enumerate(dict.fromkeys(columns))}
    names = [*places]
    if len(names) <= count:
        return names
    place = np.array([places[name] for name in columns])
    order = np.argsort(place, kind="stable")
    firsts = np.searchsorted(place[order], np.arange(len(names)))
    rng = np.random.Generator(np.random.PCG64(0))
    rows = x[evenly_spaced(len(x), PREDICT_ROWS)]
    moves = rng.permutation(rows) - rows
    squares = np.zeros(len(names))
    for network, weight in zip(mean.networks, mean.network_weights, strict=True):
        plain = network.without_dropout()
        scratch = plain.scratch(len(rows))
        slopes = plain.gradients(len(rows), input_gradient=True)
        plain.forward(rows, scratch)
        slopes.d_output[...] = rng.choice([-1.0, 1.0], slopes.d_output.shape)
        plain.backward(scratch, slopes)
        changes = np.add.reduceat((slopes.d_input * moves)[:, order], firsts, axis=1)
        squares += weight * np.square(changes, dtype=np.float64).mean(axis=0)
    chosen = np.argsort(-squares, kind="stable")[:count]
    return [names[k] for k in np.sort(chosen).tolist()]


def importances(
    forward: Callable[[Array], Array],
    scorer: Scorer,
    part: Split,
    columns: Sequence[str],
    *,
    permuted_columns: Iterable[str] | None = None,
    repeats: int = 5,
) -> list[Importance]:
    """Return the importance of each column, the largest rise of the loss first.

    `forward` maps features to outputs; features are the rows of `part`, once or repeated several
    times along axis 0.  `columns` has the column of each feature; all features of a column are
    permuted together.  With `permuted_columns`, only these columns are permuted.

    Standard errors are from the loss of each group of rows, and from the influence of each row on
    the metric (`metrics.influences`).

    Source: Breiman 2001, section 10.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    headline, count = scorer.task.headline[0], len(part)
    stacked = repeats if repeats * count <= STACKED_ROWS else 1
    every = np.tile(np.arange(count), repeats)  # rows of all repetitions
    groups = max(min(ROW_GROUPS, count // GROUP_ROWS), min(10, count // 2), 1)
    blocks, whole = every % groups, part.rows(every)
    chosen = [np.flatnonzero(blocks == k) for k in range(groups)]
    subsets, sizes = [whole.rows(some) for some in chosen], np.bincount(blocks, whole.weights)

    def scores(output: Array) -> tuple[Array, Array, Array]:
        """Return (loss, -metric), the loss of each group, and the influence of each row."""
        both = scorer.mean_loss(output, whole), -scorer.metric(headline, output, whole)
        losses = [
            scorer.mean_loss(output[k], rows) for k, rows in zip(chosen, subsets, strict=True)
        ]
        scored = Scored(scorer.task, output, whole)
        each = influences(headline, scored.truth, scored.predicted, whole.weights)
        return np.array(both), np.array(losses), -each

    x, names = np.tile(part.x, (stacked, 1)), np.array(columns)
    base = scores(np.tile(forward(part.x), (repeats, 1)))
    orders = np.array([_exchanged(count, groups, rng) for _ in every[::count]]).reshape(-1, len(x))
    rows: list[Importance] = []
    for column in dict.fromkeys(columns) if permuted_columns is None else permuted_columns:
        block = np.flatnonzero(names == column)
        kept, outputs = x[:, block].copy(), []
        after = base
        if (kept != kept[0]).any():
            for order in orders:
                x[:, block] = kept[order]
                outputs.append(forward(x).copy())
            x[:, block] = kept
            after = scores(np.concatenate(outputs))
        (loss, metric), losses, each = (new - old for new, old in zip(after, base, strict=True))
        losses = np.divide(losses * np.bincount(blocks), sizes, out=0 * losses, where=sizes > 0)
        loss_error = mean_error(losses, sizes)
        metric_error = mean_error(each, whole.weights, blocks)
        rows.append(Importance(column, float(loss), loss_error, float(metric), metric_error))
    return sorted(rows, key=lambda row: -row.loss)


def _exchanged(count: int, groups: int, rng: np.random.Generator) -> Array:
    """Return a permutation of rows within groups, so that groups stay independent.

    Row k is in group k % groups.
    """
    order = np.arange(count)
    for k in range(groups):
        permuted = rng.permutation(np.arange(k, count, groups))
        order[permuted] = np.roll(permuted, 1)
    return order


def dependence(
    forward: Callable[[Features], Array],
    preprocessor: Preprocessor,
    task: Task,
    table: Table,
    column: str,
    *,
    points: int = GRID,
    rows: int = DEPENDENCE_ROWS,
) -> Dependence:
    """Return the partial dependence of a prediction on a column of a table.

    `forward` maps features to outputs.  All rows get the same value in the column, one value after
    another: `points` quantiles of a column of numbers or dates, or the most frequent levels of a
    column of text.  Predictions are averaged over `rows` rows of the table.

    Source: Friedman 2001, section 8.2.
    """
    stride = -(-table.n_rows // rows)
    some = table.rows(np.arange(0, table.n_rows, stride))
    values, grid = table[column], _grid(table[column], points)
    if not len(grid):
        return Dependence(column, [], np.zeros((0, 0)))
    everywhere = some.rows(np.tile(np.arange(some.n_rows), len(grid)))
    filled = Column(np.repeat(grid, some.n_rows), values.kind, values.levels)
    tiled = Table({**everywhere.columns, column: filled}, some.source)
    output = forward(preprocessor.features_of(tiled))
    shown = task.predict(output) if isinstance(task, Regression) else task.probabilities(output)
    assert shown is not None
    means = shown.reshape(len(grid), some.n_rows, -1).mean(axis=1)
    is_text = values.kind == "text"
    names = [values.levels[code] for code in grid.tolist()] if is_text else grid.tolist()
    return Dependence(column, names, means, values.kind)


def _grid(values: Column, points: int) -> Array:
    """Return the numbers, or the codes of levels, at which predictions are averaged."""
    if values.kind == "text":
        counts = np.bincount(values.values[values.values >= 0], minlength=len(values.levels))
        order = np.argsort(-counts, kind="stable")[:LEVELS]
        return order[counts[order] > 0].astype(values.values.dtype)
    known = np.sort(values.values[~values.missing].astype(np.float64))
    places = np.rint(np.linspace(0.02, 0.98, points) * (len(known) - 1)).astype(np.int64)
    return np.array([*dict.fromkeys(known[places].tolist())]) if known.size else known
