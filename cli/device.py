"""`mlpengine export --format c-train`: training on a device."""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from mlpengine.config import load_config
from mlpengine.core.errors import UsageError
from mlpengine.export.device import MakeOptimizer, Package, Real, export_training
from mlpengine.models.model import Model
from mlpengine.optim import OPTIMIZERS, NormClip, Optimizer, Sgd
from mlpengine.training.run_directory import RESOLVED

from .streams import say

DEVICE_FORMAT = "c-train"

OPTIMIZER_NAMES = sorted([*OPTIMIZERS, "momentum"])
"""What --optimizer takes: those of configs, and SGD with a momentum of 0.9."""


@dataclass(frozen=True)
class DeviceOptions:
    """The options of the command that only `DEVICE_FORMAT` takes; None where one is not given."""

    optimizer: str | None
    lr: float | None
    clip_norm: float | None
    batch: int | None
    freeze: str | None
    libm: Literal["system", "none"] | None
    real: Real | None

    def refuse(self, form: str) -> None:
        """Raise UsageError if one is given for another format."""
        given = [name for name, value in asdict(self).items() if value is not None]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            raise UsageError(
                f"export: {option} is for --format {DEVICE_FORMAT} (the format is {form})"
            )


def write(
    run: Path,
    model: Model,
    path: Path,
    options: DeviceOptions,
    package: Package | None,
    *,
    as_json: bool,
) -> None:
    """Write source, header and self-test, or a library; say what they need on a device."""
    if path.suffix != ".c" and package is None:
        raise UsageError(f"{path}: the name must end in .c")
    config = run / RESOLVED if run.is_dir() else None
    make, clip_norm = _settings(config if config and config.is_file() else None, options)
    written = export_training(
        model,
        path,
        optimizer=make,
        clip_norm=clip_norm,
        batch_size=options.batch or 1,
        freeze=None if options.freeze is None else _layers(options.freeze),
        libm=options.libm != "none",
        real=options.real,
        package=package,
    )
    if as_json:
        click.echo(json.dumps({"format": DEVICE_FORMAT, **asdict(written)}, default=str))
        return
    for file in (written.source, written.header, written.test, *written.others):
        say(f"wrote {file} ({file.stat().st_size:,} bytes)")
    say(written.title)
    say(f"bytes: {written.state:,} of RAM for a state, {written.scratch:,} of stack")


def _layers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(
            f"export: --freeze takes numbers of layers, such as 0,1 (got {text!r})"
        ) from None


def _settings(config: Path | None, options: DeviceOptions) -> tuple[MakeOptimizer, float | None]:
    """Return the optimizer and the clipping of the run, changed by the options."""
    kind: type[Optimizer] = Sgd
    settings: dict[str, Any] = {}
    clip_norm = options.clip_norm
    if config is not None:
        given = load_config(config).config.settings.training
        optimizer = given.optimizer
        if options.optimizer is None and (
            optimizer.groups or optimizer.decay_schedule != "constant"
        ):
            raise UsageError(
                "export: c-train has no parameter groups and no decay schedule, which the run's "
                "optimizer has; give --optimizer"
            )
        settings, kind = vars(optimizer).copy(), optimizer.kind
        del settings["groups"], settings["decay_schedule"]
        if clip_norm is None and (clip := given.clip) is not None:
            if not isinstance(clip, NormClip):
                raise UsageError(
                    "export: c-train clips by the global norm alone; give --clip-norm, 0 for none"
                )
            clip_norm = clip.max_norm
    if options.optimizer is not None:
        momentum = options.optimizer == "momentum"
        kind = Sgd if momentum else OPTIMIZERS[options.optimizer]
        settings = {"momentum": 0.9} if momentum else {}
    if options.lr is not None:
        settings["lr"] = options.lr
    return partial(kind, **settings), clip_norm or None
