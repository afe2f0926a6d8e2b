"""Activations given by text, mixtures of x and an activation, and derivatives of activations."""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, Self

from mlpengine.core.errors import UsageError
from mlpengine.formula import Expr, constant, gradients, parse_number
from mlpengine.ops.elementwise_op import Elementwise
from mlpengine.ops.op import REGISTRY


@dataclass(frozen=True)
class FormulaActivation(Elementwise, name="formula_activation"):
    """An element-wise function of x, defined by text such as ``x * tanh(softplus(x))``.

    Raises: FormulaError for a text that cannot be read or does not depend on x.
    """

    text: str

    initializer: ClassVar[str] = "he_normal"

    def __post_init__(self) -> None:
        parse_number(self.text, ["x"])

    def formula(self, x: Expr) -> Expr:
        return parse_number(self.text, [str(x.leaf)])


@dataclass(frozen=True)
class _OfActivation(Elementwise):
    """Base of ops that are defined by another element-wise op f, given by name and options."""

    activation: str = "mish"
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        kind = REGISTRY.get(self.activation)
        if kind is None or not issubclass(kind, Elementwise) or kind.broadcasts:
            text = self.name.replace("_", " ")
            raise UsageError(
                f"{text}: must be an element-wise activation (got {self.activation!r})"
            )

    @classmethod
    def of(cls, op: Elementwise) -> Self:
        """Return this op for f = `op`."""
        options: dict[str, Any] = asdict(op) if is_dataclass(op) else {}
        return cls(op.name, tuple(options.items()))

    @property
    def base(self) -> Any:
        """The op f."""
        return REGISTRY[self.activation](**dict(self.options))


class LearnedActivation(_OfActivation, name="learned_activation"):
    """A mixture of x and an activation f with a learned share alpha, y = x + alpha * (f(x) - x).

    Shapes: x (..., units), alpha (units,), or any shapes that broadcast.
    Backward: dx = dy * (1 - alpha) + alpha * dy * f'(x), dalpha = dy * (f(x) - x).
    Raises: UsageError unless `activation` names an element-wise op of one operand.
    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.
    """

    def formula(self, x: Expr, alpha: Expr) -> Expr:
        y: Expr = (1 - alpha) * x + alpha * self.base.formula(x)  # exact if alpha is 1
        return y

    def gradient(self, dy: Expr, x: Expr, alpha: Expr) -> tuple[Expr, Expr]:
        f = self.base
        slope = f.gradient(dy * alpha, x)
        (through,) = slope if isinstance(slope, tuple) else (slope,)
        return through + dy * (1 - alpha), dy * (f.formula(x) - x)


@dataclass(frozen=True)
class Slope(_OfActivation, name="slope"):
    """A derivative of an element-wise op f, times a value g: y = g * f^(order)(x).

    Shapes: g and x broadcast to y.
    Backward: dg = dy * f^(order)(x), dx = dy * g * f^(order + 1)(x); dx = 0 at kinks of f.
    Raises: UsageError unless `activation` names an element-wise op of one operand.
    """

    order: int = 1

    def formula(self, g: Expr, x: Expr) -> Expr:
        slope = self.base.gradient(g, x)
        through: Expr = slope[0] if isinstance(slope, tuple) else slope
        for _ in range(1, self.order):
            (through,) = gradients(through, constant(1), [x])
        return through
