"""`mlpengine export`: a trained model in a format that other programs read."""

import json
from pathlib import Path

import click

from mlpengine.errors import RunError
from mlpengine.export import FORMATS, export
from mlpengine.train.model import MODEL_FILE, Model

EPILOG = """\b
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
"""What an export is called in its run directory; model.safetensors there is our own file."""


@click.command("export", epilog=EPILOG)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(FORMATS)),
    help="What to write; by default what the suffix of --out says, or else onnx.",
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

    onnx holds the preprocessing, too: its inputs are the columns of a table, its outputs labels
    and probabilities, or numbers in the target's own units.  It is run and compared with our own
    forward before the file is written.  safetensors and npz hold the weights alone, under the
    names of a PyTorch nn.Sequential.  c is the network alone, preprocessing left out, as one file
    of C99 with the weights and a function predict(input, output).
    """
    source = run / MODEL_FILE if run.is_dir() else run
    if not source.is_file():
        raise RunError(f"{source}: there is no model; a run has one when it has ended")
    if form is None:
        suffix = out.suffix[1:] if out else ""
        form = suffix if suffix in FORMATS else "onnx"
    path = out or source.parent / NAMES[form]
    exported = export(Model.load(source), path, form)
    if as_json:
        fields = ("format", "inputs", "outputs", "difference")
        shown = {name: getattr(exported, name) for name in fields}
        click.echo(json.dumps({"path": str(path), **shown}))
        return
    click.echo(f"wrote {path} ({path.stat().st_size:,} bytes)")
    for title, values in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        if values:
            click.echo(f"{title}: " + ", ".join(f"{name} ({t})" for name, t in values.items()))
    if exported.difference is not None:
        click.echo(f"compared with our own forward: largest difference {exported.difference:.2g}")
