"""Several optimizers as one, each of a group of parameters."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from mlpengine.backends.update_rules import Update
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, Call
from mlpengine.optim._optimizer import HasParams, Optimizer
from mlpengine.optim.parameter_groups import check_group


class GroupedOptimizer(Optimizer):
    """An optimizer for each group of parameters, ``{"head": Adam(network), "body": Sgd(network)}``.

    `lr` and the schedules are the first one's; the learning rates and weight decays of the
    others stay in proportion to its own.  The optimizers that are given keep their state.

    Raises: UsageError unless each trained parameter has one optimizer, made for the network, and
        all have the same schedules, and steps behind them.
    """

    __slots__ = ("_parts", "name")

    def __init__(self, model: HasParams, optimizers: Mapping[str, Optimizer]) -> None:
        self._where = "optimizer"
        _check(model, optimizers)
        members: Mapping[str, Any] = getattr(model, "groups", {})
        first = next(iter(optimizers.values()))
        self.params, self.groups = model.params, dict[str, Any]()
        self.name = ", ".join(part.name for part in optimizers.values())  # type: ignore[misc]
        decays = [part.weight_decay for part in optimizers.values() if part.weight_decay]
        self.weight_decay, self.decay_biases = decays[0] if decays else 0.0, False
        self.schedule, self.decay_schedule = first.schedule, first.decay_schedule
        rates = {group: part.lr / (first.lr or 1.0) for group, part in optimizers.items()}
        self._parts = {
            group: part.limited_to(
                members[group], rates[group], part.weight_decay / (self.weight_decay or 1.0)
            )
            for group, part in optimizers.items()
        }
        self.ranges = sorted(run for part in self._parts.values() for run in part.ranges)
        limits = {group: part._largest_lr for group, part in optimizers.items()}
        self._largest_lr = min(limit / max(1.0, rates[group]) for group, limit in limits.items())
        self.lr = first.lr
        self._steps, self.current_lr = first.steps, first.current_lr
        self._frozen = self.params.frozen
        self.flush_every = min(part.flush_every for part in self._parts.values())
        self.carried = np.hstack([part.carried for part in self._parts.values()])
        self._bind_buffers()

    def _bind_buffers(self) -> None:
        """Let all parts count and carry numbers together."""
        self._bound = {}
        self.moments, self._carried, self._hyper = {}, (), {}
        for group, part in self._parts.items():
            start = len(self._carried)
            self.moments |= {f"{group}.{name}": array for name, array in part.moments.items()}
            self._carried += tuple(f"{group}.{name}" for name in part._carried)
            self._hyper |= {f"{group}.{name}": value for name, value in part._hyper.items()}
            part.carried = self.carried[:, start : len(self._carried)]
            part.flush_every, part.weight_decay = self.flush_every, self.weight_decay

    @property
    def lr(self) -> float:
        """Learning rate of the first part before its schedule; the others follow it."""
        return super().lr

    @lr.setter
    def lr(self, value: float) -> None:
        Optimizer.lr.fset(self, value)  # type: ignore[attr-defined]
        for part in self._parts.values():
            part.lr = super().lr

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "_parts": {group: copy(part) for group, part in self._parts.items()}}

    def calls(self, grads_flat: Array) -> list[Call]:
        each = [part.calls(grads_flat)[1:] for part in self._parts.values()]
        return [self.advance, *(call for calls in each for call in calls)]

    def advance(self) -> None:
        steps = self._steps
        for part in self._parts.values():
            part._steps = steps
            if part.schedule is not self.schedule:
                part.schedule = self.schedule
            if part.decay_schedule is not self.decay_schedule:
                part.decay_schedule = self.decay_schedule
            part.advance()
            self.current_lr = part.current_lr
        self._steps = steps + 1

    def describe_update(self) -> Update:
        parts = [part.describe_update() for part in self._parts.values()]
        hyper, carried = 0, 0
        for i, part in enumerate(parts):
            parts[i] = part._replace(prefix=f"{i}_", first_hyper=hyper, first_carried=carried)
            hyper, carried = hyper + len(part.hyper), carried + len(part.carried)
        return parts[0]._replace(
            hyper=self._hyper,
            moments=self.moments,
            carried=self._carried,
            carried_values=self.carried,
            weight_decay=self.weight_decay,
            is_scheduled=self.decay_schedule is not None,
            ranges=self.ranges,
            parts=parts,
        )

    def numbers(self, *lr_and_t: Any, **named: Any) -> dict[str, Any]:
        raise NotImplementedError

    def update(self, *vectors: Any, **named: Any) -> dict[str, Any]:
        raise NotImplementedError


def _check(model: HasParams, optimizers: Mapping[str, Optimizer]) -> None:
    """Raise UsageError unless each parameter has one of the optimizers, and they go together."""
    members: Mapping[str, Any] = getattr(model, "groups", {})
    if not optimizers:
        raise UsageError("optimizer: needs one for each group (got none); write Adam(mlp)")
    of_name: dict[str, str] = {}
    for group, part in optimizers.items():
        check_group("optimizer", group, members)
        if not isinstance(part, Optimizer) or part.params is not model.params:
            raise UsageError(
                f"optimizer: {group} must have an optimizer of this network (got {part!r}); write "
                f"{{{group!r}: Adam(mlp)}}"
            )
        for name in members[group]:
            if name in of_name:
                raise UsageError(
                    f"optimizer: groups must have no parameter in common ({name} is in "
                    f"{of_name[name]} and {group})"
                )
            of_name[name] = group
    missing = [name for name in model.params.specs if name not in {*of_name, *model.params.frozen}]
    if missing:
        raise UsageError(
            f"optimizer: each parameter must be in a group that has one ({', '.join(missing)})"
        )
    first, *others = optimizers.values()
    for part in others:
        for name in ("schedule", "decay_schedule", "steps"):
            one, other = getattr(first, name), getattr(part, name)
            if one is not other and one != other:
                raise UsageError(f"optimizer: all must have one {name} ({one!r}, {other!r})")
    if not first.lr and any(part.lr for part in others):
        raise UsageError("optimizer: the first must have an lr above 0, as others have (got 0)")
