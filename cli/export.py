"""`mlpengine export`: a trained model in a format that other programs read."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config
from mlpengine.config.tables import read_tables
from mlpengine.core.errors import MlpEngineError, RunError, UsageError
from mlpengine.core.files import is_run, keep_input, missing, not_a_run
from mlpengine.core.quantiles import evenly_spaced
from mlpengine.core.wording import plural, printable
from mlpengine.data.tables import Table
from mlpengine.export import FORMATS, Exported, Int8Report, Package, export, format_of
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
  wasm         the same as WebAssembly (extra compiled), and a module that loads it
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
  mlpengine export runs/pump --format c --int8 -o pump.c
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
    "wasm": "model.wasm",
    PAGE_FORMAT: "model.html",
    device.DEVICE_FORMAT: "training.c",
}
"""Default names in a run directory, where model.safetensors is the model itself."""

HELD_OUT_ROWS = 500
"""Largest number of held-out rows on which a module is compared."""

CALIBRATION_ROWS = 10_000
"""Largest numbers of training and of held-out rows for 8-bit weights."""


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
@click.option(
    "--int8",
    is_flag=True,
    help="c: 8-bit weights and integer sums, for processors without floats; prints their error.",
)
@AS_JSON
def command(
    run: Path,
    form: str | None,
    out: Path | None,
    name: str | None,
    package: Package | None,
    int8: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the model of RUN, a run directory or a model file, in another format.

    The ONNX model is run and compared with mlpengine's own predictions before the file is
    written; it needs the extra onnx. So are js and wasm, on held-out rows of the run, if Node is
    installed.
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
    _refuse(form, name=name, int8=int8, package=package)
    given = device.DeviceOptions(**options)
    if form == device.DEVICE_FORMAT:
        device.write(run, Model.load(source), path, given, package, as_json=as_json)
        return
    given.refuse(form)
    model = Model.load(source)
    if form == PAGE_FORMAT:
        _write_form(model, path, as_json=as_json)
        return
    calibration, rows = None, None
    if form in ("js", "wasm"):
        rows = held_out_rows(run, model)
    elif int8:
        calibration, *others = rows_of_parts(run, model, CALIBRATION_ROWS)
        rows = others[-1] if others else None
    exported = export(
        model, path, form, name=name, package=package, calibration=calibration, rows=rows
    )
    if as_json:
        fields = ("format", "inputs", "outputs", "difference")
        shown = {name: getattr(exported, name) for name in fields}
        shown |= {"int8": asdict(exported.int8)} if exported.int8 else {}
        click.echo(json.dumps({"path": str(path), **shown}))
        return
    _say_exported(exported)
    if exported.int8 is not None:
        _say_int8(exported.int8, "training" if rows is None else "held-out")


def _refuse(form: str, *, name: str | None, int8: bool, package: Package | None) -> None:
    """Raise UsageError for options of C with another format."""
    given = {"--name": name is not None, "--int8": int8}
    wrong = [option for option, is_given in given.items() if is_given and form != "c"]
    if wrong:
        raise UsageError(f"export: {wrong[0]} is for --format c (the format is {form})")
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


def _say_int8(report: Int8Report, kind: str) -> None:
    """Say what 8-bit weights err and need."""
    say(f"8-bit weights differ from the model on {plural(report.rows, f'{kind} row')}:")
    for name, mean in report.mean.items():
        say(f"  {name}: {mean:.2g} on average, {report.largest[name]:.2g} at most")
    if report.same_labels is not None:
        say(f"  labels: {report.same_labels:.1%} are the same")
    say(
        f"bytes: {report.constants:,} of constants; {report.flash:,} of flash with code and "
        f"libraries on an ATmega328P, {report.stack:,} of stack"
    )


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
        return rows_of_parts(run, model, HELD_OUT_ROWS)[-1]
    return None


def rows_of_parts(run: Path, model: Model, largest: int) -> list[Table]:
    """Return up to `largest` rows of each part of a run, training rows first.

    Raises: UsageError for a model file alone; ConfigError or DataError for data that cannot be
    read any more.
    """
    if not (run / RESOLVED).is_file():
        raise UsageError(
            f"{run}: --int8 needs a run directory, whose training rows tell the ranges of values"
        )
    parts = read_tables(load_config(run / RESOLVED), preprocessor=model.preprocessor).parts
    return [table.rows(rows[evenly_spaced(len(rows), largest)]) for table, rows in parts.values()]
