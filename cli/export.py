"""`mlpengine export`: a trained model in a format that other programs read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from mlpengine.config import Override, load_config, parse_override
from mlpengine.config.load import with_overrides
from mlpengine.core.errors import MlpEngineError, UsageError
from mlpengine.core.files import is_device, keep_input, pasted
from mlpengine.core.wording import printable
from mlpengine.export import Exported, Package, export, format_of
from mlpengine.export.c_train import MakeOptimizer, export_training
from mlpengine.fitting import checked_sections
from mlpengine.models.model import MODEL_FILE, Model
from mlpengine.optim import FullBatch
from mlpengine.settings.training import TrainingSettings
from mlpengine.training.loading import load
from mlpengine.training.run_directory import RESOLVED

from .options import AS_JSON, MODEL_ARGUMENT, OutputPath, overrides_like
from .streams import say

EPILOG = """\b
Formats:
  onnx         preprocessing and network: reads the columns of a table, returns
               labels and probabilities, or numbers in the units of the target
  safetensors  the weights, under the names of a PyTorch nn.Sequential
  c            preprocessing and network as one C99 file: predict(x, out) reads a
               row of the table (texts as codes), network(input, output) reads
               features.  To test an example row, compile with -DMLP_SELF_TEST
               (with --name pump: -DPUMP_SELF_TEST)
  js           preprocessing and network as one ES module without dependencies:
               predict({column: value, ...}) returns label and probabilities, or
               numbers and their intervals
  html         one page with a form that predicts a row in the browser; it sends
               nothing
  c-train      training on a device: preprocessing, network, loss and optimizer as
               one C99 file, with a header and a self-test; no memory is allocated

\b
Examples:
  mlpengine export runs/digits
  mlpengine export runs/digits --format safetensors --json
  mlpengine export runs/digits --format c -o digits.c
  mlpengine export runs/pump --format c --name pump -o pump.c
  mlpengine export runs/pump --format js -o pump.mjs
  mlpengine export runs/pump --format c-train -o pump.c
  mlpengine export runs/pump --format c-train --set optimizer=sgd -o pump.c
  mlpengine export runs/pump --format c-train --package arduino -o libraries/pump
"""

DEVICE_FORMAT, OF_DEVICES = "c-train", ("clip_norm", "freeze", "dtype")

EXPORT_NAMES = {
    "onnx": "model.onnx",
    "safetensors": "weights.safetensors",
    "c": "network.c",
    "js": "model.mjs",
    "html": "model.html",
    DEVICE_FORMAT: "training.c",
}
"""Default file name by format.  In a run directory, model.safetensors is the model of the run."""


@click.command("export", epilog=EPILOG)
@MODEL_ARGUMENT
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(EXPORT_NAMES)),
    help="By default the format for the suffix of --out; without --out, onnx.",
)
@click.option(
    "-o",
    "--out",
    type=OutputPath(path_type=Path),
    help="The file; by default beside the model.",
)
@overrides_like("optimizer=sgd or training.freeze=[0] (of the run, for c-train)")
@click.option(
    "--package",
    type=click.Choice(["arduino", "platformio"]),
    help="For c, c-train: write a library for this tool into the folder --out.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="For c: prefix of functions and macros; a header is written, too.",
)
@AS_JSON
def command(
    run: Path,
    form: str | None,
    out: Path | None,
    name: str | None,
    package: Package | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the model of RUN, a run directory or a model file, in another format.

    Before an ONNX file is written, its predictions are compared with mlpengine's; this needs the
    extra onnx.  c-train uses the optimizer, the clipping and the frozen layers of the run; --set
    changes these settings and training.dtype.
    """
    model = load(run)
    source = run / MODEL_FILE if run.is_dir() else run
    path = out or source.parent / EXPORT_NAMES[form or "onnx"]
    if package is None and path.is_dir():
        raise UsageError(f"{path}: is a directory; name a file by --out")
    keep_input(path, source, "the model")
    if package is not None and out is None:
        path = path.with_suffix("")
    if form != DEVICE_FORMAT:
        form = format_of(path, form)
    _refuse(form, name=name, package=package, settings=settings)
    overrides = [parse_override(text) for text in settings]
    for label, key, _ in overrides:
        if key[0] != "optimizer" and key not in [("training", name) for name in OF_DEVICES]:
            raise UsageError(f"export: {label} changes nothing in {form}; leave it out")
    with _naming(path), np.errstate(over="ignore", invalid="ignore"):
        if form == DEVICE_FORMAT:
            shown, lines = _write_training(run, model, path, overrides, package)
        else:
            exported = export(model, path, form, name=name, package=package)
            fields = ("format", "inputs", "outputs", "difference")
            shown = {"path": path, **{field: getattr(exported, field) for field in fields}}
            lines = [*map(_written, exported.paths), *_facts(exported)]
            if exported.self_test and package is None and not is_device(path):
                build = f"cc -D{exported.self_test} {pasted(path)} -o self_test -lm"
                lines.append(f"self-test: {build} && ./self_test")
    if as_json:
        click.echo(json.dumps(shown, default=str))
        return
    for line in lines:
        say(line, err=is_device(path))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Begin the message of an error with the path that was to be written."""
    try:
        yield
    except MlpEngineError as error:
        if not str(error).startswith(str(path.with_suffix(""))):
            error.args = (f"{path}: {error}",)
        raise


def _refuse(
    form: str, *, name: str | None, package: Package | None, settings: Sequence[str]
) -> None:
    """Raise UsageError for options that belong to another format."""
    for option, given, takes in (
        ("set", settings, [DEVICE_FORMAT]),
        ("name", name, ["c"]),
        ("package", package, ["c", DEVICE_FORMAT]),
    ):
        if given and form not in takes:
            raise UsageError(
                f"export: --{option} is for --format {' and '.join(takes)} (the format is {form})"
            )


def _facts(exported: Exported) -> Iterator[str]:
    """Yield lines on the content of a file and on the result of a comparison."""
    for title, values in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        if values:
            yield f"{title}: " + ", ".join(f"{printable(name)} ({t})" for name, t in values.items())
    if exported.difference is not None:
        yield f"largest difference from mlpengine's outputs: {exported.difference:.2g}"


def _written(path: Path) -> str:
    return f"wrote {path}" + ("" if is_device(path) else f" ({path.stat().st_size:,} bytes)")


def _write_training(
    run: Path, model: Model, path: Path, overrides: Sequence[Override], package: Package | None
) -> tuple[dict[str, Any], list[str]]:
    """Write source, header and self-test, or a library; return facts as data and as text."""
    if path.suffix != ".c" and package is None:
        raise UsageError(f"{path}: the name must end in .c")
    config, training = run / RESOLVED, None
    if config.is_file():
        training = load_config(config, overrides).config.settings.training
    elif overrides:  # a model file has no config
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
    return {"format": DEVICE_FORMAT, **asdict(files)}, [*map(_written, paths), files.title, needs]


def _optimizer(training: TrainingSettings) -> MakeOptimizer:
    """Return a function that makes the run's optimizer.  Raises: UsageError if C cannot have it."""
    settings, kind = vars(training.optimizer).copy(), training.optimizer.kind
    why = "has parameter groups" if settings.pop("groups", None) else ""
    if issubclass(kind, FullBatch):
        why = f"is {training.optimizer.name}, for all rows at each step"
    if why:
        raise UsageError(
            f"export: c-train cannot use the run's optimizer (it {why}); write --set optimizer=sgd"
        )
    return partial(kind, **settings)
