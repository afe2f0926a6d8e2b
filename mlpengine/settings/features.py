"""How the columns of a table become the features of a network."""

from collections import Counter
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from mlpengine.core.fields import Count, Limits
from mlpengine.settings.base import STRICT, Flag, Texts, one_or_more, rule

TaskName: TypeAlias = Literal["classification", "regression", "multilabel", "survival"]
Scaling: TypeAlias = Literal["standard", "minmax", "robust", "none"]
FeatureClipping: TypeAlias = Literal["smooth", "none"]
Encoding: TypeAlias = Literal["piecewise", "none"]
Filling: TypeAlias = (
    Literal["mean", "median", "indicator", "error"]
    | Annotated[float, Limits(above=-1e38, below=1e38)]
)
Standardizing: TypeAlias = Flag | Literal["mean"]
TargetTransform: TypeAlias = Literal["none", "log", "auto"]

MAX_REACH = 100_000
"""Maximum number of rows that a lag or window reaches back."""

Steps: TypeAlias = Annotated[int, Limits(at_least=1, at_most=MAX_REACH, whole=True)]
SomeSteps: TypeAlias = Annotated[tuple[Steps, ...], one_or_more(int), Field(min_length=1)]
WindowFunction: TypeAlias = Literal["mean", "std", "min", "max"]

BINS = 12
"""Default number of quantile bins of a column."""

MAX_COMPUTED = 1000
"""Maximum number of computed columns."""


@dataclass(frozen=True, config=STRICT)
class FeatureSettings:
    """How the columns of a table become the features of a network."""

    target: Texts = Field(
        default=(),
        description="Column to predict, or a list; data sets of the package have a default.",
    )
    task: Literal["auto", TaskName] = Field(
        default="auto", description="Task; auto: inferred from the target."
    )
    classes: Texts = Field(default=(), description="All class labels in order; by default, sorted.")
    drop: Texts = Field(default=(), description="Columns to leave out.")
    categorical: Texts = Field(
        default=(),
        description="Number columns to read as categories, such as postal codes. If a CSV writes "
        "a number in several ways, such as 3.1 and 3.10, each text is a category.",
    )
    features: dict[str, str] = Field(
        default_factory=dict,
        max_length=MAX_COMPUTED,
        description="Computed columns, as name: formula, such as {ratio: a / b}.",
    )
    lags: dict[str, SomeSteps] = Field(
        default_factory=dict,
        description="Columns of earlier values, as column: rows; power: [1, 24] adds the power one "
        "row before and the power 24 rows before, in the order of split.time.",
    )
    rolling: dict[str, Annotated[dict[WindowFunction, SomeSteps], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Columns of rolling windows, as column: {function: rows}; power: {mean: 60} "
        "adds the mean power of the 60 rows before a row.",
    )
    ahead: Steps = Field(
        default=1,
        description="Rows to forecast ahead; with 3, the newest row that lags and windows read is "
        "three rows before the predicted row.",
    )
    series: str | None = Field(
        default=None,
        description="Column that names the series of each row; lags and windows stay in a series.",
    )
    where: str | None = Field(
        default=None, description="Condition of the rows to use, such as price > 0 and carat < 3."
    )
    weight: str | None = Field(default=None, description="Column of sample weights.")
    exposure: str | None = Field(
        default=None,
        description="Column of exposures, such as insured years (losses poisson, tweedie, gamma). "
        "Networks learn the target per unit of exposure; the exposure weights the rows.",
    )
    event: str | None = Field(
        default=None,
        description="Column of events for survival times (task survival): 1 if the event was seen "
        "at the time, 0 if not until then (right censoring). Without this column, the target of "
        "the task is two columns, the bounds of the time (interval censoring).",
    )
    class_weights: Literal["balanced", "none"] = Field(
        default="none", description="balanced: rare classes count more in the loss."
    )
    standardize: Scaling = Field(
        default="standard", description="Scaling of features, fitted on the training rows."
    )
    clip: FeatureClipping = Field(
        default="smooth",
        description="smooth: limit features by x / sqrt(1 + (x/3)^2) after standard or robust "
        "scaling, if there are no lags or windows; none: no limit.",
    )
    encoding: Encoding = Field(
        default="none",
        description="piecewise: numbers and dates also get features of their quantile bins; "
        "none: no bins.",
    )
    bins: Annotated[int, Limits(at_least=2, at_most=1000, whole=True)] = Field(
        default=BINS, description="Number of quantile bins of a column, with encoding: piecewise."
    )
    standardize_target: Standardizing = Field(
        default=True,
        description="true: train on standardized targets; mean: on targets divided by their mean, "
        "as the losses poisson, gamma and tweedie always do; false: on the targets.",
    )
    transform_target: TargetTransform = Field(
        default="none",
        description="log: learn the logarithm of a positive target; predictions are in the "
        "target's units, at most half of the range of the logarithms beyond it. auto: log if the "
        "target is skewed, a small trial model predicts better, and there are no lags or windows.",
    )
    bound_predictions: Flag = Field(
        default=False,
        description="Limit predicted numbers to the range of the training targets.",
    )
    missing: Filling = Field(
        default="mean", description="Value for missing numbers; indicator: mean and a 0/1 feature."
    )
    min_count: Count = Field(
        default=3, description="A text in fewer training rows gets no feature of its own."
    )
    max_levels: Annotated[int, Limits(at_least=1, at_most=1000, whole=True)] | None = Field(
        default=250,
        description="How many texts of a column get a feature each; rarer texts share one feature.",
    )

    @model_validator(mode="after")
    def _one_role(self) -> Self:
        special = filter(None, [self.weight, self.exposure, self.event])
        used = [*self.target, *self.drop, *special]
        if twice := sorted(name for name, count in Counter(used).items() if count > 1):
            text = f"target, weight, exposure, event and drop: name a column once ({twice})"
            raise rule(text, "drop" if twice[0] in self.drop else "target")
        if self.event is not None and self.task not in ("auto", "survival"):
            raise rule(f"is for task survival (got {self.task}); leave task or event out", "event")
        if "survival" in (self.task, self.event and "survival") and self.bound_predictions:
            raise rule("must be false for censored times", "bound_predictions")
        if self.task == "survival" and self.event is None and len(self.target) != 2:
            text = "survival needs data.event, the column of events, or a target of two bounds"
            raise rule(text, "task")
        for key, given in (("ahead", self.ahead > 1), ("series", self.series)):
            if given and not (self.lags or self.rolling):
                raise rule("needs data.lags or data.rolling; or leave it out", key)
        return self
