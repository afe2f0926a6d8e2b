"""Element-wise ops: each is defined by a formula, and all code for the op is derived from it.

    class Mish(Activation, name="mish"):
        def formula(self, x):
            return x * tanh(softplus(x))

This module derives the gradients (by reverse mode), the values saved for backward, the work buffers
and the NumPy calls.  `mlpengine.backends` and the exports derive code for other targets.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from itertools import product
from math import inf
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from mlpengine.core.errors import FormulaError, ShapeError, UsageError
from mlpengine.core.fields import check_options
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array, Calls, Slots, Spec
from mlpengine.core.wording import quoted
from mlpengine.formula import Expr, Plan, gradients, order, plan, saved_for_backward, variable
from mlpengine.ops._check import listing, need_floats
from mlpengine.ops.op import Direction, GradOp, Signature, parameters_of


@dataclass(frozen=True, eq=False)
class Formulas:
    """Everything that is derived from the formula of an op.

    `kept` are the values that forward saves for backward, except y, by buffer name.  `residuals`
    are the other arrays that backward reads (dy, y, operands), by name; dy is the first.
    """

    operands: Mapping[str, Expr]
    y: Expr
    gradients: tuple[Expr, ...]
    kept: Mapping[str, Expr]
    residuals: Mapping[str, Expr]
    forward: Plan
    backward: Mapping[tuple[bool, ...], Plan]
    """A plan for each choice of gradients; (True, False) is only the first operand's gradient."""

    @cached_property
    def signature(self) -> Signature:
        """Names of operands, residuals and work buffers, for the planner."""
        work: dict[Direction, tuple[str, ...]] = {
            "forward": (*self.kept, *_names("forward", [self.forward])),
            "backward": (*self.kept, *_names("backward", self.backward.values())),
        }
        operands = tuple(self.operands)
        return Signature(operands, len(operands), False, tuple(self.residuals), work)

    @cached_property
    def in_place(self) -> tuple[Direction, ...]:
        """Directions in which `out` may be the buffer of the first operand, or of dy."""
        backward = all(p.in_place for wanted, p in self.backward.items() if wanted[0])
        permitted: dict[Direction, bool] = {
            "forward": self.forward.in_place,
            "backward": backward,
        }
        return tuple(direction for direction, allowed in permitted.items() if allowed)


class Elementwise(GradOp):
    """Base class of ops that apply a function to each entry.

    The operands are the parameters of `formula`: arrays of one floating dtype that broadcast.
    Hyper-parameters are fields of a ``@dataclass(frozen=True)``.
    """

    def __post_init__(self) -> None:
        check_options(self, self.name)

    def formula(self, *operands: Any) -> Any:
        """Return the value as a formula of the operands."""
        raise NotImplementedError

    def gradient(self, *dy_and_operands: Any) -> Any:
        """Return the gradient of each operand; the default derives it from `formula`.

        An override has the parameters ``dy, *operands``; ``self.formula(*operands)`` is y.
        """
        dy, *operands = dy_and_operands
        return gradients(self.formula(*operands), dy, operands)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.broadcasts = len(parameters_of(cls.formula)) > 1

    @property
    def formulas(self) -> Formulas:
        """Everything derived from the formula, cached by class and options."""
        options, kind = option_values(self), cast("Any", type(self))
        return _derived(kind, options, repr(options))

    @property
    def signature(self) -> Signature:
        """Names of operands, residuals and work buffers, for the planner."""
        return self.formulas.signature

    @property
    def in_place(self) -> tuple[Direction, ...]:  # type: ignore[override]
        """Directions in which `out` may be the buffer of the first operand, or of dy."""
        return self.formulas.in_place

    def infer(self, *operands: Spec) -> Spec:
        named = dict(zip(self.formulas.operands, operands, strict=True))
        need_floats(self.name, **named)
        return Spec(broadcast(self.name, **named), operands[0].dtype)

    def work(self, *operands: Spec) -> dict[str, Spec]:
        y, f = self.infer(*operands), self.formulas
        mask = Spec(y.shape, np.dtype(np.bool_))
        names = (*self.signature.work["forward"], *self.signature.work["backward"])
        return {n: y if n in f.kept or "mask" not in n else mask for n in names}

    def forward(self, *operands: Array, out: Array, **work: Array) -> Calls:
        kept, floats, masks = _sorted(work)
        yield from self.formulas.forward.calls(operands, [out, *kept], floats, masks)

    def backward(self, *residuals: Array, out: Slots, **work: Array) -> Calls:
        kept, floats, masks = _sorted(work)
        wanted = tuple(slot is not None for slot in out)
        if not any(wanted):
            return
        planned = self.formulas.backward[wanted]
        slots = [slot for slot in out if slot is not None]
        yield from planned.calls([*residuals, *kept], slots, floats, masks)


class Activation(Elementwise):
    """Base class of element-wise ops that a layer may apply to its output.

    Configs, estimators, exports and the compiled step accept every subclass by its name.
    """

    initializer: ClassVar[str] = "he_normal"
    """Default initializer of the layer before the activation."""

    range: ClassVar[tuple[float, float]] = (-inf, inf)
    """Lower and upper bound of y; diagnostics use them to find dead and saturated units."""


class Tuned(NamedTuple):
    """Hand-written calls ``rule(*given, *out, *floats, *masks)`` that replace a `Plan`."""

    rule: Callable[..., Calls]
    floats: int
    masks: int = 0
    in_place: bool = False

    def calls(self, given: Any, out: Any, floats: Any, masks: Any = ()) -> Calls:
        """Yield the calls on these buffers, as in `Plan.calls`."""
        yield from self.rule(*given, *out, *floats, *masks)


TUNED: dict[tuple[object, ...], Tuned] = {}
"""Hand-written forward rules by op name and options; tests compare them with the formulas."""


def option_values(op: GradOp) -> tuple[object, ...]:
    """Return the values of an op's hyper-parameters, in the order of its fields.

    The options are part of a cache key.
    Raises: UsageError for an attribute that is not a field, or for a value that is not hashable.
    """
    names: list[str] = [f.name for f in fields(op)] if is_dataclass(op) else []
    for name in vars(op).keys() - {*names, "_bindings"}:
        if not isinstance(getattr(type(op), name, None), cached_property):
            raise UsageError(
                f"{op.name}: options must be fields of a @dataclass(frozen=True) "
                f"(got the attribute {name!r})"
            )
    options = tuple(getattr(op, name) for name in names)
    for name, value in zip(names, options, strict=True):
        if not isinstance(value, Hashable):
            raise UsageError(f"{op.name}: {name} must be hashable, as a tuple is (got {value!r})")
    return options


@lru_cache(maxsize=256)
def _derived(kind: type[Elementwise], options: tuple[object, ...], _repr: str) -> Formulas:
    """Return the formulas of ``kind(*options)``; the key `_repr` tells 0.0 from -0.0."""
    op = kind(*options)
    operands = {p.name: variable(p.name) for p in parameters_of(kind.formula)}
    y, dy = expression_of(op, *operands.values()), variable("dy")
    gradients = op.gradient(dy, *operands.values())
    slopes = gradients if isinstance(gradients, tuple) else (gradients,)
    kept = {f"kept{i}": n for i, n in enumerate(saved_for_backward(y, slopes, dy))}
    used = set(order(slopes, [y, *kept.values()]))
    available = {"dy": dy, "y": y, **operands}
    residuals = {n: e for n, e in available.items() if n == "dy" or e in used}
    given = (*residuals.values(), *kept.values())
    forward: Any = TUNED.get((op.name, *options))
    return Formulas(
        operands,
        y,
        slopes,
        kept,
        residuals,
        forward or plan([y, *kept.values()], list(operands.values()), len(operands)),
        {
            wanted: plan([s for s, w in zip(slopes, wanted, strict=True) if w], given)
            for wanted in product((True, False), repeat=len(slopes))
            if any(wanted)
        },
    )


def expression_of(op: Any, *operands: Expr) -> Expr:
    """Return ``op.formula(*operands)``.  Raises: FormulaError unless it is a formula."""
    try:
        made: object = op.formula(*operands)
    except (NotImplementedError, TypeError) as error:  # TypeError: a function of NumPy
        text = str(error) or "it is not defined"
        raise FormulaError(
            f"{op.name}: formula fails ({text}); write operators and functions of mlpengine.formula"
        ) from error
    if not isinstance(made, Expr):
        raise FormulaError(f"{op.name}: formula must return a formula (got {quoted(made)})")
    return made


def _names(direction: str, plans: Any) -> list[str]:
    """Return names for as many work buffers as the largest plan needs."""
    floats, masks = (max(getattr(p, kind) for p in plans) for kind in ("floats", "masks"))
    workspaces = [f"{direction}_workspace{i}" for i in range(floats)]
    return workspaces + [f"{direction}_mask{i}" for i in range(masks)]


def _sorted(work: Mapping[str, Array]) -> tuple[list[Array], list[Array], list[Array]]:
    """Return three lists: kept values, work buffers of floats, work buffers of masks."""
    kept = [a for name, a in work.items() if name.startswith("kept")]
    masks = [a for name, a in work.items() if "mask" in name]
    return kept, [a for name, a in work.items() if "_workspace" in name], masks


def broadcast(where: str, **operands: Spec) -> tuple[int, ...]:
    """Return the broadcast shape of all operands; raise ShapeError if they do not broadcast."""
    try:
        return np.broadcast_shapes(*(spec.shape for spec in operands.values()))
    except ValueError:
        raise ShapeError(f"{where}: operands must broadcast ({listing(**operands)})") from None
