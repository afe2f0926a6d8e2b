"""The weighted sum of losses of several outputs of a network."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.named import NamedRows
from mlpengine.core.spec import Array, Call, Spec, call
from mlpengine.core.wording import quoted, suggestion
from mlpengine.ops.loss import BoundLoss, Loss


class LossSum:
    """A weighted sum of losses of named outputs.

    Args:
        losses: losses by the name of their output.
        weights: factors of the losses by the name of the output, 1 by default.

    Raises: UsageError for a value that is not a loss, for a weight that is 0 or not finite, or for
        a weight of an output without a loss.
    """

    name = "sum"
    title = "a sum of losses"

    def __init__(
        self, losses: Mapping[str, Loss], weights: Mapping[str, float] | None = None
    ) -> None:
        for name, loss in losses.items():
            if not isinstance(loss, Loss):
                raise UsageError(
                    f"training step: loss of {name!r} must be a loss such as MeanSquaredError() "
                    f"(got {quoted(loss)})"
                )
        if not isinstance(weights, Mapping | None):
            text = "loss_weights must be factors by output, such as {'class': 0.3}"
            raise UsageError(f"training step: {text} (got {quoted(weights)})")
        for name, weight in (weights or {}).items():
            if name not in losses:
                raise UsageError(
                    f"training step: loss_weights must name losses (got {name!r})"
                    f"{suggestion(name, losses)}"
                )
            number = isinstance(weight, int | float | np.number)
            if not number or not weight or not isfinite(weight):
                raise UsageError(
                    f"training step: loss_weights of {name!r} must be a number other than 0 "
                    f"(got {quoted(weight)})"
                )
        self.losses = dict(losses)
        self.weights = {name: float((weights or {}).get(name, 1.0)) for name in losses}

    @property
    def targets(self) -> list[str]:
        """The names of outputs with losses that take targets."""
        return [name for name, loss in self.losses.items() if loss.takes_target]

    def target_spec(self, output: Any, target: Any = None) -> dict[str, Spec]:
        """Return the specs of the targets by name (see `Loss.target_spec`)."""
        if not isinstance(target, Mapping) or {*target} != {*self.targets}:
            raise ShapeError("training step: y must be arrays by name")
        return {n: self.losses[n].target_spec(output[n], target[n]) for n in self.targets}

    def check_target(self, target: Any) -> None:
        """Check targets by name (see `Loss.check_target`)."""
        for name in self.targets:
            self.losses[name].check_target(target[name])

    def bind(
        self,
        output: Any,
        d_output: Any,
        *,
        weighted: bool = False,
        target: Mapping[str, Spec] | None = None,
        mean_rows: int | None = None,
        memory: Any = None,
    ) -> BoundLoss:
        """Bind each loss to outputs and gradients by name (see `Loss.bind`)."""
        rows = len(output)
        mean_rows = rows if mean_rows is None else mean_rows
        parts: dict[str, BoundLoss] = {}
        weight: Array | None = None
        for name, loss in self.losses.items():
            parts[name] = bound = loss.bind(
                output[name],
                None if d_output is None else d_output[name],
                weighted=weighted,
                target=None if target is None else target.get(name),
                mean_rows=mean_rows / self.weights[name],  # multiplies the mean by the weight
                memory=None if memory is None else memory.parts[name],
                weight=weight,
            )
            weight = bound.sample_weight
        total = np.zeros((), np.float64) if memory is None else memory.value
        sums: list[Call] = [call(np.copyto, total, next(iter(parts.values())).value)]
        sums += [call(np.add, total, part.value, total) for part in [*parts.values()][1:]]
        return BoundLoss(
            output,
            d_output,
            NamedRows({name: parts[name].target for name in self.targets}),  # type: ignore[arg-type]
            weight,
            total,
            (*(c for part in parts.values() for c in part.forward), *sums),
            tuple(c for part in parts.values() for c in part.backward),
            mean_rows,
            parts=parts,
            sums=tuple(sums),
        )

    def values(self, bound: BoundLoss) -> dict[str, float]:
        """Return the value of each loss by name, without its weight, after a run."""
        return {n: float(part.value) / self.weights[n] for n, part in bound.parts.items()}

    def __repr__(self) -> str:
        listed = ", ".join(
            f"{n}: {self.weights[n]:g} {loss.name}" for n, loss in self.losses.items()
        )
        return f"LossSum({listed})"
