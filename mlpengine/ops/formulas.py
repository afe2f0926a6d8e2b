"""An activation and a loss defined by the text of a formula, and learned activations."""

from dataclasses import asdict, dataclass, is_dataclass
from typing import Annotated, Any, ClassVar, Self

from mlpengine.core.errors import FormulaError, UsageError
from mlpengine.core.fields import ConfigKey
from mlpengine.formula import Expr, parse, variable, variables
from mlpengine.ops._elementwise import Elementwise
from mlpengine.ops._entry_loss import EntryLoss
from mlpengine.ops.op import REGISTRY


@dataclass(frozen=True)
class FormulaActivation(Elementwise, name="formula_activation"):
    """An element-wise function of x defined by a text, such as ``x * tanh(softplus(x))``.

    Raises: FormulaError for a text that cannot be read, or that does not depend on x.
    """

    text: str

    initializer: ClassVar[str] = "he_normal"

    def __post_init__(self) -> None:
        _need_number(self.formula(variable("x")), "x", self.text)

    def formula(self, x: Expr) -> Expr:
        return parse(self.text, [str(x.leaf)])


@dataclass(frozen=True)
class _OfActivation(Elementwise):
    """Base of functions of another element-wise op of one operand, by its name and options."""

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
        """Return the function of `op`."""
        options: dict[str, Any] = asdict(op) if is_dataclass(op) else {}
        return cls(op.name, tuple(options.items()))

    @property
    def base(self) -> Any:
        """The other op, f."""
        return REGISTRY[self.activation](**dict(self.options))


class LearnedActivation(_OfActivation, name="learned_activation"):
    """A mixture of x and an activation f in learned shares, y = x + alpha * (f(x) - x).

    Shapes: x (..., units), alpha (units,), or any shapes that broadcast.
    Backward: dx = dy * (1 - alpha) + alpha * dy * f'(x), dalpha = dy * (f(x) - x).
    Raises: UsageError unless `activation` names an element-wise op of one operand.
    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3.
    """

    def formula(self, x: Expr, alpha: Expr) -> Expr:
        y: Expr = (1 - alpha) * x + alpha * self.base.formula(x)  # exact where alpha is 1
        return y

    def gradient(self, dy: Expr, x: Expr, alpha: Expr) -> tuple[Expr, Expr]:
        f = self.base
        slope = f.gradient(dy * alpha, x)
        (through,) = slope if isinstance(slope, tuple) else (slope,)
        return through + dy * (1 - alpha), dy * (f.formula(x) - x)


class Slope(_OfActivation, name="slope"):
    """The gradient of an element-wise op of one operand as a value, y = g * f'(x).

    Shapes: g and x broadcast to y.
    Backward: dg = dy * f'(x), dx = dy * g * f''(x), which is 0 at kinks.
    Raises: UsageError unless `activation` names an element-wise op of one operand.
    """

    def formula(self, g: Expr, x: Expr) -> Expr:
        slope = self.base.gradient(g, x)
        through: Expr = slope[0] if isinstance(slope, tuple) else slope
        return through


def _is_loss(text: str) -> None:
    FormulaLoss(text)


@dataclass(frozen=True)
class FormulaLoss(EntryLoss, name="formula"):
    """A custom formula of output and target, such as ``abs(y - t) ** 1.5``.

    The mean over all entries.
    Backward: d_output = dy * (derivative of the formula by y) / entries, d_target likewise.
    Raises: FormulaError for a text that cannot be read, or that does not depend on y.

    Args:
        text: Of output y (standardized, or a logit) and target t: abs(y - t) ** 1.5.
    """

    tasks = ("classification", "multilabel", "regression")

    text: Annotated[str, ConfigKey("formula"), _is_loss]

    def __post_init__(self) -> None:
        _need_number(self.formula(variable("y"), variable("t")), "y", self.text)

    def formula(self, y: Expr, t: Expr) -> Expr:
        return parse(self.text, [str(y.leaf), str(t.leaf)])


def _need_number(formula: Expr, name: str, text: str) -> None:
    if formula.is_mask or name not in variables(formula):
        raise FormulaError(f"formula: must be a number that depends on {name} (got {text!r})", 0)
