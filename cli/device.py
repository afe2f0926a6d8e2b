"""`mlpengine export --format c-train`: training on a device."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from mlpengine.config import Override, load_config
from mlpengine.config.load import with_overrides
from mlpengine.core.errors import UsageError
from mlpengine.core.files import is_device
from mlpengine.export.c_train import MakeOptimizer, Package, export_training
from mlpengine.fitting import checked_sections
from mlpengine.models.model import Model
from mlpengine.optim import FullBatch
from mlpengine.settings.training import TrainingSettings
from mlpengine.training.run_directory import RESOLVED

FORMAT = "c-train"


def written(path: Path) -> str:
    """Return the text about a file."""
    return f"wrote {path}" + ("" if is_device(path) else f" ({path.stat().st_size:,} bytes)")


def write(
    run: Path, model: Model, path: Path, overrides: Sequence[Override], package: Package | None
) -> tuple[dict[str, Any], list[str]]:
    """Write source, header and self-test, or a library.

    Return facts about the files, as data and as text.
    """
    if path.suffix != ".c" and package is None:
        raise UsageError(f"{path}: the name must end in .c")
    config, training = run / RESOLVED, None
    if config.is_file():
        training = load_config(config, overrides).config.settings.training
    elif overrides:  # a model file has no run
        file = checked_sections({"data": {"source": str(run)}, "optimizer": "sgd"}, "export")
        training = with_overrides(file, overrides).config.settings.training
    settings: dict[str, Any] = {}
    if training is not None:
        settings = {
            "optimizer": _optimizer(training),
            "clip_norm": training.clip_norm,
            "freeze": training.freeze,
            "real": "double" if training.dtype == "float64" else "float",
        }
    files = export_training(model, path, package=package, **settings)
    needs = f"bytes: {files.state:,} of RAM for a state, {files.scratch:,} of stack"
    paths = (files.source, files.header, files.test, *files.others)
    return {"format": FORMAT, **asdict(files)}, [*map(written, paths), files.title, needs]


def _optimizer(training: TrainingSettings) -> MakeOptimizer:
    """Return the optimizer of a run.  Raises: UsageError if it has no C."""
    settings, kind = vars(training.optimizer).copy(), training.optimizer.kind
    groups, decay = settings.pop("groups", None), settings.pop("decay_schedule", "constant")
    why = "has parameter groups or a decay schedule" if groups or decay != "constant" else ""
    if issubclass(kind, FullBatch):
        why = f"is {training.optimizer.name}, for all rows at each step"
    if why:
        raise UsageError(
            f"export: c-train has no optimizer like the run's (it {why}); write --set optimizer=sgd"
        )
    return partial(kind, **settings)
