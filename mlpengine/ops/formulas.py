"""An activation and a loss that the text of a formula defines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from mlpengine.errors import FormulaError
from mlpengine.formula import Expr, Plan, constant, gradients, parse, plan, variable, variables
from mlpengine.ops._elementwise import Elementwise
from mlpengine.ops._entry_loss import EntryLoss, weighted
from mlpengine.spec import Array, Calls, Slots, Spec, call

OUTPUT, TARGET = variable("y"), variable("t")


@dataclass(frozen=True)
class FormulaActivation(Elementwise, name="formula_activation"):
    """An element-wise function of x that a text defines, such as ``x * tanh(softplus(x))``.

    Raises: FormulaError for a text that cannot be read, or that does not depend on x.
    """

    text: str

    initializer: ClassVar[str] = "he_normal"

    def __post_init__(self) -> None:
        _need_number(self.formula(variable("x")), "x", self.text)

    def formula(self, x: Expr) -> Expr:
        return parse(self.text, [str(x.leaf)])


@dataclass(frozen=True)
class FormulaLoss(EntryLoss, name="formula"):
    """Mean over all entries of a formula of output y and target t, such as ``abs(y - t) ** 1.5``.

    Backward: d_output = dy * (derivative of the formula by y) / entries, d_target likewise.
    Raises: FormulaError for a text that cannot be read, or that does not depend on y.
    """

    formula: str

    def __post_init__(self) -> None:
        _need_number(self._value, "y", self.formula)

    @cached_property
    def _value(self) -> Expr:
        return parse(self.formula, ["y", "t"])

    @cached_property
    def _forward(self) -> Plan:
        slopes = gradients(self._value, constant(1), [OUTPUT])
        return plan([self._value, *slopes], [OUTPUT, TARGET])

    @cached_property
    def _target_slope(self) -> Plan:
        return plan(gradients(self._value, constant(1), [TARGET]), [OUTPUT, TARGET])

    def room(self, output: Spec) -> Spec:
        return _room(self._forward, output)

    def work(self, output: Spec, target: Spec, weight: Spec | None = None) -> dict[str, Spec]:
        aside = _room(self._target_slope, output)
        return {**super().work(output, target, weight), "aside": aside}

    def entries(
        self, output: Array, target: Array, entry: Array, slope: Array, room: Array
    ) -> Calls:
        yield from _calls(self._forward, [output, target], [entry, slope], room)

    def backward(
        self,
        dy: Array | None,
        output: Array,
        target: Array,
        weight: Array | None,
        *,
        out: Slots,
        slope: Array,
        rows: Array,
        factor: Array,
        aside: Array,
    ) -> Calls:
        yield from self.gradients(dy, weight, out, slope, rows, factor)
        if out[1] is not None:
            yield from _calls(self._target_slope, [output, target], [out[1]], aside)
            yield call(np.multiply, out[1], factor, out[1])
            yield from weighted(out[1], weight)


def _need_number(formula: Expr, name: str, text: str) -> None:
    if formula.is_mask or name not in variables(formula):
        raise FormulaError(f"formula: must be a number that depends on {name} (got {text!r})", 0)


def _room(planned: Plan, output: Spec) -> Spec:
    """Return the spec of the work buffers of a plan as one array, a buffer a row."""
    return Spec((planned.floats + planned.masks, *output.shape), output.dtype)


def _calls(planned: Plan, given: Sequence[Array], outputs: Sequence[Array], room: Array) -> Calls:
    """Yield the calls of a plan; a mask takes a part of a row of `room`."""
    floats = [room[i, ...] for i in range(planned.floats)]
    shape, size = outputs[0].shape, outputs[0].size
    masks = [row.reshape(-1).view(np.bool_)[:size].reshape(shape) for row in room[planned.floats :]]
    yield from planned.calls(given, outputs, floats, masks)
