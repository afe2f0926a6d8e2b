"""Loss and metrics of a network over a split, and messages about infinite losses."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlpengine.core.errors import IndexRangeError
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.named import NamedRows, arrays_in, one_or_named, row_specs
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.models.task import Regression, Scored, Split, Task
from mlpengine.nn import Network, Scratch
from mlpengine.ops import EntryLoss, KnownTargets
from mlpengine.ops.loss import BoundLoss, Loss
from mlpengine.ops.loss_sum import LossSum
from mlpengine.step.fault import bad_rows
from mlpengine.step.fused_run import WORK_AT_ONCE
from mlpengine.step.ranks import Ranks

if TYPE_CHECKING:
    from mlpengine.backends.compiled.executor import Executor

FORWARD_ROWS = 512
"""Rows of a forward pass: enough for fast products, and few enough for the second-level cache."""

CHUNKS_AT_ONCE = 32
"""Maximum number of passes of `FORWARD_ROWS` in one call of machine code, to limit memory."""

LARGE_VALUE = 1e4
"""Smallest scaled value that `odd_value` reports; ordinary values are below 100."""


class Scorer:
    """Measures outputs (rows, outputs) of `dtype` against the targets of a split.

    If `outputs` is a mapping of names to sizes, the loss is a sum of losses by name, and each of
    these losses is measured, too.
    """

    def __init__(
        self,
        loss: Loss,
        task: Task,
        outputs: int | Mapping[str, int],
        dtype: np.dtype[np.generic],
    ) -> None:
        if isinstance(task, Regression) and task.target.n_outputs > 1:
            assert isinstance(loss, EntryLoss)
            loss = KnownTargets(loss)
        self.loss, self.task = loss, task
        sizes = outputs if isinstance(outputs, Mapping) else {"": outputs}
        self._buffer = one_or_named(
            {n: np.empty((FORWARD_ROWS, k), dtype) for n, k in sizes.items()}
        )
        self._bound: dict[tuple[int, bool], BoundLoss] = {}

    def run(self, output: Array, part: Split, *, full: bool = False) -> dict[str, float]:
        """Return the mean loss and the metrics of a split, by name."""
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are results
            metrics = self.task.metrics(output, part, full=full)
        return self.mean_losses(output, part) | metrics

    def metric(self, name: str, output: Array, part: Split) -> float:
        """Return one metric of a split."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.task.metric(name, output, part)

    def mean_loss(self, output: Array, part: Split) -> float:
        """Return the mean loss over all rows of a split."""
        return self.mean_losses(output, part)["loss"]

    def mean_losses(self, output: Array, part: Split) -> dict[str, float]:
        """Return the mean of each of `loss_names`; losses of single outputs are unweighted."""
        totals = dict.fromkeys(loss_names(self.loss), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(part), FORWARD_ROWS):
                rows = slice(start, min(start + FORWARD_ROWS, len(part)))
                values = self._chunk(output[rows], part, rows)
                for name, value in zip(totals, values, strict=True):
                    totals[name] += value * (rows.stop - rows.start)
        return {name: total / len(part) for name, total in totals.items()}

    def _chunk(self, output: Array, part: Split, rows: slice) -> list[float]:
        key = len(output), part.weights is not None
        bound = self._bound.get(key)
        if bound is None:
            target = row_specs(part.y, len(output))
            bound = self.loss.bind(
                self._buffer[: len(output)], None, weighted=key[1], target=target
            )
            self._bound[key] = bound
        bound.output[...] = output
        bound.target[...] = part.y[rows]
        if bound.sample_weight is not None and part.weights is not None:
            bound.sample_weight[...] = part.weights[rows]
        for call in bound.calls:
            call()
        values = [float(bound.value)]
        if isinstance(self.loss, LossSum):
            values += self.loss.values(bound).values()
        return values


def loss_names(loss: Loss) -> tuple[str, ...]:
    """Return "loss", and for a sum of losses also "loss of NAME" for each output."""
    parts: list[str] = [*loss.losses] if isinstance(loss, LossSum) else []
    return ("loss", *(f"loss of {name}" for name in parts))


JACKKNIFE_BLOCKS = 200
"""Number of blocks of rows; jackknife standard errors then have a relative error of about 5 %."""


def standard_errors(
    scorer: Scorer, output: Array, part: Split, blocks: Array | None = None
) -> dict[str, float]:
    """Return the standard error of loss and metrics over the rows of a split.

    The errors of the metrics in `INFLUENCES` are computed row by row.  For the loss and for other
    metrics, random blocks of rows are left out in turn (jackknife).  `blocks` (rows,) has the block
    number of each row: rows that depend on each other belong in one block.

    Source: Quenouille 1956, delete-a-group.
    """
    known = Scored(scorer.task, output, part).influences()
    others = [name for name in scorer.task.headline if name not in known]
    scores: list[dict[str, float]] = []
    for kept in without_each_block(len(part), blocks, part.weights):
        weights = None if part.weights is None else part.weights[kept]
        features = np.empty((len(kept), 0))  # no metric reads features
        rows = Split(features, part.y[kept], part.truth[kept], weights)
        run = scorer.run if others else scorer.mean_losses
        scores.append(run(output[kept], rows))
    errors = {name: jackknife_error([s[name] for s in scores]) for name in (scores or [{}])[0]}
    exact = {name: mean_error(values, part.weights, blocks) for name, values in known.items()}
    return errors | exact if scores else {}


def mean_error(values: Array, weights: Array | None = None, blocks: Array | None = None) -> float:
    """Return the standard error of the weighted mean of `values` (rows,).

    `blocks` (rows,) has the block number of each row, if rows depend on each other.  The result is
    NaN for fewer than two rows or blocks, and for values that are not finite.
    """
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if not weights.any() or not np.isfinite(values).all():
        return float("nan")
    parts = weights * (values - np.average(values, weights=weights))
    if blocks is not None:
        parts, used = np.bincount(blocks, parts), np.bincount(blocks, weights) > 0
    else:
        used = weights > 0
    count = np.count_nonzero(used)
    if count < 2:
        return float("nan")
    return float(np.sqrt(count / (count - 1) * (parts @ parts)) / weights.sum())


def without_each_block(
    rows: int, blocks: Array | None = None, weights: Array | None = None
) -> list[Array]:
    """Return, for each block, the indices of all rows outside the block.

    `blocks` (rows,) has the block number of each row; by default, blocks are random.  The result is
    [] if there is only one block, or if one block has all `weights`.
    """
    if blocks is None:
        order = np.random.Generator(np.random.PCG64(0)).permutation(rows)
        blocks = order % min(JACKKNIFE_BLOCKS, rows)
    names = np.flatnonzero(np.bincount(blocks))
    kept = [np.flatnonzero(blocks != name) for name in names]
    known = len(kept) > 1 and (weights is None or all(weights[one].any() for one in kept))
    return kept if known else []


def jackknife_error(scores: Sequence[float] | Array) -> float:
    """Return the standard error from scores that each leave out one block; NaN without scores."""
    if not len(scores) or not np.isfinite(scores).all():
        return float("nan")
    with np.errstate(over="ignore"):
        return float(np.sqrt(len(scores) - 1) * np.std(scores))


class Evaluator:
    """Runs a network without dropout over splits, in buffers that are allocated once.

    Several `ranks` share the rows; all ranks get the outputs of all rows, and the loss and metrics
    that rank 0 computes.  With `program`, the machine code of a training step computes outputs.

    Attributes:
        output: outputs (rows, out_dim) of the last split, valid until the next `run`.
    """

    def __init__(
        self,
        mlp: Network,
        loss: Loss,
        task: Task,
        ranks: Ranks | None = None,
        program: "Executor | None" = None,
    ) -> None:
        self.mlp, self.ranks, self._program = mlp, ranks, program
        self._scorer = Scorer(loss, task, mlp.outputs, mlp.dtype)
        self._outputs: Array = mlp.empty_outputs(0)
        self.output: Array = self._outputs

    def run(self, part: Split, *, full: bool = False) -> dict[str, float]:
        """Return the mean loss and the metrics of a split, by name."""
        if len(part) > len(self._outputs):
            self._outputs = self.mlp.empty_outputs(len(part))
        self.output = self._outputs[: len(part)]
        ranks, chunks = self.ranks, -(-len(part) // FORWARD_ROWS)
        shares = [slice(0, chunks)]
        if ranks is not None:
            shares = [ranks.share(chunks, rank) for rank in range(ranks.size)]
        rows = [
            slice(*(min(c * FORWARD_ROWS, len(part)) for c in (s.start, s.stop))) for s in shares
        ]
        self._compute(part.x, rows[ranks.rank if ranks else 0], self.output)
        if ranks is None:
            return self._scorer.run(self.output, part, full=full)
        for output in arrays_in(self.output):
            ranks.exchange(output, rows)
        first = ranks.rank == 0
        return ranks.of_root(self._scorer.run(self.output, part, full=full) if first else {})

    def outputs(self, x: Array) -> Array:
        """Return the outputs (rows, out_dim) for features (rows, in_dim)."""
        output: Array = self.mlp.empty_outputs(len(x))
        self._compute(x, slice(0, len(x)), output)
        return output

    @cached_property
    def _scratch(self) -> Scratch:
        return self.mlp.scratch(FORWARD_ROWS, training=False)

    def _compute(self, x: Array, rows: slice, output: Array) -> None:
        mlp, program = self.mlp, self._program
        chunks = (
            min(WORK_AT_ONCE // (FORWARD_ROWS * len(mlp.params)), CHUNKS_AT_ONCE) if program else 1
        )
        at_once = FORWARD_ROWS * max(chunks, 1)
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are results
            for start in range(rows.start, rows.stop, at_once):
                chunk = slice(start, min(start + at_once, rows.stop))
                if program:
                    program.forward(np.ascontiguousarray(x[chunk], mlp.dtype), output[chunk])
                else:
                    scratch = self._scratch.for_rows(chunk.stop - chunk.start)
                    try:
                        output[chunk] = mlp.forward(x[chunk], scratch)
                    except IndexRangeError as error:
                        raise IndexRangeError(f"{error} (its row 0 is row {start} of x)") from None


def odd_value(part: Split, output: Array) -> str:
    """Return a message about the value that probably makes the loss of a part infinite.

    If the largest feature or target of the row with the largest error is `LARGE_VALUE` or more, the
    message names it.  If more than half of the rows have finite features, but outputs that are not
    finite, the message blames the learning rate instead.
    """
    bad = bad_rows(output)
    if isinstance(part.x, np.ndarray):
        bad = np.setdiff1d(bad, bad_rows(part.x))
    if 2 * len(bad) > len(output):
        count = plural(len(output), "row")
        return f"outputs of {len(bad):,} of {count} are not finite; lower the learning rate"
    if isinstance(output, NamedRows) or isinstance(part.x, NamedRows):
        return f"outputs of {len(bad):,} of {plural(len(output), 'row')} are not finite"
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(output - part.y if part.y.shape == output.shape else output, dtype=np.float64)
    off[np.isfinite(output) & np.isnan(off)] = 0  # missing targets
    row = int(np.nan_to_num(off, nan=np.inf, posinf=np.inf).max(axis=1).argmax())
    features, targets = np.abs(part.x[row : row + 1][0]), np.abs(part.y[row].reshape(-1))
    targets = np.nan_to_num(targets)
    in_target = targets.max() > features.max()
    column = int((targets if in_target else features).argmax())
    value = (part.y[row].reshape(-1) if in_target else part.x[row : row + 1][0])[column]
    if abs(value) < LARGE_VALUE:
        return f"row {row} has the largest error"
    kind = "target" if in_target else "feature"
    places = part.places
    if places is None:
        return f"{kind} {column} of row {row} is {value:.3g}"
    name = (places.targets if in_target else places.features)[column]
    return f"{places.row(row)}, column {name!r} holds {value:.3g} after scaling"
