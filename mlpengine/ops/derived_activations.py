"""Activations given by text, and derivatives of activations."""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, Self

from mlpengine.core.errors import UsageError
from mlpengine.formula import Expr, constant, gradients, parse_number
from mlpengine.ops.elementwise_op import Elementwise
from mlpengine.ops.op import REGISTRY


@dataclass(frozen=True)
class FormulaActivation(Elementwise, name="formula_activation"):
    """An element-wise function of x, defined by text such as ``x * tanh(softplus(x))``.

    Raises: FormulaError if the text is not a formula or does not depend on x.
    """

    text: str

    initializer: ClassVar[str] = "he_normal"

    def __post_init__(self) -> None:
        parse_number(self.text, ["x"])

    def formula(self, x: Expr) -> Expr:
        return parse_number(self.text, [str(x.leaf)])


@dataclass(frozen=True)
class Slope(Elementwise, name="slope"):
    """The derivative of an element-wise op f, times a factor g: y = g * f^(order)(x).

    Shapes: g and x broadcast to y.
    Backward: dg = dy * f^(order)(x), dx = dy * g * f^(order + 1)(x); dx = 0 at kinks of f.
    Raises: UsageError unless `activation` names an element-wise op of one operand.
    """

    activation: str = "mish"
    options: tuple[tuple[str, Any], ...] = ()
    order: int = 1

    def __post_init__(self) -> None:
        kind = REGISTRY.get(self.activation)
        if kind is None or not issubclass(kind, Elementwise) or kind.broadcasts:
            raise UsageError(f"slope: must be an element-wise activation (got {self.activation!r})")

    @classmethod
    def of(cls, op: Elementwise) -> Self:
        """Return the op for the first derivative of `op`."""
        options: dict[str, Any] = asdict(op) if is_dataclass(op) else {}
        return cls(op.name, tuple(options.items()))

    @property
    def base(self) -> Any:
        """The op f."""
        return REGISTRY[self.activation](**dict(self.options))

    def formula(self, g: Expr, x: Expr) -> Expr:
        slope = self.base.gradient(g, x)
        through: Expr = slope[0] if isinstance(slope, tuple) else slope
        for _ in range(1, self.order):
            (through,) = gradients(through, constant(1), [x])
        return through
