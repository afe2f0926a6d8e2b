"""The configurations of mlpengine that TabArena runs."""

from tabarena.systems.mlpengine.system import MlpengineSystemModel
from tabarena.utils.config_utils import SystemConfigGenerator

gen_mlpengine = SystemConfigGenerator(
    model_cls=MlpengineSystemModel, name="mlpengine", manual_configs=[{}]
)
