"""The loss as a function of the parameters, for full-batch optimizers such as L-BFGS."""

from math import isfinite

import numpy as np

from mlpengine.core.buffers import replay
from mlpengine.core.errors import DataError
from mlpengine.core.spec import Array, Call, call
from mlpengine.nn import Network
from mlpengine.nn.row_gradients import RowGradient, RowGradients
from mlpengine.optim import FullBatch
from mlpengine.step.bound_step import BoundStep

BLOCK_BYTES = 2**20
"""Maximum bytes of the Jacobian rows in one matrix product; fits into a second-level cache."""


class BatchProblem:
    """The loss of the rows in a bound step's buffers, as a function of the parameters.

    Attributes:
        gradient: (parameters,), written by `evaluate`.
        count: number of rows * number of output columns.
    """

    def __init__(self, mlp: Network, bound: BoundStep, *, needs_rows: bool) -> None:
        self._bound, self._calls = bound, bound.calls
        self.gradient: Array = bound.grads.flat
        self.count = bound.scratch.batch_size * sum(mlp.out_sizes.values())
        self._gauss_newton = _GaussNewton(mlp, bound) if needs_rows else None
        self._forward = (*bound.scratch.calls, *bound.loss.forward)
        self._target = np.zeros_like(bound.loss.target) if needs_rows else np.zeros(0)

    def evaluate(self) -> float:
        """Return the loss of the current parameters, and write its gradient."""
        replay(self._calls)
        return self._bound.value

    def loss(self) -> float:
        """Return the loss of the current parameters."""
        replay(self._forward)
        return self._bound.value

    def curvature(self, matrix: Array) -> None:
        """Write the Gauss-Newton matrix of the mean squared error, and overwrite `gradient`.

        Shapes: matrix (n, n), for n trained parameters.
        """
        assert self._gauss_newton is not None
        self._gauss_newton.curvature(matrix)

    def use_outputs_as_targets(self) -> None:
        """Replace the targets by the current outputs of the network."""
        replay(self._bound.scratch.calls)
        target, output = self._bound.loss.target, self._bound.scratch.output
        np.copyto(self._target, target)
        np.copyto(target, output.reshape(target.shape))

    def restore_targets(self) -> None:
        """Write the original targets back."""
        np.copyto(self._bound.loss.target, self._target)


class FullBatchSteps:
    """Steps of a full-batch optimizer, each on the rows in a bound step's buffers."""

    def __init__(self, mlp: Network, optimizer: FullBatch) -> None:
        self._mlp, self._optimizer = mlp, optimizer
        self._problems: dict[int, BatchProblem] = {}

    def minimize(self, bound: BoundStep) -> tuple[float, float]:
        """Run a step; return loss and norm before it.  A step is counted if both are finite."""
        optimizer, weights = self._optimizer, bound.loss.sample_weight
        if optimizer.needs_rows and weights is not None and (weights < 0).any():
            text = f"training step: sample_weight must be at least 0 for {optimizer.name}"
            raise DataError(f"{text} (got {weights.min():g})")
        problem = self._problems.get(id(bound))
        if problem is None:
            problem = BatchProblem(self._mlp, bound, needs_rows=optimizer.needs_rows)
            self._problems[id(bound)] = problem
        loss, norm = optimizer.minimize(problem)
        if isfinite(loss + norm):
            optimizer.count(optimizer.lr)
        return loss, norm


class _GaussNewton:
    """Computes the Gauss-Newton matrix from blocks of the Jacobian of the outputs.

    Blocks have the shape (parameters, rows), because NumPy is slow if the last axis is short.
    """

    def __init__(self, mlp: Network, bound: BoundStep) -> None:
        scratch, grads, views = bound.scratch, bound.grads, mlp.params.views
        names = [name for name in views if name not in mlp.params.frozen]
        rows, width = scratch.batch_size, sum(views[name].size for name in names)
        self._bound, self._backward = bound, grads.calls(scratch)
        gradients = RowGradients(scratch, grads, set(names), views)
        self._gradients = gradients.calls
        size = max(1, min(rows, BLOCK_BYTES // (width * mlp.dtype.itemsize)))
        self._block = np.zeros((width, size), mlp.dtype)
        self._square = np.zeros((width, width), mlp.dtype)
        self._blocks: list[tuple[Array, list[Call]]] = []
        for start in range(0, rows, size):
            part = slice(start, min(start + size, rows))
            jacobian, at, calls = self._block[:, : part.stop - part.start], 0, []
            for name in names:
                stop = at + views[name].size
                calls += _filled(jacobian[at:stop], gradients.places[name], part)
                at = stop
            self._blocks.append((jacobian, calls))

    def curvature(self, matrix: Array) -> None:
        """Write 2 / count times the sum of weight * J' J over the rows."""
        bound, grads = self._bound, self._bound.grads
        output: Array = grads.d_output.reshape(len(grads.d_output), -1)
        factor = np.sqrt(2 / (bound.loss.mean_rows * output.shape[1]))
        weights = bound.loss.sample_weight
        scale = factor if weights is None else factor * np.sqrt(weights)
        matrix.fill(0.0)
        for k in range(output.shape[1]):
            output.fill(0.0)
            output[:, k] = scale
            replay(self._backward)
            replay(self._gradients)
            for jacobian, calls in self._blocks:
                replay(calls)
                np.matmul(jacobian, jacobian.T, self._square)
                matrix += self._square


def _filled(out: Array, places: list[RowGradient], part: slice) -> list[Call]:
    """Return the calls that write the gradients of rows `part` into `out` (parameters, rows)."""
    calls: list[Call] = []
    for k, (left, right) in enumerate(places):
        target = out if k == 0 else np.zeros_like(out)
        one = left[part].T
        if right is None:
            calls.append(call(np.copyto, target, one))
        else:
            other = right[part]
            cube = target.reshape(left.shape[-1], right.shape[-1], -1)  # a view with axis 0 split
            if left.ndim == 3:
                by_row = left[part].transpose(0, 2, 1)
                calls.append(call(np.matmul, by_row, other, cube.transpose(2, 0, 1)))
            else:
                calls.append(call(np.multiply, one[:, None], other.T, cube))
        if k:
            calls.append(call(np.add, out, target, out))
    return calls
