"""The settings of a run: features, network, training, and division of the rows.

Each class has the options of one subject, with defaults, limits and descriptions.  Configs and
their schema, estimators, recipes, sweeps and the fixes of verdicts use these classes.
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
