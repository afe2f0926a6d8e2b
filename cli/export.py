"""`mlpengine export`: a trained model in a format that other programs read."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config
from mlpengine.config.tables import read_tables
from mlpengine.core.errors import MlpEngineError, RunError, UsageError
from mlpengine.core.files import is_run, keep_input, missing, not_a_run
from mlpengine.core.rows import evenly_spaced
from mlpengine.core.wording import printable
from mlpengine.data.tables import Table
from mlpengine.export import FORMATS, Exported, Package, export, format_of
from mlpengine.models.model import MODEL_FILE, Model
from mlpengine.report import write_page
from mlpengine.report.form import form_page
from mlpengine.training.run_directory import RESOLVED

from . import device
from .options import AS_JSON, MODEL_ARGUMENT
from .streams import say

EPILOG = """\b
Formats:
  onnx         preprocessing and network: reads the columns of a table, returns
               labels and probabilities, or numbers in the units of the target
               (of several networks the mean, in c too)
  safetensors  the weights, under the names of a PyTorch nn.Sequential
  npz          the same weights for NumPy
  c            preprocessing and network as one file of C99: predict(x, out)
               takes a row of the table, codes for texts, network(input, output)
               takes features; -DMLP_SELF_TEST checks an example row
  js           preprocessing and network as one ES module without dependencies:
               predict({column: cell, ...}) returns label and probabilities, or
               values and their interval; Node compares it with predict
  html         one page with a form of the columns, which predicts what is typed and
               sends nothing
  c-train      training for a device: preprocessing, network, loss and optimizer as
               one file of C99, with a header and a self-test; no allocator

\b
Examples:
  mlpengine export runs/digits
  mlpengine export runs/digits --format npz -o digits.npz
  mlpengine export runs/digits --format safetensors --json
  mlpengine export runs/digits --format c -o digits.c
  mlpengine export runs/pump --format c --name pump -o pump.c
  mlpengine export runs/pump --format js -o pump.mjs
  mlpengine export runs/pump --format c-train -o pump.c
  mlpengine export runs/pump --format c-train --optimizer sgd --freeze 0,1 -o pump.c
  mlpengine export runs/pump --format c-train --package arduino -o libraries/pump
"""

PAGE_FORMAT = "html"

EXPORT_NAMES = {
    "onnx": "model.onnx",
    "safetensors": "weights.safetensors",
    "npz": "weights.npz",
    "c": "network.c",
    "js": "model.mjs",
    PAGE_FORMAT: "model.html",
    device.DEVICE_FORMAT: "training.c",
}
"""Default names in a run directory, where model.safetensors is the model itself."""

HELD_OUT_ROWS = 500
"""Largest number of held-out rows on which a module is compared."""


@click.command("export", epilog=EPILOG)
@MODEL_ARGUMENT
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted([*FORMATS, device.DEVICE_FORMAT, PAGE_FORMAT])),
    help="By default that of the suffix of --out, or onnx without --out.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The file; by default beside the model.",
)
@click.option(
    "--optimizer",
    type=click.Choice(device.OPTIMIZER_NAMES),
    help="c-train: by default that of the run, with its settings; else sgd.",
)
@click.option(
    "--lr", type=float, metavar="X", help="c-train: the learning rate, which the device may change."
)
@click.option(
    "--clip-norm",
    type=float,
    metavar="X",
    help="c-train: maximum norm of the gradients, 0 for none.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    metavar="N",
    help="c-train: rows of a step; 1 by default.",
)
@click.option(
    "--freeze", metavar="LAYERS", help="c-train: layers that are not trained, such as 0,1."
)
@click.option(
    "--libm",
    type=click.Choice(["system", "none"]),
    help="c-train: none writes exp, log and tanh into the file; system calls math.h.",
)
@click.option(
    "--real",
    type=click.Choice(["float", "double"]),
    help="c-train: the type of all numbers; by default that of the run.",
)
@click.option(
    "--package",
    type=click.Choice(["arduino", "platformio"]),
    help="c, c-train: a library that this tool installs, in the folder --out.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="c: what its functions and macros begin with; a header is written, too.",
)
@AS_JSON
def command(
    run: Path,
    form: str | None,
    out: Path | None,
    name: str | None,
    package: Package | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the model of RUN, a run directory or a model file, in another format.

    The ONNX model is run and compared with mlpengine's own predictions before the file is
    written; it needs the extra onnx. So is js, on held-out rows of the run, if Node is installed.
    """
    if not run.exists():
        raise missing(run, "run or model file")
    source = run / MODEL_FILE if run.is_dir() else run
    if not source.is_file():
        if not is_run(run):
            raise not_a_run(run)
        raise RunError(f"{source}: there is no model; a run has one when it has ended")
    path = out or source.parent / EXPORT_NAMES[form or "onnx"]
    if package is None and path.is_dir():
        raise UsageError(f"{path}: is a directory; name a file by --out")
    keep_input(path, source, "the model")
    if package is not None and out is None:
        path = path.with_suffix("")
    if form == PAGE_FORMAT or (form is None and path.suffix == ".html"):
        form = PAGE_FORMAT
    elif form != device.DEVICE_FORMAT:
        form = format_of(path, form)
    _refuse(form, name=name, package=package)
    given = device.DeviceOptions(**options)
    if form == device.DEVICE_FORMAT:
        device.write(run, Model.load(source), path, given, package, as_json=as_json)
        return
    given.refuse(form)
    model = Model.load(source)
    if form == PAGE_FORMAT:
        _write_form(model, path, as_json=as_json)
        return
    rows = held_out_rows(run, model) if form == "js" else None
    exported = export(model, path, form, name=name, package=package, rows=rows)
    if as_json:
        fields = ("format", "inputs", "outputs", "difference")
        shown = {name: getattr(exported, name) for name in fields}
        click.echo(json.dumps({"path": str(path), **shown}))
        return
    _say_exported(exported)


def _refuse(form: str, *, name: str | None, package: Package | None) -> None:
    """Raise UsageError for options of C with another format."""
    if name is not None and form != "c":
        raise UsageError(f"export: --name is for --format c (the format is {form})")
    if package is not None and form not in ("c", device.DEVICE_FORMAT):
        raise UsageError(f"export: --package is for --format c and c-train (the format is {form})")


def _say_exported(exported: Exported) -> None:
    """Say what was written, and what a comparison showed."""
    for file in exported.paths:
        say(f"wrote {file} ({file.stat().st_size:,} bytes)")
    for title, values in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        if values:
            say(f"{title}: " + ", ".join(f"{printable(name)} ({t})" for name, t in values.items()))
    if exported.difference is not None:
        on = f" on {exported.compared}" if exported.compared else ""
        say(f"compared with our own predictions{on}: largest difference {exported.difference:.2g}")
    elif exported.compared:
        say(f"not compared with our own predictions: {exported.compared}")


def _write_form(model: Model, path: Path, *, as_json: bool) -> None:
    """Write the page that predicts."""
    if path.suffix != ".html":
        raise UsageError(f"{path}: the name must end in .html")
    write_page(path, form_page(model))
    if as_json:
        click.echo(json.dumps({"path": str(path), "format": PAGE_FORMAT}))
    else:
        say(f"wrote {path} ({path.stat().st_size:,} bytes)")


def held_out_rows(run: Path, model: Model) -> Table | None:
    """Return some rows of the last part of a run; None if they cannot be read any more."""
    with suppress(MlpEngineError, OSError):
        config = load_config(run / RESOLVED)
        parts = read_tables(config, preprocessor=model.preprocessor).parts
        table, rows = [*parts.values()][-1]
        return table.rows(rows[evenly_spaced(len(rows), HELD_OUT_ROWS)])
    return None
