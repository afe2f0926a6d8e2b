"""The named options of a config: losses, optimizers and schedules with their settings.

A name alone (``optimizer: adam``) and a mapping with the name (``{name: adam, lr: 1e-3}``) mean the
same; a mapping without one takes the default's name.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from mlpengine import ops
from mlpengine.errors import FormulaError
from mlpengine.ops import GradOp


class Section(BaseModel):
    """A mapping of a config: no unknown keys, no silent conversions, no infinities."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # of `Config` only, with those below it, when it reads a config
    )

    def options(self, *without: str) -> dict[str, Any]:
        """Return the values by key; `model_dump` would build a serializer of this section."""
        return {key: value for key, value in self if key not in without}


Positive: TypeAlias = Annotated[float, Field(gt=0)]
NonNegative: TypeAlias = Annotated[float, Field(ge=0)]
Fraction: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Count: TypeAlias = Annotated[int, Field(ge=1)]


def section(kind: Callable[[], Section], description: str) -> Any:
    """Return a field whose default is an empty mapping, which stands for all defaults of `kind`.

    With an instance as default, the validators of `kind` would be built twice.
    """

    def add_default(schema: dict[str, Any]) -> None:
        schema["default"] = kind().model_dump(mode="json")

    return Field(default_factory=dict, description=description, json_schema_extra=add_default)


def rule(text: str, *at: str) -> PydanticCustomError:
    """Return the error of a rule between fields, to be shown at the key path `at`."""
    return PydanticCustomError("rule", "{text}", {"text": text, "at": at})


class Short:
    """Annotation of a field that accepts a short form and completes it before validation."""

    def __init__(self, complete: Callable[[Any], Any], schema: dict[str, Any]) -> None:
        self.complete, self.schema = complete, schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Complete the value, then validate it as usual."""
        return no_info_before_validator_function(self.complete, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let editors accept the short form, too."""
        return {"anyOf": [handler(schema), self.schema]}


class Named(Short):
    """The short form of one of several sections by its name alone; a mapping may leave it out.

    Without a name it is that of `default`, or ``formula`` if the mapping has such a key.
    """

    def __init__(self, default: str) -> None:
        self.default = default

    def complete(self, value: Any) -> Any:
        """Return the mapping that a value stands for."""
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and "name" not in value:
            return {"name": "formula" if "formula" in value else self.default, **value}
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let editors accept the names of the union `source`, except those that need settings."""
        fields = [section.model_fields for section in get_args(source)]
        short = [f["name"].default for f in fields if not any(o.is_required() for o in f.values())]
        self.schema = {"enum": sorted(short, key=self.default.__ne__)}
        return super().__get_pydantic_core_schema__(source, handler)


ONE_OR_MORE = Short(
    lambda value: [value] if isinstance(value, int | float) else value, {"type": "number"}
)


class AutoLoss(Section):
    """Cross-entropy for classes, BCE for several labels, MSE for numbers."""

    name: Literal["auto"] = Field(default="auto", description="Chosen by the task.")


class MseLoss(Section):
    """Mean squared error."""

    name: Literal["mse"] = Field(default="mse", description="Mean squared error.")


class MaeLoss(Section):
    """Mean absolute error."""

    name: Literal["mae"] = Field(default="mae", description="Mean absolute error.")


class HuberLoss(Section):
    """Quadratic near zero, linear beyond `delta`."""

    name: Literal["huber"] = Field(
        default="huber", description="Squared near zero, absolute beyond delta."
    )
    delta: Positive = Field(
        default=1.0, description="Where it turns linear, in standardized units."
    )


class LogCoshLoss(Section):
    """Logarithm of the hyperbolic cosine: quadratic near zero, then linear."""

    name: Literal["log_cosh"] = Field(
        default="log_cosh", description="log(cosh(error)), squared near zero, absolute far off."
    )


def _increasing(levels: list[float]) -> list[float]:
    if any(a >= b for a, b in pairwise(levels)):
        raise PydanticCustomError("rule", "{text}", {"text": "levels must increase", "at": ()})
    return levels


class QuantileLoss(Section):
    """Pinball loss: predictions are quantiles of the target, not its mean."""

    name: Literal["quantile"] = Field(
        default="quantile", description="Predicts quantiles of the target."
    )
    levels: Annotated[
        list[Annotated[float, Field(gt=0, lt=1)]], AfterValidator(_increasing), ONE_OR_MORE
    ] = Field(
        default=[0.5],
        min_length=1,
        max_length=99,
        description="Share of targets below each prediction, one or several; 0.5: the median.",
    )


class GaussianNllLoss(Section):
    """Likelihood of a normal distribution whose mean and variance are predicted."""

    name: Literal["gaussian_nll"] = Field(
        default="gaussian_nll", description="Predicts mean and standard deviation."
    )


class PoissonLoss(Section):
    """Likelihood of counts; the output is the logarithm of their mean."""

    name: Literal["poisson"] = Field(
        default="poisson", description="Predicts the mean of counts, or of numbers from 0 on."
    )


class GammaLoss(Section):
    """Likelihood of positive numbers whose spread grows with their mean."""

    name: Literal["gamma"] = Field(
        default="gamma", description="Predicts the mean of positive numbers, errors relative to it."
    )


class BinaryFocalLoss(Section):
    """Binary cross-entropy that weighs confident correct answers less."""

    name: Literal["binary_focal"] = Field(
        default="binary_focal", description="Focal loss: two classes, or several labels."
    )
    gamma: NonNegative = Field(
        default=2.0,
        description="Exponent of (1 - probability of the true class): 0, or at least 1.",
    )
    alpha: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Weight of positive targets; negative ones get 1 - alpha."
    )


class BceLoss(Section):
    """Binary cross-entropy on logits, for two classes or several labels."""

    name: Literal["bce_with_logits"] = Field(
        default="bce_with_logits",
        description="Binary cross-entropy: two classes, or several labels.",
    )
    positive_weight: Positive = Field(default=1.0, description="Weight of positive targets.")


class CrossEntropyLoss(Section):
    """Softmax cross-entropy on logits."""

    name: Literal["softmax_cross_entropy"] = Field(
        default="softmax_cross_entropy", description="Cross-entropy over classes."
    )
    label_smoothing: Fraction = Field(
        default=0.0, description="Share of each target spread evenly."
    )


def read_formula(text: str, op: Callable[[str], GradOp]) -> str:
    """Return a text that is the formula of an op.

    Raises: PydanticCustomError naming the character that cannot be read.
    """
    try:
        op(text)
    except FormulaError as error:
        raise PydanticCustomError("rule", "{text}", {"text": str(error), "at": ()}) from None
    return text


class FormulaLoss(Section):
    """The mean over all entries of a formula of output y and target t."""

    name: Literal["formula"] = Field(default="formula", description="A custom formula.")
    formula: Annotated[str, AfterValidator(lambda text: read_formula(text, ops.FormulaLoss))] = (
        Field(description="Of output y (standardized, or a logit) and target t: abs(y - t) ** 1.5.")
    )


Loss = Annotated[
    AutoLoss
    | MseLoss
    | MaeLoss
    | HuberLoss
    | LogCoshLoss
    | QuantileLoss
    | GaussianNllLoss
    | PoissonLoss
    | GammaLoss
    | BceLoss
    | BinaryFocalLoss
    | CrossEntropyLoss
    | FormulaLoss,
    Field(discriminator="name"),
    Named("auto"),
]


class GroupSection(Section):
    """Factors for a group of parameters."""

    lr: NonNegative = Field(default=1.0, description="Factor of the learning rate.")
    weight_decay: NonNegative | None = Field(
        default=None, description="Factor of the weight decay; by default 1 for weights, else 0."
    )


class _Optimizer(Section):
    lr: Positive = Field(default=1e-3, description="Learning rate.")
    weight_decay: NonNegative = Field(
        default=0.0, description="Decoupled decay of weights, times the learning rate."
    )
    decay_biases: bool = Field(
        default=False, description="Whether weight decay acts on biases, too."
    )
    decay_schedule: Literal["constant", "flat_cosine", "cosine", "linear"] = Field(
        default="constant",
        description="Weight decay over the epochs: constant, or falling to zero.",
    )
    groups: dict[Literal["weights", "biases", "alphas", "embedding", "scaling"], GroupSection] = (
        Field(default={}, description="Factors for groups of parameters, by name.")
    )


class SgdOptimizer(_Optimizer):
    """Gradient descent, optionally with momentum."""

    name: Literal["sgd"] = Field(default="sgd", description="Gradient descent.")
    lr: Positive = Field(default=1e-2, description="Learning rate.")
    momentum: Fraction = Field(default=0.0, description="Share of the last update kept.")
    nesterov: bool = Field(default=False, description="Look ahead along the momentum.")


class AdamOptimizer(_Optimizer):
    """Adam."""

    name: Literal["adam"] = Field(default="adam", description="Adam (Kingma and Ba 2015).")
    betas: list[Fraction] = Field(
        default=[0.9, 0.999], min_length=2, max_length=2, description="Decay of the two moments."
    )
    eps: Positive = Field(default=1e-8, description="Added to the root of the second moment.")


class AdamWOptimizer(AdamOptimizer):
    """Adam with weight decay on by default."""

    name: Literal["adamw"] = Field(default="adamw", description="Adam with decoupled weight decay.")  # type: ignore[assignment]
    weight_decay: NonNegative = Field(
        default=1e-2, description="Decoupled decay of weights, times the learning rate."
    )


class NAdamOptimizer(AdamOptimizer):
    """Adam with Nesterov's momentum."""

    name: Literal["nadam"] = Field(default="nadam", description="NAdam (Dozat 2016).")  # type: ignore[assignment]
    lr: Positive = Field(default=2e-3, description="Learning rate.")
    momentum_decay: NonNegative = Field(
        default=4e-3, description="How fast the momentum rises from half of betas[0] to all of it."
    )


class LionOptimizer(_Optimizer):
    """The sign of a momentum."""

    name: Literal["lion"] = Field(default="lion", description="Lion (Chen et al. 2023).")
    lr: Positive = Field(default=1e-4, description="Learning rate.")
    betas: list[Fraction] = Field(
        default=[0.9, 0.99],
        min_length=2,
        max_length=2,
        description="Share of the moment in the step, and its decay.",
    )


class RmsPropOptimizer(_Optimizer):
    """RMSprop."""

    name: Literal["rmsprop"] = Field(default="rmsprop", description="RMSprop (Hinton 2012).")
    alpha: Fraction = Field(default=0.99, description="Decay of the mean square.")
    eps: Positive = Field(default=1e-8, description="Added to the root of the mean square.")
    momentum: Fraction = Field(default=0.0, description="Share of the last update kept.")


Optimizer = Annotated[
    SgdOptimizer
    | AdamOptimizer
    | AdamWOptimizer
    | NAdamOptimizer
    | LionOptimizer
    | RmsPropOptimizer,
    Field(discriminator="name"),
    Named("adam"),
]


class _Schedule(Section):
    warmup_epochs: NonNegative = Field(
        default=0.0, description="Epochs over which the learning rate first rises from near zero."
    )


class ConstantSchedule(_Schedule):
    """The base learning rate throughout."""

    name: Literal["constant"] = Field(
        default="constant", description="The same learning rate throughout."
    )


class StepSchedule(_Schedule):
    """Multiplication by `factor` after every `every_epochs` epochs."""

    name: Literal["step"] = Field(
        default="step", description="Multiplied by factor at regular intervals."
    )
    every_epochs: Positive = Field(default=10, description="Epochs between two drops.")
    factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="Factor of the learning rate at a drop."
    )


class ExponentialSchedule(_Schedule):
    """Exponential decay by `factor` per epoch."""

    name: Literal["exponential"] = Field(
        default="exponential", description="Falls by factor per epoch."
    )
    factor: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.95, description="Factor of the learning rate per epoch."
    )


class CosineSchedule(_Schedule):
    """Half a cosine from 1 to `final`."""

    name: Literal["cosine"] = Field(
        default="cosine", description="Half a cosine wave down to final."
    )
    final: Fraction = Field(default=0.0, description="Share of the base learning rate at the end.")


class FlatCosineSchedule(_Schedule):
    """1 for half of the training, then half a cosine to 0."""

    name: Literal["flat_cosine"] = Field(
        default="flat_cosine", description="Flat for the first half, then half a cosine to zero."
    )


class CosLogSchedule(_Schedule):
    """Waves between 0 and the base learning rate, each twice as long as the one before."""

    name: Literal["coslog"] = Field(
        default="coslog", description="Waves up from zero and back, each twice as long."
    )
    cycles: Annotated[int, Field(ge=1, le=30)] = Field(default=4, description="Number of waves.")


class LinearSchedule(_Schedule):
    """A straight line from 1 to `final`."""

    name: Literal["linear"] = Field(default="linear", description="A straight line down to final.")
    final: Fraction = Field(default=0.0, description="Share of the base learning rate at the end.")


class OneCycleSchedule(_Schedule):
    """Up to the base learning rate and down again."""

    name: Literal["one_cycle"] = Field(
        default="one_cycle", description="Up to lr, then down again."
    )
    rise: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.3, description="Share of the steps in which it rises."
    )


class PlateauSchedule(_Schedule):
    """Multiplication by `factor` when the monitored metric stops improving."""

    name: Literal["plateau"] = Field(
        default="plateau", description="Multiplied by factor when validation stalls."
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="Factor of the learning rate at a drop."
    )
    patience: Count = Field(default=5, description="Epochs without a better value before a drop.")


Schedule = Annotated[
    ConstantSchedule
    | StepSchedule
    | ExponentialSchedule
    | CosineSchedule
    | FlatCosineSchedule
    | CosLogSchedule
    | LinearSchedule
    | OneCycleSchedule
    | PlateauSchedule,
    Field(discriminator="name"),
    Named("constant"),
]
