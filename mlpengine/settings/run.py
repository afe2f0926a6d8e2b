"""Everything that describes a run, except the files that it reads and writes."""

import dataclasses
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from mlpengine.core.fields import Count, Limits
from mlpengine.settings.base import STRICT, Names, one_or_more
from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.training import TrainingSettings

VERDICTS: dict[str, None] = {}
"""The names of all verdicts, filled by `mlpengine.diagnostics.add_rule`."""

VerdictName: TypeAlias = Annotated[str, Names(VERDICTS)]

Seed: TypeAlias = Annotated[
    int,
    Limits(at_least=0, below=2**63, whole=True),
    Field(description="Seed of the split, the initial weights, the order of rows and dropout."),
]


@dataclass(frozen=True, config=STRICT)
class DiagnosticsSettings:
    """Measurements of gradients, updates and units during training."""

    every: Literal["auto"] | Count = Field(
        default="auto",
        description="Steps between measurements; auto: they take under 2 % of the time.",
    )
    silence: Annotated[tuple[VerdictName, ...], one_or_more(VerdictName)] = Field(
        default=(), description="Names of verdicts to leave out."
    )


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Everything that describes a run, except the files that it reads and writes."""

    features: FeatureSettings = dataclasses.field(default_factory=FeatureSettings)
    network: NetworkSettings = dataclasses.field(default_factory=NetworkSettings)
    training: TrainingSettings = dataclasses.field(default_factory=TrainingSettings)
    diagnostics: DiagnosticsSettings | None = dataclasses.field(default_factory=DiagnosticsSettings)
    seed: Seed = 0
