"""The description of a run: the network, its features, its training and the split of the rows.

Each class holds the options of one idea, with their defaults, limits and descriptions; configs and
their schema, estimators, recipes, sweeps and the remedies of verdicts are views of them.
"""

from mlpengine.settings.features import FeatureSettings
from mlpengine.settings.fix import Fix
from mlpengine.settings.network import NetworkSettings
from mlpengine.settings.run import DiagnosticsSettings, RunSettings
from mlpengine.settings.split import SplitSettings
from mlpengine.settings.training import EarlyStopping, MemberType, TrainingSettings

__all__ = [
    "DiagnosticsSettings",
    "EarlyStopping",
    "FeatureSettings",
    "Fix",
    "MemberType",
    "NetworkSettings",
    "RunSettings",
    "SplitSettings",
    "TrainingSettings",
]
