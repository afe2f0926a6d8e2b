"""Everything that describes a run, except the files that it reads and writes."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from mlpengine.common.fields import Checked, Count, OneOf
from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.split import SplitSettings
from mlpengine.settings.training import TrainingSettings

VERDICTS = (
    "behind_linear",
    "clip_low",
    "dead",
    "decay_high",
    "dropout_high",
    "eps_large",
    "exploding",
    "few_steps",
    "imbalance",
    "input_scale",
    "labels",
    "leak",
    "lr_high",
    "lr_low",
    "momentum_high",
    "no_gradient",
    "noise_scale",
    "noisy_labels",
    "nonfinite",
    "nothing_learned",
    "outlier",
    "output_clamped",
    "overfitting",
    "saturated",
    "shifted",
    "spikes",
    "start",
    "target_scale",
    "underfitting",
    "unfinished",
    "vanishing",
)
"""The names of all verdicts."""


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
