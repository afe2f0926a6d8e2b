"""Facts about mlpengine that TabArena shows; the dates are dates of the submitted run."""

from tabarena.models._method_metadata import MethodMetadata
from tabarena.systems._system_info import SystemInfo
from tabarena.systems.mlpengine.hpo import gen_mlpengine
from tabarena.systems.mlpengine.system import MlpengineSystemModel

mlpengine_method_metadata = MethodMetadata.system(
    method="mlpengine",
    name="mlpengine",
    suite="tabarena-2026-11-28",
    compute="cpu",
    date="2026-11-28",
    date_introduced="2026-11",
    reference_url="https://github.com/mlpengine/mlpengine",
    verified=False,
)

mlpengine_info = SystemInfo(
    system_cls=MlpengineSystemModel,
    config_generator=gen_mlpengine,
    method_metadata=mlpengine_method_metadata,
    pip_extra=("mlpengine",),
    prefetch_weights=None,
)
