"""An activation and a loss defined by the text of a formula."""

from dataclasses import dataclass
from typing import ClassVar

from mlpengine.errors import FormulaError
from mlpengine.formula import Expr, parse, variable, variables
from mlpengine.ops._elementwise import Elementwise
from mlpengine.ops._entry_loss import EntryLoss


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
class FormulaLoss(EntryLoss, name="formula"):
    """Mean over all entries of a formula of output y and target t, such as ``abs(y - t) ** 1.5``.

    Backward: d_output = dy * (derivative of the formula by y) / entries, d_target likewise.
    Raises: FormulaError for a text that cannot be read, or that does not depend on y.
    """

    text: str

    def __post_init__(self) -> None:
        _need_number(self.formula(variable("y"), variable("t")), "y", self.text)

    def formula(self, y: Expr, t: Expr) -> Expr:
        return parse(self.text, [str(y.leaf), str(t.leaf)])


def _need_number(formula: Expr, name: str, text: str) -> None:
    if formula.is_mask or name not in variables(formula):
        raise FormulaError(f"formula: must be a number that depends on {name} (got {text!r})", 0)
