"""The network between the features and the target."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, InstanceOf, model_validator
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema

from mlpengine.core.fields import Fraction, Limits
from mlpengine.nn import ACTIVATIONS, INITIALIZERS
from mlpengine.nn.residual import MAX_BLOCKS
from mlpengine.ops import FormulaActivation, GradOp
from mlpengine.settings.base import STRICT, Names, one_or_more, options_of, rule

NetworkName: TypeAlias = Literal["mlp", "residual"]
"""The names of `mlpengine.nn.NETWORKS`."""

ActivationName: TypeAlias = Annotated[str, Names(ACTIVATIONS, FormulaActivation)]
"""The name of an activation, or a formula such as x * sigmoid(x)."""

MAX_LAYERS = 1000
"""Largest number of hidden layers."""

Units: TypeAlias = Annotated[int, Limits(at_least=1, at_most=1_000_000, whole=True)]
"""The size of a layer, limited so that a mistyped size does not fill the memory."""

OWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "mlp": ("hidden",),
    "residual": ("blocks", "width", "expansion", "residual_dropout"),
}
"""Options that only one type of network has, by type."""


@dataclass(frozen=True, config=STRICT)
class NetworkSettings:
    """The network between the features and the target."""

    network: NetworkName = Field(
        default="mlp",
        description="mlp: dense layers; residual: blocks of layer norm and two dense layers; the "
        "input of a block is added to its output.",
    )
    hidden: Annotated[tuple[Units, ...], one_or_more(Units), Field(max_length=MAX_LAYERS)] = Field(
        default=(64, 64), description="Sizes of hidden layers (mlp); 16 means [16]."
    )
    blocks: Annotated[int, Limits(at_least=1, at_most=MAX_BLOCKS, whole=True)] = Field(
        default=2, description="Number of blocks (residual)."
    )
    width: Units = Field(default=128, description="Size of the vectors between blocks (residual).")
    expansion: Units = Field(
        default=2,
        description="Size between the two layers of a block, as a multiple of the width "
        "(residual).",
    )
    activation: Annotated[
        tuple[ActivationName | SkipJsonSchema[InstanceOf[GradOp]], ...],
        one_or_more(ActivationName),
        Field(min_length=1),
    ] = Field(
        default=("relu",),
        description="Activation after all hidden layers, or a list with one for each layer: a "
        "name, or a formula of x.",
    )
    dropout: Annotated[tuple[Fraction, ...], one_or_more(Fraction), Field(min_length=1)] = Field(
        default=(0.0,),
        description="Dropout rate of hidden units (of residual: within blocks), rounded to a "
        "multiple of 1/256; or a list with one rate for each layer.",
    )
    residual_dropout: Fraction = Field(
        default=0.0, description="Dropout rate of the outputs of blocks (residual)."
    )
    initializer: Annotated[str, Names(INITIALIZERS)] | None = Field(
        default=None, description="Initial weights; the default depends on the activation."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse options of another network, and lists that do not match the number of layers."""
        for name, option in options_of(NetworkSettings).items():
            value = getattr(self, name)
            if value != option.default and not options_for(self.network, {name: value}):
                raise rule(f"{self.network} does not have this; leave it out", name)
        if self.network == "mlp":
            layers = len(self.hidden)
            for name, given in (("activation", self.activation), ("dropout", self.dropout)):
                if len(given) not in (1, layers):
                    text = f"give one {name}, or one for each layer ({len(given)} for {layers})"
                    raise rule(text, name)
        return self

    def of(self, network: NetworkName) -> "NetworkSettings":
        """Return the settings for `network`, without the options that `network` does not have."""
        return NetworkSettings(**options_for(network, {**vars(self), "network": network}))


def options_for(network: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a type of network accepts; only `mlp` accepts lists for layers."""
    foreign = {n for other, names in OWN_OPTIONS.items() if other != network for n in names}
    return {
        name: value
        for name, value in options.items()
        if name not in foreign
        and (
            network == "mlp"
            or name not in ("activation", "dropout")
            or not (isinstance(value, list | tuple) and len(value) > 1)
        )
    }
