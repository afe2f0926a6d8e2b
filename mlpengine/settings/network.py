"""The network between the features and the target."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Le, Len

from mlpengine.core.fields import Checked, Count, Fraction, OneOf, options_of
from mlpengine.nn import ACTIVATIONS, INITIALIZERS, Front
from mlpengine.nn.mlp import Parametrization
from mlpengine.nn.residual import MAX_BLOCKS
from mlpengine.ops import FormulaActivation, GradOp
from mlpengine.optim.schedules import Falling

NetworkName: TypeAlias = Literal["mlp", "residual"]
"""The names of `mlpengine.nn.NETWORKS`."""

OWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "mlp": ("hidden", "learned_activation", "parametrization"),
    "residual": ("blocks", "width", "expansion", "residual_dropout"),
}
"""The options that only one network has."""


@dataclass(frozen=True)
class NetworkSettings(Checked):
    """The network between the features and the target.

    Args:
        network: mlp: dense layers; residual: blocks of layer norm and two dense layers, each added
            to what it reads.
        hidden: Sizes of hidden layers (mlp); 16 means [16].
        blocks: Number of blocks (residual).
        width: Size of what blocks read and add to (residual).
        expansion: Size between the two layers of a block, as a multiple of the width (residual).
        activation: After every hidden layer, or one for each; a name, or a formula of x.
        learned_activation: x + alpha (f(x) - x) for f, one learned alpha for each unit (mlp).
        front: Embedding of numbers, and a scaling layer.
        parametrization: neural_tangent: products are divided by the root of a layer's inputs (mlp).
        dropout: Share of hidden units dropped while training, in steps of 1/256, or a list with
            one for each layer; of residual within blocks.
        residual_dropout: Share dropped of what blocks add (residual).
        dropout_schedule: Dropout over the epochs: constant, or falling to zero.
        initializer: How weights start; by default what suits the activation.
    """

    network: NetworkName = "mlp"
    hidden: Annotated[tuple[Count, ...], Len(0, 1000)] = (64, 64)
    blocks: Annotated[int, Ge(1), Le(MAX_BLOCKS)] = 2
    width: Count = 128
    expansion: Count = 2
    activation: Annotated[
        tuple[Annotated[str, OneOf(ACTIVATIONS, FormulaActivation)] | GradOp, ...], Len(1)
    ] = ("relu",)
    learned_activation: bool = False
    front: Front = field(default_factory=Front)
    parametrization: Parametrization = "standard"
    dropout: Annotated[tuple[Fraction, ...], Len(1)] = (0.0,)
    residual_dropout: Fraction = 0.0
    dropout_schedule: Falling = "constant"
    initializer: Annotated[str, OneOf(INITIALIZERS)] | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield options of another network, and where layers are not as many as activations."""
        for name, option in options_of(NetworkSettings).items():
            value, default = getattr(self, name), option.default
            default = [*default] if isinstance(value, list) else default
            if value != default and not options_for(self.network, {name: value}):
                yield name, f"{self.network} does not have this; leave it out"
        if self.network != "mlp":
            return
        layers = len(self.hidden)
        for name, given in (("activation", self.activation), ("dropout", self.dropout)):
            if len(given) not in (1, layers):
                yield name, f"give one {name}, or one for each layer ({len(given)} for {layers})"

    def of(self, network: NetworkName) -> "NetworkSettings":
        """Return the settings for another network, without the options that it does not have."""
        return NetworkSettings(**options_for(network, {**vars(self), "network": network}))


def options_for(network: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, and values of them, that a network has."""
    foreign = {n for other, names in OWN_OPTIONS.items() if other != network for n in names}
    return {
        name: value
        for name, value in options.items()
        if name not in foreign and (network == "mlp" or not _is_of_layers(name, value))
    }


def _is_of_layers(name: str, value: Any) -> bool:
    """Return whether an option has a value that only dense layers have."""
    each = name in ("activation", "dropout") and isinstance(value, list | tuple) and len(value) > 1
    return each or (name == "initializer" and value == "unit_variance")
