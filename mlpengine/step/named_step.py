"""Training steps of networks whose inputs or outputs have names, with a loss for each output."""

from typing import Any

import numpy as np

from mlpengine.common.named import (
    NamedRows,
    as_rows,
    check_rows,
    matched,
    need_array,
    need_names,
    row_specs,
)
from mlpengine.errors import DtypeError, ShapeError, UsageError
from mlpengine.ops.loss_sum import LossSum
from mlpengine.spec import Array
from mlpengine.step.bound_step import BoundStep, StepData
from mlpengine.step.step import TrainingStep


class NamedStep(TrainingStep):
    """A `TrainingStep` that takes arrays by name; ``TrainingStep(...)`` returns it where needed."""

    def _start(self, buffers: Any = None) -> None:
        self._check_losses()
        super()._start(buffers)

    def _check_losses(self) -> None:
        """Raise UsageError unless there is a loss for each output."""
        names = [*self.mlp.out_sizes]
        losses = [*self.loss.losses] if isinstance(self.loss, LossSum) else [""]
        if {*names} != {*losses}:
            wanted = ", ".join(f"{name!r}: ..." for name in names if name)
            given = ", ".join(map(repr, filter(None, losses))) or "one loss"
            right = f"a loss for each output, {{{wanted}}}" if wanted else "one loss"
            raise UsageError(f"training step: loss must be {right} (got {given})")

    def __call__(self, x: Any, y: Any, sample_weight: Any = None) -> float:
        rows, target = self._named(x, y)
        bound = self.bound(len(rows))
        weights = None if sample_weight is None else np.asarray(sample_weight)
        try:
            bound.write(rows, target, weights)
        except (ShapeError, DtypeError):
            if not self._take_targets_as(target):
                raise
            bound = self.bound(len(rows))
            bound.write(rows, target, weights)
        if not self._result.checked:
            self._check_target(target)
        return self.run(bound)

    def _named(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return features and targets as arrays or `NamedRows`, of as many rows each."""
        self.check_names(x, y)
        rows, target = as_rows(x), as_rows(y)
        if not isinstance(rows, NamedRows) and rows.ndim != len(self.mlp.in_shape) + 1:
            raise ShapeError(self._not_rows(x, rows, rows))
        for name, value in (("x", rows), ("y", target)):
            check_rows(value, len(rows), f"training step: {name}")
        return rows, target

    def check_names(self, x: Any, y: Any) -> None:
        targets = self.loss.targets if isinstance(self.loss, LossSum) else None
        for name, value, wanted in (("x", x, self.mlp.in_shape), ("y", y, targets)):
            if isinstance(wanted, dict | list):
                need_names(value, dict.fromkeys(wanted), f"training step: {name}")
            else:
                need_array(value, f"training step: {name}")

    def _take_targets_as(self, y: Any) -> bool:
        if not isinstance(self.loss, LossSum):
            return super()._take_targets_as(y)
        now = row_specs(self._full.loss.target, self.batch_size)
        kinds = {}
        for name, given in row_specs(y, self.batch_size).items():
            output = row_specs(self._full.scratch.output[name], self.batch_size)
            try:
                kinds[name] = self.loss.losses[name].target_spec(output, given)
            except (ShapeError, DtypeError):
                return False
        if kinds == now:
            return False
        self._target = kinds
        self.optimizer.take_moments_back()
        self._start(self._buffers)
        return True

    def run_many(
        self, x: Any, y: Any, order: Array, sample_weight: Array | None = None
    ) -> tuple[Array, Array]:
        rows, target = self._named(x, y)
        if isinstance(self.loss, LossSum):
            self._take_targets_as(target)
        data = rows, target, sample_weight
        count = self.count_steps(data, order, "run_many")
        losses, norms = np.zeros(count), np.zeros(count)
        self.make_steps(data, order, losses, norms)
        return losses, norms

    def make_fused_steps(
        self, bound: BoundStep, data: StepData, order: Array, *results: Any, **options: Any
    ) -> int:
        flat: Any = [rows for rows, _ in matched(data, bound.buffers)]
        return super().make_fused_steps(bound, flat, order, *results, **options)

    @property
    def losses(self) -> dict[str, float]:
        if not isinstance(self.loss, LossSum):
            return super().losses
        total = dict.fromkeys(self.loss.losses, 0.0)
        for bound in self._result.bound.loss_parts:
            for name, value in self.loss.values(bound).items():
                total[name] += value
        return total
