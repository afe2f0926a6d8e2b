"""Loss and metrics of a network over a whole split, and the values that make them infinite."""

import numpy as np

from mlpengine.nn import Mlp
from mlpengine.ops._loss import BoundLoss, Loss
from mlpengine.spec import Array, Spec
from mlpengine.train.nonfinite import bad_rows
from mlpengine.train.task import Split, Task
from mlpengine.wording import plural

ROWS = 512
"""Rows of one forward pass: enough for fast products, few enough for the second-level cache."""


ODD = 1e4
"""Smallest scaled value that is reported as odd; ordinary values are below 100."""


class Evaluator:
    """Runs a network without dropout over splits, in buffers that are allocated once.

    Attributes:
        output: (rows, out_dim), the outputs of the last split, valid until the next `run`.
    """

    def __init__(self, mlp: Mlp, loss: Loss, task: Task) -> None:
        self.mlp, self.loss, self.task = mlp, loss, task
        self._scratch = mlp.scratch(ROWS, training=False)
        self._bound: dict[tuple[int, bool], BoundLoss] = {}
        self._outputs = np.empty((0, mlp.sizes[-1]), mlp.dtype)
        self.output: Array = self._outputs

    def run(self, part: Split, *, full: bool = False) -> dict[str, float]:
        """Return the loss, the mean over all rows, and the metrics of a split, by name."""
        if len(part) > len(self._outputs):
            self._outputs = np.empty((len(part), self.mlp.sizes[-1]), self.mlp.dtype)
        self.output = self._outputs[: len(part)]
        total = 0.0
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # infinity and NaN are legitimate results
            for start in range(0, len(part), ROWS):
                rows = slice(start, min(start + ROWS, len(part)))
                total += self._chunk(part, rows) * (rows.stop - rows.start)
            loss = {"loss": total / len(part)}
            return loss | self.task.metrics(self.output, part, full=full)

    def _chunk(self, part: Split, rows: slice) -> float:
        scratch = self._scratch.for_rows(rows.stop - rows.start)
        self.output[rows] = self.mlp.forward(part.x[rows], scratch)
        key = (scratch.batch_size, part.weights is not None)
        bound = self._bound.get(key)
        if bound is None:
            target = Spec((scratch.batch_size, *part.y.shape[1:]), part.y.dtype)
            bound = self.loss.bind(scratch.output, None, weighted=key[1], target=target)
            self._bound[key] = bound
        bound.target[...] = part.y[rows]
        if bound.sample_weight is not None and part.weights is not None:
            bound.sample_weight[...] = part.weights[rows]
        for call in bound.calls:
            call()
        return float(bound.value)


def odd_value(part: Split, output: Array) -> str:
    """Return a message about the value that makes the loss of a part infinite.

    It is the largest value of the row with the largest error, if it exceeds `ODD`.  If the outputs
    of more than half of the rows are not finite, the message names the learning rate instead.
    """
    bad = bad_rows(output)
    if 2 * len(bad) > len(output):
        return f"the outputs of {len(bad):,} of {plural(len(output), 'row')} are not; lower the lr"
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(output - part.y if part.y.shape == output.shape else output, dtype=np.float64)
    row = int(np.nan_to_num(off, nan=np.inf, posinf=np.inf).max(axis=1).argmax())
    features, targets = np.abs(part.x[row : row + 1][0]), np.abs(part.y[row].reshape(-1))
    in_target = targets.max() > features.max()
    column = int((targets if in_target else features).argmax())
    value = (part.y[row].reshape(-1) if in_target else part.x[row : row + 1][0])[column]
    if abs(value) < ODD:
        return f"the largest error is that of row {row}"
    kind = "target" if in_target else "feature"
    places = part.places
    if places is None:
        return f"{kind} {column} of row {row} is {value:.3g}"
    name = (places.targets if in_target else places.features)[column]
    return f"{places.row(row)}, column {name!r} holds {value:.3g} after scaling"
