"""`mlpengine export`: a trained model in a format that other programs read."""

import json
from pathlib import Path

import click

from mlpengine.errors import RunError
from mlpengine.export import FORMATS, export, format_of
from mlpengine.files import similar_file
from mlpengine.train.model import MODEL_FILE, Model

from .streams import say

EPILOG = """\b
Formats:
  onnx         preprocessing and network: reads the columns of a table, returns
               labels and probabilities, or numbers in the units of the target
               (of several networks the mean, in c too)
  safetensors  the weights, under the names of a PyTorch nn.Sequential
  npz          the same weights for NumPy
  c            the network without preprocessing, as one file of C99 with the
               weights and a function predict(input, output)

\b
Examples:
  mlpengine export runs/digits
  mlpengine export runs/digits --format npz -o digits.npz
  mlpengine export runs/digits --format safetensors --json
  mlpengine export runs/digits --format c -o digits.c
"""

NAMES = {
    "onnx": "model.onnx",
    "safetensors": "weights.safetensors",
    "npz": "weights.npz",
    "c": "network.c",
}
"""Default names in a run directory, where model.safetensors is the model itself."""


@click.command("export", epilog=EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(FORMATS)),
    help="By default that of the suffix of --out, or onnx without --out.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; by default beside the model.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
def command(run: Path, form: str | None, out: Path | None, as_json: bool) -> None:
    """Write the model of RUN, a run directory or a model file, in another format.

    The ONNX model is run and compared with mlpengine's own predictions before the file is
    written; it needs the extra onnx: pip install 'mlpengine[onnx]'.
    """
    if not run.exists():
        raise RunError(f"{run}: there is no such run or model file{similar_file(run)}")
    source = run / MODEL_FILE if run.is_dir() else run
    if not source.is_file():
        raise RunError(f"{source}: there is no model; a run has one when it has ended")
    path = out or source.parent / NAMES[form or "onnx"]
    form = format_of(path, form)
    exported = export(Model.load(source), path, form)
    if as_json:
        fields = ("format", "inputs", "outputs", "difference")
        shown = {name: getattr(exported, name) for name in fields}
        click.echo(json.dumps({"path": str(path), **shown}))
        return
    say(f"wrote {path} ({path.stat().st_size:,} bytes)")
    for title, values in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        if values:
            say(f"{title}: " + ", ".join(f"{name} ({t})" for name, t in values.items()))
    if exported.difference is not None:
        say(f"compared with our own predictions: largest difference {exported.difference:.2g}")
