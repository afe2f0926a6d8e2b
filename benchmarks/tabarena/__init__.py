"""mlpengine as a system of TabArena; this folder is copied to ``tabarena/systems/mlpengine``."""

from tabarena.systems.mlpengine.hpo import gen_mlpengine
from tabarena.systems.mlpengine.info import mlpengine_info, mlpengine_method_metadata
from tabarena.systems.mlpengine.system import MlpengineSystemModel

__all__ = ["MlpengineSystemModel", "gen_mlpengine", "mlpengine_info", "mlpengine_method_metadata"]
