"""How the columns of a table become the features of a network."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Len, Lt

from mlpengine.core.fields import Checked, Count

TaskName: TypeAlias = Literal["classification", "regression", "multilabel"]
Scaling: TypeAlias = Literal["standard", "minmax", "robust", "none"]
FeatureClipping: TypeAlias = Literal["smooth", "none"]
Encoding: TypeAlias = Literal["piecewise", "none"]
Filling: TypeAlias = (
    Literal["mean", "median", "indicator", "error"] | Annotated[float, Gt(-1e38), Lt(1e38)]
)
Standardizing: TypeAlias = bool | Literal["mean"]
TargetTransform: TypeAlias = Literal["none", "log", "auto"]

BINS = 12
"""Quantile bins of a column by default."""


@dataclass(frozen=True)
class FeatureSettings(Checked):
    """How the columns of a table become the features of a network.

    Args:
        target: Column to predict, or several; shipped data sets have a default.
        task: What to predict; auto: inferred from the target.
        drop: Columns to leave out.
        categorical: Columns of numbers that are names, not quantities.
        features: Further columns, name: formula of the others.
        where: Rows to use: a formula, such as price > 0 and carat < 3.
        weight: Column of sample weights.
        class_weights: balanced: rare classes count more in the loss.
        standardize: Scaling of features, fitted on the training rows.
        clip: smooth: x / sqrt(1 + (x/3)^2) after standard and robust scaling; or none.
        encoding: piecewise: numbers and dates also get features by quantile bins; or none.
        bins: Quantile bins of a column, with encoding: piecewise.
        standardize_target: Train on standardized targets (poisson, gamma: divided by their mean),
            or on targets divided by their mean.
        transform_target: What networks learn of a positive target: log: its logarithm, which
            predictions bring back, in the range of the training targets; none: itself; auto: log
            where a small model predicts skewed targets better by it.
        bound_predictions: Whether predictions of numbers stay in the range of the training targets.
        missing: What stands in for a missing number.
        min_count: Rows a text must occur in to get a feature.
        max_levels: The most frequent texts of a column get a feature each; the others share one.
    """

    target: tuple[str, ...] = ()
    task: Literal["auto"] | TaskName = "auto"
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    features: Annotated[dict[str, str], Len(0, 1000)] = field(default_factory=dict)
    where: str | None = None
    weight: str | None = None
    class_weights: Literal["balanced", "none"] = "none"
    standardize: Scaling = "standard"
    clip: FeatureClipping = "smooth"
    encoding: Encoding = "none"
    bins: Annotated[int, Ge(2), Le(1000)] = BINS
    standardize_target: Standardizing = True
    transform_target: TargetTransform = "none"
    bound_predictions: bool = False
    missing: Filling = "mean"
    min_count: Count = 3
    max_levels: Annotated[int, Ge(1), Le(1000)] | None = 250

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a column that has two roles."""
        used = [*self.target, *self.drop, *([self.weight] if self.weight else [])]
        if twice := sorted({name for name in used if used.count(name) > 1}):
            yield "target", f"target, weight and drop: a column can have one role ({twice})"
