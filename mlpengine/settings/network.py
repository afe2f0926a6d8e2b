"""The network between the features and the target."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Len

from mlpengine.common.fields import Checked, Count, Fraction, OneOf
from mlpengine.nn import ACTIVATIONS, INITIALIZERS, Front
from mlpengine.nn.mlp import Parametrization
from mlpengine.ops import FormulaActivation, GradOp
from mlpengine.optim.schedules import Falling


@dataclass(frozen=True)
class NetworkSettings(Checked):
    """The network between the features and the target.

    Args:
        hidden: Sizes of hidden layers; 16 means [16].
        activation: After every hidden layer, or one for each; a name, or a formula of x.
        learned_activation: x + alpha (f(x) - x) for f, one learned alpha for each unit.
        front: Embedding of numbers, and a scaling layer.
        parametrization: neural_tangent: products are divided by the root of a layer's inputs.
        dropout: Share of hidden units dropped while training, in steps of 1/256, or a list with
            one for each layer.
        dropout_schedule: Dropout over the epochs: constant, or falling to zero.
        initializer: How weights start; by default what suits the activation.
    """

    hidden: Annotated[tuple[Count, ...], Len(0, 1000)] = (64, 64)
    activation: Annotated[
        tuple[Annotated[str, OneOf(ACTIVATIONS, FormulaActivation)] | GradOp, ...], Len(1)
    ] = ("relu",)
    learned_activation: bool = False
    front: Front = field(default_factory=Front)
    parametrization: Parametrization = "standard"
    dropout: Annotated[tuple[Fraction, ...], Len(1)] = (0.0,)
    dropout_schedule: Falling = "constant"
    initializer: Annotated[str, OneOf(INITIALIZERS)] | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield where layers are not as many as activations or shares of dropout."""
        layers = len(self.hidden)
        for name, given in (("activation", self.activation), ("dropout", self.dropout)):
            if len(given) not in (1, layers):
                yield name, f"give one {name}, or one for each layer ({len(given)} for {layers})"
