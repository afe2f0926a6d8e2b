"""Loss and metrics of a network over a whole split."""

import numpy as np

from mlpengine.nn import Mlp
from mlpengine.ops._loss import BoundLoss, Loss
from mlpengine.spec import Array, Spec
from mlpengine.train.task import Part, Task

ROWS = 512
"""Rows that pass through the net at once: enough to fill the products, small enough for a cache."""


class Evaluator:
    """Runs a network without dropout over splits; its buffers are made once.

    Attributes:
        output: (rows, out_dim), the outputs of the last split, valid until the next `run`.
    """

    def __init__(self, mlp: Mlp, loss: Loss, task: Task) -> None:
        self.mlp, self.loss, self.task = mlp, loss, task
        self._scratch = mlp.scratch(ROWS, training=False)
        self._bound: dict[tuple[int, bool], BoundLoss] = {}
        self._room = np.empty((0, mlp.sizes[-1]), mlp.dtype)
        self.output: Array = self._room

    def run(self, part: Part, *, full: bool = False) -> dict[str, float]:
        """Return the loss, the mean over all rows, and the metrics of a split, by name."""
        if len(part) > len(self._room):
            self._room = np.empty((len(part), self.mlp.sizes[-1]), self.mlp.dtype)
        self.output = self._room[: len(part)]
        total = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and NaN are answers here
            for start in range(0, len(part), ROWS):
                rows = slice(start, min(start + ROWS, len(part)))
                total += self._chunk(part, rows) * (rows.stop - rows.start)
            found = {"loss": total / len(part)}
            return found | self.task.metrics(self.output, part, full=full)

    def _chunk(self, part: Part, rows: slice) -> float:
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
