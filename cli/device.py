"""`mlpengine export --format c-train`: training on a device."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial, reduce
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config
from mlpengine.core.errors import UsageError
from mlpengine.export.c_train import MakeOptimizer, Package, export_training
from mlpengine.models.model import Model
from mlpengine.optim import OPTIMIZERS, FullBatch, Optimizer, Sgd
from mlpengine.training.run_directory import RESOLVED

FORMAT = "c-train"

BY_GRADIENTS = [name for name, kind in OPTIMIZERS.items() if not issubclass(kind, FullBatch)]

_OPTIONS = (
    click.option(
        "--optimizer",
        type=click.Choice(sorted([*BY_GRADIENTS, "momentum"])),
        help="c-train: by default the run's, with its settings; else sgd.",
    ),
    click.option(
        "--lr",
        type=float,
        metavar="X",
        help="c-train: the learning rate; the device may change it.",
    ),
    click.option(
        "--clip-norm",
        type=float,
        metavar="X",
        help="c-train: maximum norm of the gradients, 0 for none.",
    ),
    click.option(
        "--freeze", metavar="LAYERS", help="c-train: layers that are not trained, such as 0,1."
    ),
    click.option(
        "--real",
        type=click.Choice(["float", "double"]),
        help="c-train: the type of all numbers; by default the run's.",
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that only this format takes."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def written(path: Path) -> str:
    """Return the text about a file."""
    return f"wrote {path} ({path.stat().st_size:,} bytes)"


def write(
    run: Path, model: Model, path: Path, given: Mapping[str, Any], package: Package | None
) -> tuple[dict[str, Any], list[str]]:
    """Write source, header and self-test, or a library.

    Return the facts of the files, for programs and for people.
    """
    if path.suffix != ".c" and package is None:
        raise UsageError(f"{path}: the name must end in .c")
    make, clip_norm = _settings(run / RESOLVED if run.is_dir() else None, given)
    files = export_training(
        model,
        path,
        optimizer=make,
        clip_norm=clip_norm,
        freeze=_layers(given["freeze"]),
        real=given["real"],
        package=package,
    )
    needs = f"bytes: {files.state:,} of RAM for a state, {files.scratch:,} of stack"
    paths = (files.source, files.header, files.test, *files.others)
    return {"format": FORMAT, **asdict(files)}, [*map(written, paths), files.title, needs]


def _layers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(
            f"export: --freeze takes numbers of layers, such as 0,1 (got {text!r})"
        ) from None


def _settings(config: Path | None, given: Mapping[str, Any]) -> tuple[MakeOptimizer, float | None]:
    """Return the optimizer and the clipping of the run, changed by the options."""
    kind: type[Optimizer] = Sgd
    settings: dict[str, Any] = {}
    chosen, clip_norm = given["optimizer"], given["clip_norm"]
    if config is not None and config.is_file():
        training = load_config(config).config.settings.training
        optimizer = training.optimizer
        if chosen is None and optimizer.name not in BY_GRADIENTS:
            raise UsageError(
                f"export: c-train has no {optimizer.name}, the run's optimizer, because it needs "
                "all rows at each step; give --optimizer"
            )
        if chosen is None and (optimizer.groups or optimizer.decay_schedule != "constant"):
            raise UsageError(
                "export: the run's optimizer has parameter groups or a decay schedule, but c-train "
                "has neither; give --optimizer"
            )
        if chosen is None:
            settings, kind = vars(optimizer).copy(), optimizer.kind
            del settings["groups"], settings["decay_schedule"]
        if clip_norm is None:
            clip_norm = training.clip_norm
    if chosen is not None:
        momentum = chosen == "momentum"
        kind = Sgd if momentum else OPTIMIZERS[chosen]
        settings = {"momentum": 0.9} if momentum else {}
    if given["lr"] is not None:
        settings["lr"] = given["lr"]
    return partial(kind, **settings), clip_norm or None
