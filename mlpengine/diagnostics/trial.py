"""Tools for trial runs: a context that restores a step, and batches of training rows."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.step.step import TrainingStep


@contextmanager
def restored(step: TrainingStep) -> Iterator[None]:
    """Restore weights, optimizer and the step of dropout at the end of a ``with`` block."""
    mlp, optimizer = step.mlp, step.optimizer
    weights, schedule, lr = mlp.params.flat.copy(), optimizer.schedule, optimizer.lr
    dropout = mlp.rng.step
    moments = optimizer.state_dict()
    try:
        yield
    finally:
        mlp.params.flat[...] = weights
        mlp.rng.step = dropout
        optimizer.schedule, optimizer.lr = schedule, lr
        optimizer.load_state_dict(moments)


class Rows:
    """Training rows for batches; `take` returns x, y and weights."""

    def __init__(self, x: Array, y: Array, weights: Array | None = None) -> None:
        self.x, self.y, self.weights = x, y, weights

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Array | slice) -> tuple[Array, Array, Array | None]:
        """Return the given rows."""
        return self.x[rows], self.y[rows], None if self.weights is None else self.weights[rows]

    def sample(self, count: int, seed: int = 0) -> "Rows":
        """Return up to `count` random rows without replacement, in increasing order."""
        if count >= len(self):
            return self
        chosen = np.random.default_rng(seed).choice(len(self), count, replace=False)
        return Rows(*self.take(np.sort(chosen)))

    def batches(self, size: int, seed: int = 0) -> Iterator[Array]:
        """Yield the row indices of batches without end; each epoch is a new permutation."""
        rng, size = np.random.default_rng(seed), min(size, len(self))
        while True:
            order = rng.permutation(len(self))
            for start in range(0, len(self) - size + 1, size):
                yield order[start : start + size]
