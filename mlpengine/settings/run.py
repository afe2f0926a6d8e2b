"""Everything that describes a run, except the files that it reads and writes."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from mlpengine.core.fields import Checked, Count, OneOf
from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.split import SplitSettings
from mlpengine.settings.training import TrainingSettings

VERDICTS: dict[str, None] = {}
"""The names of all verdicts; `mlpengine.diagnostics.add_rule` fills it."""


@dataclass(frozen=True)
class DiagnosticsSettings(Checked):
    """Measurements of gradients, updates and units during training.

    Args:
        every: Steps between two samples; auto: as many as cost under 2 %.
        silence: Names of verdicts to leave out.
    """

    every: Literal["auto"] | Count = "auto"
    silence: tuple[Annotated[str, OneOf(VERDICTS)], ...] = ()


@dataclass(frozen=True)
class RunSettings(Checked):
    """Everything that describes a run, except the files that it reads and writes.

    Args:
        features: How columns become features.
        network: The network.
        training: Length and details of training.
        split: Shares of rows.
        diagnostics: false, true, or its settings.
        seed: Seed of the split, the initial weights, the order of rows and dropout.
    """

    features: FeatureSettings = field(default_factory=FeatureSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    diagnostics: DiagnosticsSettings | None = field(default_factory=DiagnosticsSettings)
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
